"""What only a run itself may write, and only while an attempt of it runs."""

from __future__ import annotations

from registry.database.engine import Transaction
from registry.database.statements import sql
from registry.errors import RunNotFound, RunRefused, StaleAuthority
from registry.runs import RunState, lease_name
from registry.store.session import Session

_RUNNING = sql("SELECT state, attempts FROM run WHERE id = :run {lock}")


def require_own(session: Session, run: str, message: str, remedy: str) -> None:
    """Raise `RunRefused` with these words unless the session acts with the run's authority."""
    authority = session.origin.authority
    if authority is None or authority.lease != lease_name(run):
        raise RunRefused(message, remedy=remedy)


def running_attempt(transaction: Transaction, run: str) -> int:
    """The attempt that runs. The run's row is locked, so that numbers are given out one after another.

    Raises:
        RunNotFound, StaleAuthority: there is no such run, or nobody carries it out now.
    """
    row = transaction.first(_RUNNING, run=run)
    if row is None:
        raise RunNotFound(f"There is no run '{run[:40]}'.", remedy="See 'podium runs list'.")
    if row[0] != RunState.RUNNING:
        raise StaleAuthority(
            f"Run {run} does not run any more: it is {row[0]}.", remedy="Nothing was written."
        )
    return int(row[1])
