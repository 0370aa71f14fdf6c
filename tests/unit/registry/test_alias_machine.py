"""A state machine over aliases, versions, deletes, rollbacks and holds, on both databases.

``PODIUM_TEST_EXAMPLES`` draws more of it than the quick tier can.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from registry.protocol import Registry
from tests.common import registries
from tests.common.alias_machine import AliasMachine
from tests.common.registries import Place

_EXAMPLES = os.environ.get("PODIUM_TEST_EXAMPLES")
_QUICK = settings(
    max_examples=30, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False
)
_THOROUGH = settings(max_examples=int(_EXAMPLES or 1))


def run_machine(opened: Callable[[int], Registry], scratch: Path) -> None:
    run_state_machine_as_test(
        lambda: AliasMachine(opened, scratch),
        settings=settings(
            _THOROUGH if _EXAMPLES else _QUICK,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
def test_aliases_on_sqlite(tmp_path: Path, sqlite_template: Path) -> None:
    numbers, places = count(), []

    def opened(window: int) -> Registry:
        place = registries.sqlite_place(tmp_path / f"home-{next(numbers)}", sqlite_template)
        places.append(place)
        return place.open(rollback_window=window)

    run_machine(opened, tmp_path)
    for place in places:
        place.close()


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_aliases_on_postgresql(tmp_path: Path, server_place: Place) -> None:
    url = server_place.settings.database_url

    def opened(window: int) -> Registry:
        registries.empty_postgres(url)
        number = len(list(tmp_path.glob("blobs-*")))
        (tmp_path / f"blobs-{number}").mkdir()
        return server_place.open(rollback_window=window, blobs=f"file://{tmp_path}/blobs-{number}")

    run_machine(opened, tmp_path)
