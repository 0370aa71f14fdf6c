"""How subscriptions are doing, counted from the rows of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.deliveries import OPEN, DeliveryState, SubscriptionStatus

_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN))
_SERVED = sql("""
    SELECT s.consumer, s.name, s.since, c.sequence, (SELECT event_sequence FROM podium WHERE one = 1)
    FROM subscription s JOIN consumer c ON c.name = s.consumer ORDER BY s.name, s.consumer
""")
_COUNTS = sql(f"""
    SELECT consumer, subscription, state, COUNT(*), MIN(created_at) FROM delivery
    WHERE state IN ({_OPEN}, 'dead') GROUP BY consumer, subscription, state
""")


def statuses(reader: Transaction) -> list[SubscriptionStatus]:
    """Every subscription that is served, by name."""
    served, counted = reader.all(_SERVED), reader.all(_COUNTS)
    return [_status(row, [count[2:] for count in counted if count[:2] == row[:2]]) for row in served]


def _status(row: Row, counts: Sequence[Row]) -> SubscriptionStatus:
    """``counts`` are the states of its deliveries, each with how many, and since when."""
    consumer, name, since, read, newest = row
    count = {DeliveryState(state): int(number) for state, number, _ in counts}
    began = [to_time(at) for state, _, at in counts if DeliveryState(state) in OPEN]
    return SubscriptionStatus(
        consumer=consumer,
        name=name,
        since=since,
        read=read,
        newest=newest,
        pending=count.get(DeliveryState.PENDING, 0),
        running=count.get(DeliveryState.RUNNING, 0),
        held=count.get(DeliveryState.HELD, 0),
        dead=count.get(DeliveryState.DEAD, 0),
        oldest=min(began, default=None),
    )
