"""The process that runs an app's deployed handlers: ``python -P -m triggers.handling APP``."""

from __future__ import annotations

import asyncio
import signal
import sys

from registry.apps.deploying import CODE
from registry.apps.loading import LoadedFile, load_file
from registry.connection import connect
from registry.errors import InvalidApp, PodiumError
from registry.protocol import Registry
from registry.values import AppObject
from triggers.connection import Connection, Role, find_address
from triggers.consumer import run_consumer
from triggers.deployed import app_consumer
from triggers.jetstream import JetStreamBus
from triggers.served import Served, serve_subscription
from triggers.subscription import Subscription


def main(app: str) -> int:
    """Serve the deployed handlers of ``app`` until SIGTERM; the exit status."""
    registry = connect(actor="system:events")
    try:
        served = deployed_handlers(registry, app)
        asyncio.run(serve(registry, app_consumer(app), served))
    except PodiumError as error:
        _say(f"{error.message} {error.remedy}")
        return error.exit_status
    finally:
        registry.close()
    return 0


def deployed_handlers(registry: Registry, app: str) -> list[Served]:
    """The deployed subscriptions of an app, with the handlers from its deployed code.

    Raises:
        InvalidApp: the code does not have a handler that was deployed.
    """
    code = registry.apps.objects(CODE, app=app)
    if not code:
        raise InvalidApp(f"No code of app '{app}' is deployed.", remedy="Run 'podium deploy FILE'.")
    loaded = load_bundle(registry, code[0])
    handlers = {s.name: s for s in subscriptions_of(loaded)}
    declared = registry.apps.objects(Subscription.deployable, app=app)
    missing = [each.name for each in declared if each.name not in handlers]
    if missing:
        raise InvalidApp(
            f"The code of app '{app}' has no subscription '{missing[0]}'.", remedy="Deploy its file again."
        )
    return [serve_subscription(app, handlers[each.name], each.changed_at) for each in declared]


def load_bundle(registry: Registry, code: AppObject) -> LoadedFile:
    """The file that was deployed, with what it imports, as a module."""
    digest = str(code.body["bundle"])
    folder = registry.settings.home / "apps" / code.app / digest.removeprefix("sha256:")[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            registry.catalog.materialise(digest, folder)
        except PodiumError:
            if not folder.exists():  # else another process was faster
                raise
    return load_file(folder / str(code.body["file"]), root=folder)


def subscriptions_of(loaded: LoadedFile) -> list[Subscription]:
    """The subscriptions that a file declares."""
    return [each for each in loaded.deployables if isinstance(each, Subscription)]


async def serve(registry: Registry, consumer: str, served: list[Served]) -> None:
    """Run a consumer of these until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    bus = JetStreamBus(Connection(lambda: find_address(registry.settings, Role.READER), name=consumer))
    try:
        await run_consumer(registry, bus, consumer, lambda: served, stop, _Reports())
    finally:
        await bus.close()


class _Reports:
    """Prints a line when it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, line: str, *, healthy: bool = True) -> None:
        if line != self._last:
            self._last = line
            _say(line)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Run as a script this is another module than the one that `triggers.deployed` imports; it has no state.
    sys.exit(main(sys.argv[1]))
