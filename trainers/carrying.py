"""One run as its worker carries it out: its processes, its log, its lease, and what is written at its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from registry.crashpoints import reached
from registry.errors import DatabaseUnavailable, PodiumError, StaleAuthority
from registry.protocol import Registry
from registry.runs import Cause, Claim, Run, RunError
from registry.settings import Settings
from registry.values import Lease
from trainers.devices import Devices
from trainers.errors import ImagePullBackOffError
from trainers.execution import Ended, Execution, Executor, Limits
from trainers.logs import BoundedLog
from trainers.outcome import describe, masked, read_loaded, read_outcome
from trainers.patience import patiently
from trainers.secrets import Mask, find_secrets
from trainers.settling import End, Finish, settle

T = TypeVar("T")

#: Seconds between shipments of what a run prints to its log.
_SHIP = 0.5


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a worker gives to all runs that it carries out."""

    registry: Registry
    executor: Executor
    folder: Path
    grace: float  # seconds that a task has to end by itself
    report: Callable[[str], None]
    stopped_for: Cause  # why an attempt ends when the worker is stopped
    environment: Callable[[], Mapping[str, Any]]  # versions and hardware that it runs with
    devices: Devices
    loaded: Callable[[Collection[str]], Awaitable[None]]  # told which heavy packages a run has loaded
    give_up: Callable[[], bool]  # whether to wait no longer for a database that does not answer


class Carried:
    """A run that is carried out now. ``lease`` and ``confirmed`` are kept up by the worker's beat."""

    def __init__(self, claim: Claim, circumstances: Circumstances, confirmed: float) -> None:
        self.claim = claim
        self.lease = claim.lease
        self._confirmed = confirmed  # boot clock until which the processes may live
        self._around = circumstances
        self._registry = circumstances.registry.acting(claim.origin)
        self._execution: Execution | None = None
        self._log = BoundedLog()
        self._mask = Mask(())
        self._unsent = b""  # taken from the log, and not stored yet
        self._all_printed = asyncio.Event()
        self._lost = False
        self._stopping = False
        self._ended = False

    async def carry(self) -> None:
        """Carry it out, from its first process to what is written at its end."""
        self._around.report(self._line(f"{self.claim.run.task}, attempt {self.claim.attempt}"))
        folder = self._around.folder / f"{self.claim.run.id}-{self.claim.attempt}"
        shipping = asyncio.create_task(self._ship())
        try:
            decided = await self._execute(folder)
            self._all_printed.set()
            await shipping
            if not self._lost:
                ended = await self._write(decided)
                self._around.report(self._line(_state(ended)))
        except StaleAuthority:
            self._lost = True
        except DatabaseUnavailable as error:
            self._around.report(self._line(f"left, because its end cannot be written: {error.message}"))
        finally:
            self._ended = True
            shipping.cancel()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if self._lost:
                self._around.report(self._line("its lease has passed on, and nothing more was written"))

    async def confirm(self, lease: Lease | None, until: float) -> None:
        """What a beat said: the lease stands, and the processes may live until then; or it is another's."""
        if lease is not None:
            self.lease, self._confirmed = lease, until
            if self._execution is not None:
                await self._execution.confirm(until)
        elif not self._ended:
            self._lose()

    async def stop(self) -> None:
        """Ask the task to end."""
        self._stopping = True
        if self._execution is not None:
            await self._execution.stop(self._around.grace)

    def _lose(self) -> None:
        """Whatever it does from here on is in vain, and may be in the way of the next attempt."""
        self._lost = True
        if self._execution is not None:
            self._execution.kill()

    async def _execute(self, folder: Path) -> Finish | End:
        try:
            ended = await self._run_processes(folder)
            await self._around.loaded(read_loaded(folder))
            self._log.add(self._mask.close())
            said = masked(read_outcome(folder), self._mask)
            return settle(ended, said, stopped_for=self._around.stopped_for)
        except ImagePullBackOffError as error:
            return End(*describe(error))
        except OSError as error:  # no process, no room on the disk
            failed = RunError(
                type(error).__name__,
                f"It could not be carried out: {error}.",
                remedy="See the worker's machine.",
            )
            return End(Cause.CRASHED, failed)

    async def _run_processes(self, folder: Path) -> Ended:
        folder.mkdir()
        await self._note()
        run = self.claim.run
        secrets = await asyncio.to_thread(find_secrets, run.conditions.secrets, os.environ)
        self._mask = Mask(secrets.values())
        environment = await asyncio.to_thread(self._environment)
        with self._around.devices.lease(run.resources) as devices:
            self._execution = await self._around.executor.start(
                _command(self.claim, folder),
                folder=folder,
                environment=environment | devices | secrets,
                deadline=self._confirmed,
                sink=self._take,
                limits=limits_of(run, datetime.now(UTC), self._around.grace),
            )
            if self._stopping:
                await self._execution.stop(self._around.grace)
            ended = await self._execution.wait()
        reached("run.ended")
        return ended

    def _environment(self) -> dict[str, str]:
        settings = self._around.registry.settings
        environment = {**child_environment(settings), **self.claim.run.conditions.env}
        if settings.server is not None:  # a task gets a token for its own run, not the worker's
            environment["PODIUM_TOKEN"] = self._registry.identity.for_run(self.claim.run.id).secret
        return environment

    def _take(self, printed: bytes) -> None:
        self._log.add(self._mask.feed(printed))

    async def _note(self) -> None:
        """Record what it runs with; not worth waiting for a database that does not answer."""
        with contextlib.suppress(DatabaseUnavailable):
            await asyncio.to_thread(
                lambda: self._registry.runs.note(
                    self.claim.run.id, self.claim.attempt, self._around.environment()
                )
            )

    # What it prints

    async def _ship(self) -> None:
        """Bring to the log what was printed, until there is no more or the lease is lost."""
        while not self._all_printed.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._all_printed.wait(), _SHIP)
            self._unsent += self._log.take()
            try:
                await asyncio.to_thread(self._send)
            except DatabaseUnavailable:
                continue  # it is kept, and sent with the next
            except StaleAuthority:
                self._lose()
                return

    def _send(self) -> None:
        if data := self._unsent:
            self._registry.runs.append_log(self.claim.run.id, self.claim.attempt, data)
            self._unsent = self._unsent[len(data) :]

    # What is written at the end

    async def _write(self, decided: Finish | End) -> Run:
        """The log first: when the lease is free nothing may be written any more."""
        self._unsent += self._log.close()
        await self._patiently(self._send)
        if isinstance(decided, End):
            return await self._end(decided)
        run, outcome = self.claim.run.id, decided.outcome
        try:
            ended = await self._patiently(
                lambda: self._registry.runs.finish(run, outcome.outputs, result=outcome.result)
            )
        except (StaleAuthority, DatabaseUnavailable):
            raise
        except PodiumError as error:  # what it made was refused, such as a report that judges something else
            refused = RunError(type(error).__name__, error.message, remedy=error.remedy)
            return await self._end(End(Cause.INVALID, refused))
        reached("run.finished")
        return ended

    async def _end(self, decided: End) -> Run:
        run = self.claim.run.id
        return await self._patiently(lambda: self._registry.runs.end(run, decided.cause, decided.error))

    async def _patiently(self, act: Callable[[], T]) -> T:
        return await patiently(act, give_up=lambda: self._lost or self._around.give_up())

    def _line(self, said: str) -> str:
        return f"run {self.claim.run.id}: {said}"


def _state(run: Run) -> str:
    return f"{run.state}: {run.error.type}: {run.error.message}" if run.error else run.state.value


def limits_of(run: Run, now: datetime, grace: float) -> Limits:
    """What an attempt that begins ``now`` is kept within."""
    return Limits(
        seconds=run.conditions.allowed(run.queued_at, now),
        grace=grace,
        memory=int(run.resources.memory) or None,
    )


def _command(claim: Claim, folder: Path) -> list[str]:
    lease = claim.lease
    return [
        *(sys.executable, "-P", "-m", "trainers.child"),
        *(claim.run.id, lease.name, str(lease.epoch), str(folder)),
    ]


def child_environment(settings: Settings) -> dict[str, str]:
    """This process's environment, with the settings that this process really has."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is not None:
            secret = getattr(value, "get_secret_value", None)
            environment[f"PODIUM_{name.upper()}"] = secret() if secret else str(value)
    return environment
