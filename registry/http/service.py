"""The server as a part of `podium up`: the API and the pages, with a link that logs its owner in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from registry.errors import InvalidSetting
from registry.protocol import Registry
from registry.services import Report

_LOOK_SECONDS = 0.5


async def http(registry: Registry, stop: asyncio.Event, report: Report, options: Mapping[str, Any]) -> None:
    """Serve until ``stop``, at the address of the settings."""
    del options
    problem = _problem(registry)
    if problem is not None:
        report(problem)
        await stop.wait()
        return
    await _serve(registry, stop, report)


def _problem(registry: Registry) -> str | None:
    """Why there is nothing to serve, or no way to."""
    if registry.settings.server is not None:
        return f"not here: {registry.settings.server} serves this registry"
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        return "not installed: pip install 'podium[server]' for the API and the pages"
    return None


async def _serve(registry: Registry, stop: asyncio.Event, report: Report) -> None:
    from registry.http.app import create_app
    from registry.http.serving import Running, bound, is_loopback
    from registry.store.stored import StoredRegistry

    assert isinstance(registry, StoredRegistry)
    host, port = registry.settings.listen_address
    try:
        listener = bound(host, port)
    except InvalidSetting:
        if registry.settings.listen is not None:
            raise
        listener = bound(host, 0)  # another podium has the usual port
    app = await asyncio.to_thread(create_app, registry)
    running = await asyncio.to_thread(Running, app, listener)
    try:
        report(_said(running.url, app.state.links.make() if is_loopback(host) else ""))
        while running.alive and not stop.is_set():
            await _wait(stop, _LOOK_SECONDS)
    finally:
        await asyncio.to_thread(running.stop)


def _said(url: str, key: str) -> str:
    """Where it serves; on this machine alone, with the link that logs in whoever opens it first."""
    return f"Open {url}/login?key={key} in a browser (good once)" if key else f"serving at {url}"


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
