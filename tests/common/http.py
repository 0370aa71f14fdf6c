"""One HTTP server for a test run, over the registry of whichever test runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from registry.http.app import create_app
from registry.http.serving import Running, bound
from registry.http.shell import Failures
from registry.identity.roles import TeamRole
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from tests.common.registries import Place, ServedPlace


class TestServer:
    """Serves one place after the other: making an app takes longer than most tests."""

    __test__ = False

    def __init__(self, home: Path) -> None:
        self._first = StoredRegistry.open(Settings(home=home))
        self._app = create_app(self._first, pages=False, failures=Failures(most=1_000_000))
        self._running = Running(self._app, bound("127.0.0.1", 0))

    def serve(self, place: Place, **changes: Any) -> ServedPlace:
        """The place as its clients see it, until the next; ``changes`` are settings of the server."""
        registry = place.open(**changes)
        _ = registry.files.blobs  # as the app does at its start
        self._app.state.performer.registry = registry
        self._app.state.tail.forget()
        token = registry.identity.issue("ada", TeamRole.ADMIN).secret
        return ServedPlace(place.settings, place.variables, url=self._running.url, token=token)

    def rest(self) -> None:
        """Let go of the last place."""
        self._app.state.performer.transactions.close()
        self._app.state.performer.registry = self._first

    def close(self) -> None:
        self._running.stop()
        self._first.close()
