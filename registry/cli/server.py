"""`podium server`: the HTTP server alone, for a machine that does nothing else."""

from __future__ import annotations

import signal
import threading

import click

from registry.cli.connecting import connected
from registry.cli.output import Output, with_output
from registry.errors import InvalidInput, Unavailable


@click.command()
@click.option("--host", help="Address to listen on; 127.0.0.1 unless PODIUM_LISTEN says otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 is any that is free.")
@with_output
def server(out: Output, host: str | None, port: int | None) -> None:
    """Serve the registry over HTTP until Ctrl-C: for a team whose members have tokens and no database.

    Put a proxy that speaks TLS before it. 'podium up' serves as well.
    """
    if out.settings.server is not None:
        raise InvalidInput(
            f"PODIUM_URL names the server {out.settings.server}, and a server needs a database.",
            remedy="Set PODIUM_URL to sqlite:///PATH or postgresql://..., or unset it.",
        )
    try:
        from registry.http.app import create_app
        from registry.http.serving import Running, bound, is_loopback
    except ImportError as error:
        raise Unavailable(
            f"The server is not installed: there is no {error.name}.", remedy="pip install 'podium[server]'"
        ) from error
    from registry.store.stored import StoredRegistry

    registry = connected(out, out.note)
    assert isinstance(registry, StoredRegistry)
    usual_host, usual_port = out.settings.listen_address
    listener = bound(host or usual_host, usual_port if port is None else port)
    app = create_app(registry)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with Running(app, listener) as running:
        link = f"{running.url}/login?key={app.state.links.make()}"
        shown = link if is_loopback(host or usual_host) else running.url
        out.show({"url": running.url, "login": shown}, lambda: f"Serving at {shown}")
        while running.alive and not ended.wait(0.5):
            pass
