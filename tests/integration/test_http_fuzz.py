"""The API asked from its own description, well and badly: no answer is a fault of the server's.

What is wrong with a request is said in a problem; every answer is of a status and a form that the description
names. The same requests each time: they follow from the description alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from registry.http.app import create_app
from registry.http.shell import Failures
from registry.identity.roles import TeamRole
from registry.wire.headers import PREFIX
from tests.common.registries import Maker, Place

_CHECKS = [
    not_a_server_error,
    response_schema_conformance,
    content_type_conformance,
    status_code_conformance,
]
_EXAMPLES = 4  # of each operation, in each mode
#: What waits for an event, or keeps others waiting: each has tests of its own.
_LEFT_OUT = ("/stream/wait", "/stream/events", "/transactions")


@pytest.fixture
def served(sqlite_place: Place, tmp_path: Path) -> tuple[Any, str]:
    """The description of an app that runs in this process, and an admin's token."""
    registry = sqlite_place.open()
    bot = Maker(registry, tmp_path / "made")
    bot.adapter()
    bot.adapter()
    app = create_app(registry, pages=False, failures=Failures(most=1_000_000))
    token = registry.identity.issue("ada", TeamRole.ADMIN).secret
    return schemathesis.openapi.from_asgi(f"{PREFIX}/openapi.json", app), token


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_that_follows_from_the_description_meets_a_fault(
    served: tuple[Any, str], mode: GenerationMode
) -> None:
    description, token = served
    asked = 0
    for found in description.get_all_operations():
        operation = found.ok()
        if not any(part in operation.path for part in _LEFT_OUT):
            _ask(operation, mode, token)
            asked += 1
    assert asked > 100


def _ask(operation: Any, mode: GenerationMode, token: str) -> None:
    @settings(
        max_examples=_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call(headers={"authorization": f"Bearer {token}"})
        case.validate_response(answer, checks=_CHECKS)

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing that this operation takes can be wrong
