"""Executing deliveries from the database: in order per subscription and key, retried, under a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from registry.crashpoints import reached
from registry.deliveries import Delivery, DeliveryState
from registry.errors import (
    AliasNotFound,
    ArtifactNotFound,
    DatabaseUnavailable,
    NotFound,
    StaleAuthority,
)
from registry.protocol import Registry
from registry.values import Event, Lease, Origin
from triggers.calls import Threads
from triggers.causation import actors_behind
from triggers.context import Context
from triggers.errors import SelfStart
from triggers.outcome import Ending, abandoned, ending_after
from triggers.received import received
from triggers.served import Served
from triggers.tasks import wait_for_event

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0  # what other processes ask for (replays, retries, releases) is seen after this long
_MOST_RUNNING = 1000  # more than all consumers together run at a time
_BACKOFF = wait_exponential(0.1, max=5)
_GIVE_UP = stop_after_delay(60)


class Executor:
    """Runs the deliveries of one consumer while its lease holds."""

    def __init__(
        self,
        registry: Registry,
        consumer: str,
        lease: Lease,
        served: Callable[[], Mapping[str, Served]],
        *,
        calls: Threads,
        width: int = 8,
    ) -> None:
        self._registry = registry  # acts under the lease
        self._consumer = consumer
        self._lease = lease
        self._served = served
        self._calls = calls
        self._pool = ThreadPoolExecutor(width, thread_name_prefix=f"podium-handlers-{consumer}")
        self._free = width
        self._alone = False  # what runs may have killed its process, and runs with nothing beside it
        self._taking_over = True  # an earlier holder of the lease may have left something running
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._started: set[str] = set()  # ids of deliveries that run here
        self._claiming = asyncio.Lock()
        self._in_doubt = False  # a claim may have been committed whose answer was lost

    async def start_claimed_by(self, claim: Callable[[int], Sequence[Delivery]]) -> None:
        """Run what ``claim``, a call of the registry, claims; it is told how many more can be started now.

        Raises:
            DatabaseUnavailable: what was claimed all the same is found and run later.
        """
        async with self._claiming:
            free = self._room
            try:
                claimed = await self._calls(lambda: claim(free))
            except DatabaseUnavailable:
                self._in_doubt = True
                self.look()
                raise
            self._start(claimed)

    async def _start_unanswered(self) -> None:
        """Run what was claimed under the lease and does not run: nobody else would while the lease holds."""
        async with self._claiming:  # no claim is on its way
            started = frozenset(self._started)
            running = await self._calls(
                lambda: self._registry.deliveries.find(state=DeliveryState.RUNNING, limit=_MOST_RUNNING)
            )
            ours = [d for d in running if (d.consumer, d.epoch) == (self._consumer, self._lease.epoch)]
            self._start([d for d in ours if d.id not in started])
            self._in_doubt = False

    def _start(self, claimed: Sequence[Delivery]) -> None:
        self._alone = self._alone or any(delivery.alone for delivery in claimed)
        for delivery in claimed:
            self._free -= 1
            self._started.add(delivery.id)
            task = asyncio.create_task(self._run(delivery))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    @property
    def _room(self) -> int:
        """How many more may be started now."""
        return 0 if self._alone else self._free

    def look(self) -> None:
        """Look for work soon: something has changed."""
        self._news.set()

    async def run(self) -> None:
        """Start what is due, until cancelled."""
        due: float | None = 0.0  # what an earlier holder of the lease left running is taken over at once
        try:
            while True:
                self._news.clear()
                if self._failure is not None:
                    raise self._failure
                try:
                    if self._in_doubt:
                        await self._start_unanswered()
                    found = True
                    if self._taking_over or (due is not None and due <= 0):
                        found = await self._start_due()
                    due = await self._calls(self._due)
                except DatabaseUnavailable as error:
                    log.warning("deliveries wait: %s", error)
                    due = 0.0
                    await wait_for_event(self._news, _LOOK_SECONDS)
                if not found or due is None or due > 0 or self._room <= 0:
                    pause = due if due is not None and due > 0 else _LOOK_SECONDS
                    await wait_for_event(self._news, min(_LOOK_SECONDS, pause))
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def drain(self, timeout: float) -> None:
        """Wait until the handlers that run have ended, but not longer than ``timeout`` seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)

    async def _start_due(self) -> bool:
        """Start what may be started; whether there was anything, or no room for it."""
        if self._room <= 0:
            return True
        before, was_idle = len(self._started), not self._started
        await self.start_claimed_by(self._claim)
        if was_idle and not self._alone:
            self._taking_over = False  # else it would have come before all others
        return len(self._started) > before

    def _claim(self, free: int) -> Sequence[Delivery]:
        if free <= 0:
            return []
        claimed = self._registry.deliveries.claim(self._consumer, epoch=self._lease.epoch, limit=free)
        if claimed:
            reached("delivery.claimed")
        return claimed

    def _due(self) -> float | None:
        """Seconds until something is due; what waits for a released alias is made pending on the way."""
        for alias in self._registry.deliveries.waited_for(self._consumer):
            if not self._is_held(alias):
                self._registry.deliveries.resume(self._consumer, alias)
        # Looking costs less than claiming, which takes the write lock.
        return self._registry.deliveries.next_due(self._consumer)

    def _is_held(self, alias: str) -> bool:
        artifact, _, name = alias.partition(":")
        try:
            return self._registry.promotions.get(artifact, name).held_by is not None
        except (AliasNotFound, ArtifactNotFound):
            return False

    async def _run(self, delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, self._handle, delivery)
        except asyncio.CancelledError:
            pass  # it had not begun when the executor was closed; the next holder of the lease takes it up
        except Exception as error:
            # Its end could not be written. Under the next epoch of the lease it is taken up again.
            self._failure = error
        finally:
            self._free += 1
            self._alone = self._alone and not delivery.alone
            self._started.discard(delivery.id)
            self.look()

    def _handle(self, delivery: Delivery) -> None:
        """One attempt, from its claim to its end, in a thread of the pool."""
        served = self._served().get(delivery.subscription)
        if served is None:
            self._end(delivery, Ending(DeliveryState.STOPPED, error="It is no longer deployed."))
            return
        given_up = abandoned(delivery, served.terms.retry)
        if given_up is not None:
            self._end(delivery, given_up)
            return
        context = Context(self._acting_for(served, delivery.event), delivery)
        error = self._attempt(served, context)
        reached("delivery.handled")
        if context.settled:
            if error is not None:
                log.error("%s raised after its transaction: %s", served.name, error)
            return
        self._end(delivery, ending_after(error, delivery, served.terms.retry))

    def _attempt(self, served: Served, context: Context) -> BaseException | None:
        try:
            self._refuse_self_start(served, context.delivery)
            served.handle(received(context.delivery.event), context)
        except (Exception, SystemExit) as error:  # its delivery's affair, not the dispatcher's
            return error
        return None

    def _acting_for(self, served: Served, event: Event) -> Registry:
        origin = Origin(
            actor=served.actor,
            authority=self._lease.authority,
            causation=event.id,
            correlation=event.correlation or event.id,
        )
        return self._registry.acting(origin)

    def _refuse_self_start(self, served: Served, delivery: Delivery) -> None:
        event = delivery.event
        if delivery.replay or (event.causation is None and not event.actor.startswith("run:")):
            return  # a person asked for it, or it has no cause but a person
        if served.actor in actors_behind(event, self._event_of, self._asked_by):
            raise SelfStart(
                f"'{served.name}' would start itself: it is among the causes of event {event.id}.",
                remedy="Let its filter match less than what follows from it.",
            )

    def _event_of(self, event_id: str) -> Event | None:
        try:
            return self._registry.events.get(event_id)
        except NotFound:
            return None

    def _asked_by(self, run: str) -> tuple[str, str | None] | None:
        try:
            found = self._registry.runs.get(run)
        except NotFound:
            return None
        return found.actor, found.causation

    @retry(retry=retry_if_exception_type(DatabaseUnavailable), wait=_BACKOFF, stop=_GIVE_UP, reraise=True)
    def _end(self, delivery: Delivery, ending: Ending) -> None:
        try:
            self._registry.deliveries.end(
                delivery,
                ending.state,
                error=ending.error,
                delay=ending.delay,
                waits_for=ending.waits_for,
                counted=ending.counted,
            )
            reached("delivery.ended")
        except StaleAuthority:
            log.info("delivery %s was taken over", delivery.id)
