"""Claims: how a worker takes the queued runs that it has room for."""

from __future__ import annotations

import json
from collections.abc import Iterator

from registry.database.engine import Row, Transaction
from registry.database.statements import sql
from registry.events import EventType
from registry.resources import Resources, choose
from registry.runs import Claim, lease_name
from registry.store import leases, run_rows
from registry.store.run_attempts import emit, fence
from registry.store.session import Session

_PAGE = 200

# A key to page by, because the first hundreds may all be runs that this worker can never do.
# Trees are done in the order in which they were asked for: else many would be begun and none be finished.
_QUEUED = sql("""
    SELECT turn, queued_at, id, resources FROM run
    WHERE state = 'queued' AND pool = :pool AND waits_for IS NULL
      AND (not_before IS NULL OR not_before <= :now)
      AND (CAST(:after_id AS TEXT) IS NULL OR (turn, queued_at, id) > (:after_turn, :after_at, :after_id))
    ORDER BY turn, queued_at, id LIMIT :limit
""")
# A private worker does one tree; its steps' own pools do not matter then.
_QUEUED_IN_TREE = sql("""
    SELECT turn, queued_at, id, resources FROM run
    WHERE state = 'queued' AND root = :only AND waits_for IS NULL AND (pool = :pool OR parent IS NOT NULL)
      AND (not_before IS NULL OR not_before <= :now)
      AND (CAST(:after_id AS TEXT) IS NULL OR (turn, queued_at, id) > (:after_turn, :after_at, :after_id))
    ORDER BY turn, queued_at, id LIMIT :limit
""")
_TAKE = sql("""
    UPDATE run SET state = 'running', attempts = attempts + 1, not_before = NULL,
                   started_at = COALESCE(started_at, :now)
    WHERE id = :run AND state = 'queued' RETURNING attempts
""")
_BEGIN_ATTEMPT = sql("""
    INSERT INTO attempt (run, number, worker, epoch, started_at, environment)
    VALUES (:run, :number, :worker, :epoch, :now, '{}')
""")


def claim(
    session: Session,
    worker: str,
    free: Resources,
    total: Resources,
    pool: str,
    only: str | None,
    limit: int,
    lenient: bool = False,
) -> list[Claim]:
    """Take the queued runs that fit, oldest first, each with its lease and a new attempt."""
    with session.reading() as reader:
        waiting = list(_waiting(session, reader, pool, only, total, limit, lenient))
    if not waiting:
        return []
    chosen = [waiting[i][0] for i in choose([demand for _, demand in waiting], free, total)][:limit]
    if not chosen:
        return []
    with session.writing() as transaction:
        taken = (_take(session, transaction, run, worker) for run in chosen)
        return [each for each in taken if each is not None]


def _waiting(
    session: Session,
    reader: Transaction,
    pool: str,
    only: str | None,
    total: Resources,
    limit: int,
    lenient: bool,
) -> Iterator[tuple[str, Resources]]:
    """The first queued runs that this worker could ever do, a few more than it may take; their demands."""
    wanted = 4 * limit
    after: Row = (session.now(), session.now(), None)
    while True:
        page = reader.all(
            _QUEUED_IN_TREE if only else _QUEUED,
            pool=pool,
            now=session.now(),
            after_turn=after[0],
            after_at=after[1],
            after_id=after[2],
            limit=_PAGE,
            **({"only": only} if only else {}),
        )
        for row in page:
            demand = Resources.from_json(json.loads(row[3]))
            demand = demand.within(total) if lenient else demand
            if not total.lacking(demand):
                yield row[2], demand
                wanted -= 1
        if len(page) < _PAGE or wanted <= 0:
            return
        after = page[-1][:3]


def _take(session: Session, transaction: Transaction, run_id: str, worker: str) -> Claim | None:
    now = session.now()
    # Who is first makes the row 'running'; the other waits here for that commit, and then finds no row.
    taken = transaction.first(_TAKE, run=run_id, now=now)
    if taken is None:
        return None
    lease = leases.acquire(transaction, lease_name(run_id), worker)
    if lease is None:
        # Only a reaper holds the lease of a queued run: it came too late, and was about to let go.
        lease = fence(transaction, lease_name(run_id), worker)
    transaction.execute(
        _BEGIN_ATTEMPT, run=run_id, number=taken[0], worker=worker, epoch=lease.epoch, now=now
    )
    run = run_rows.load(transaction, run_id)
    emit(session, transaction, EventType.RUN_STARTED, run)
    return Claim(run, int(taken[0]), lease)
