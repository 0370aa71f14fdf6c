"""The oracle notices when deliveries are broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from registry.crashpoints import reached
from registry.database.statements import sql
from registry.deliveries import Arrival
from registry.protocol import Registry
from registry.store import deliveries, session
from registry.store.deliveries import StoredDeliveries
from registry.values import Event
from tests.simulation.delivering import play
from tests.simulation.mutants import Patch, caught
from tests.simulation.world import ROUGH, Faults, World
from triggers.context import Context
from triggers.executor import Executor


def rough(seed: int) -> World:
    return play(seed, faults=ROUGH)


def paused(seed: int) -> World:
    return play(seed, faults=Faults(pause=0.05), consumers=3)


def end_a_delivery_apart_from_its_effect(patch: Patch) -> None:
    """Two transactions where there must be one."""

    @contextmanager
    def apart(self: Context) -> Iterator[Registry]:
        with self.registry.transaction():
            yield self.registry

    patch.setattr(Context, "transaction", apart)


def check_no_epoch(patch: Patch) -> None:
    """A consumer that was thought dead still writes."""
    patch.setattr(session, "check_authority", lambda *_: None)
    unchecked = deliveries._END.text.replace("AND state = 'running' AND epoch = :epoch", "")
    patch.setattr(deliveries, "_END", sql(unchecked))


def move_the_cursor_before_the_deliveries(patch: Patch) -> None:
    """An event counts as seen before what follows from it is written."""
    record = StoredDeliveries.record

    def seen_first(
        self: StoredDeliveries, consumer: str, arrivals: Sequence[Arrival], *, upto: Event, **options: Any
    ) -> None:
        if arrivals:
            with self._session.database.transaction() as transaction:
                transaction.execute(deliveries._ADVANCE, consumer=consumer, sequence=upto.sequence)
                transaction._cursor.execute("COMMIT")
                transaction._cursor.execute("BEGIN IMMEDIATE")
                reached("mutant.cursor_moved")
        record(self, consumer, arrivals, upto=upto, **options)

    patch.setattr(StoredDeliveries, "record", seen_first)


def take_deliveries_out_of_turn(patch: Patch) -> None:
    """A later event of an artifact does not wait for an earlier one."""
    out_of_turn = deliveries._TURN.text.replace(f"AND {' '.join(deliveries._FIRST.split())}", "")
    assert out_of_turn != deliveries._TURN.text
    patch.setattr(deliveries, "_TURN", sql(out_of_turn))


def take_nothing_over(patch: Patch) -> None:
    """What ran at a leader that died runs for ever."""
    nothing = deliveries._LEFT.text.replace("d.epoch < :epoch", "d.epoch < :epoch - 999")
    assert nothing != deliveries._LEFT.text
    patch.setattr(deliveries, "_LEFT", sql(nothing))


def forget_claims_without_an_answer(patch: Patch) -> None:
    """The commit of a claim whose answer was lost is taken for one that did not happen."""

    async def forget(self: Executor) -> None:
        self._in_doubt = False

    patch.setattr(Executor, "_start_unanswered", forget)


@pytest.mark.parametrize(
    ("mutate", "schedule", "first"),  # the schedules before the first are known not to come to it
    [
        (end_a_delivery_apart_from_its_effect, rough, 0),
        (check_no_epoch, paused, 25),
        (move_the_cursor_before_the_deliveries, rough, 0),
        (take_deliveries_out_of_turn, rough, 0),
        (take_nothing_over, rough, 0),
        (forget_claims_without_an_answer, rough, 165),
    ],
)
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[Patch], None],
    schedule: Callable[[int], World],
    first: int,
) -> None:
    mutate(monkeypatch)
    caught(schedule, range(first, 300))
