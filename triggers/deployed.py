"""What is deployed, as consumers serve it: triggers here, handlers of apps in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from registry.apps.deploying import CODE
from registry.errors import PodiumError
from registry.protocol import Registry
from registry.services import Report
from registry.values import AppObject
from triggers import guarded
from triggers.served import Served, serve_trigger
from triggers.subscription import Subscription
from triggers.tasks import wait_for_event
from triggers.trigger import Trigger

log = logging.getLogger(__name__)

TRIGGERS = "triggers"  # the consumer of all deployed triggers

_LOOK_SECONDS = 1.0
_STOP_SECONDS = 15.0
_RESTART_SECONDS = (0.5, 2.0, 5.0, 15.0, 60.0)


class DeployedTriggers:
    """Finds the deployed triggers; gives the same object while nothing has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: tuple[object, ...] | None = None
        self._served: Sequence[Served] = ()

    def __call__(self) -> Sequence[Served]:
        triggers = self._registry.apps.objects(Trigger.deployable)
        code = self._registry.apps.objects(CODE) if triggers else []
        seen = tuple((o.app, o.kind, o.name, o.revision) for o in (*triggers, *code))
        if seen != self._seen:
            bundles = {each.app: each for each in code}
            found = (_readable(trigger, bundles.get(trigger.app)) for trigger in triggers)
            self._seen, self._served = seen, [each for each in found if each is not None]
        return self._served


def _readable(trigger: AppObject, code: AppObject | None) -> Served | None:
    try:
        return serve_trigger(trigger, code)
    except (PodiumError, KeyError, ValueError) as error:
        # One that a newer podium has deployed must not keep the others from working.
        log.error("trigger %s/%s cannot be read: %s", trigger.app, trigger.name, error)
        return None


def app_consumer(app: str) -> str:
    """The name of the consumer of an app's deployed handlers."""
    return f"app/{app}"


@dataclass(frozen=True)
class AppCode:
    """An app with deployed handlers: which code, and which declarations."""

    app: str
    bundle: str
    revisions: tuple[tuple[str, int], ...]


def apps_with_handlers(registry: Registry) -> Mapping[str, AppCode]:
    """Every app that has deployed subscriptions and the code for them."""
    code = {each.app: str(each.body["bundle"]) for each in registry.apps.objects(CODE)}
    declared: dict[str, list[tuple[str, int]]] = {}
    for each in registry.apps.objects(Subscription.deployable):
        declared.setdefault(each.app, []).append((each.name, each.revision))
    return {app: AppCode(app, code[app], tuple(names)) for app, names in declared.items() if app in code}


@dataclass
class _Child:
    code: AppCode
    process: asyncio.subprocess.Process


class AppProcesses:
    """Keeps one process for each app with handlers: a handler that crashes takes only its own app along."""

    def __init__(self, registry: Registry, report: Report) -> None:
        self._registry = registry
        self._report = report
        self._children: dict[str, _Child] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Start, replace and end processes as apps are deployed, until ``stop``."""
        try:
            while not stop.is_set():
                wanted = await asyncio.to_thread(apps_with_handlers, self._registry)
                await self._match(wanted)
                await wait_for_event(stop, _LOOK_SECONDS)
        finally:
            await asyncio.gather(*(self._end(child) for child in self._children.values()))

    async def _match(self, wanted: Mapping[str, AppCode]) -> None:
        for app, child in list(self._children.items()):
            if child.process.returncode is not None:
                self._note_end(app, child)
            elif wanted.get(app) != child.code:
                await self._end(child)
                del self._children[app]
                if app not in wanted:
                    # Nobody is left who would stop what is still on its way to the removed handlers.
                    serve = self._registry.deliveries.serve
                    await asyncio.to_thread(serve, app_consumer(app), {})
        now = asyncio.get_running_loop().time()
        for app, code in wanted.items():
            if app not in self._children and now >= self._not_before.get(app, 0):
                self._children[app] = _Child(code, await self._start(app))
        self._say(wanted)

    def _note_end(self, app: str, child: _Child) -> None:
        failures = self._failures[app] = self._failures.get(app, 0) + 1
        pause = _RESTART_SECONDS[min(failures - 1, len(_RESTART_SECONDS) - 1)]
        self._not_before[app] = asyncio.get_running_loop().time() + pause
        log.error("the process of app %s ended with status %s", app, child.process.returncode)
        del self._children[app]

    def _say(self, wanted: Mapping[str, AppCode]) -> None:
        missing = sorted(wanted.keys() - self._children.keys())
        if missing:
            where = self._registry.settings.home / "logs"
            self._report(f"handlers of {', '.join(missing)} ended; see {where}", healthy=False)
        else:
            running = [f"{app} ({len(code.revisions)})" for app, code in sorted(wanted.items())]
            self._report(f"handlers of {', '.join(running)}" if running else "no handlers deployed")

    async def _start(self, app: str) -> asyncio.subprocess.Process:
        home = self._registry.settings.home
        (home / "logs").mkdir(parents=True, exist_ok=True)
        with (home / "logs" / f"app-{app}.log").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guarded.__file__, str(os.getpid())),
                *(sys.executable, "-P", "-m", "triggers.handling", app),
                cwd=home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for podium, which ends it in order
            )

    async def _end(self, child: _Child) -> None:
        if child.process.returncode is None:
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await child.process.wait()
        except TimeoutError:
            child.process.kill()
            await child.process.wait()
