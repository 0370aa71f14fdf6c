"""`podium up`: everything one machine needs, in one process, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from registry.cli.amount import AMOUNT
from registry.cli.connecting import connected
from registry.cli.output import Output, with_output
from registry.errors import InvalidInput, PodiumError
from registry.protocol import Registry
from registry.services import GROUP, Report, Service
from registry.suggesting import did_you_mean

_RESTART_SECONDS = 2.0
_STOP_SECONDS = 30.0


@click.command()
@click.option("--cpu", type=AMOUNT, help="CPU cores that runs on this machine may take together.")
@click.option("--memory", help="Memory that runs may take together, such as 24Gi.")
@click.option("--gpu", help="GPUs that runs may take, such as L4:1.")
@click.option(
    "--without",
    multiple=True,
    metavar="SERVICE",
    help="Leave a service out: events, http, reaper, worker or serving.",
)
@with_output
def up(out: Output, cpu: float | None, memory: str | None, gpu: str | None, without: tuple[str, ...]) -> None:
    """Run NATS, the relay, subscriptions, a worker and serving on this machine.

    Ctrl-C stops all of it cleanly; what was going on continues at the next start. A database server that is
    away is waited for.
    """
    options = {"cpu": cpu, "memory": memory, "gpu": gpu}
    services = {name: entry.load() for name, entry in _services(without).items()}
    board = _Board(out)
    registry = connected(out, lambda line: board.say("podium", line, healthy=False))
    board.say("podium", f"database {registry.settings.home} ({registry.database_id})")
    asyncio.run(_run_all(registry, services, board, options))
    board.say("podium", "stopped")


def _services(without: tuple[str, ...]) -> dict[str, EntryPoint]:
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in without:
        if name not in found:
            raise InvalidInput(
                f"There is no service '{name[:40]}'.",
                remedy=did_you_mean(name, found, f"Services are {', '.join(sorted(found))}."),
            )
    return {name: entry for name, entry in found.items() if name not in without}


class _Board:
    """The status of each service, a line each time it changes."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._lines: dict[str, str] = {}

    def say(self, service: str, line: str, *, healthy: bool = True) -> None:
        if self._lines.get(service) == line:
            return
        self._lines[service] = line
        try:
            self._print(service, line, healthy)
        except OSError:  # who read this is gone, and everything else goes on
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _print(self, service: str, line: str, healthy: bool) -> None:
        if self._out.as_json:
            click.echo(json.dumps({"service": service, "status": line, "healthy": healthy}))
        else:
            mark = click.style("ok ", fg="green") if healthy else click.style("-- ", fg="yellow")
            click.echo(f"{time.strftime('%H:%M:%S')} {mark} {service:<9} {line}")
        sys.stdout.flush()

    def report_of(self, service: str) -> Report:
        return lambda line, *, healthy=True: self.say(service, line, healthy=healthy)


async def _run_all(
    registry: Registry, services: Mapping[str, Service], board: _Board, options: Mapping[str, Any]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop, board)
    tasks = [
        asyncio.create_task(_keep_running(name, service, registry, stop, board, options))
        for name, service in services.items()
    ]
    await stop.wait()
    late = (await asyncio.wait(tasks, timeout=_STOP_SECONDS))[1] if tasks else set()
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def _on_signal(stop: asyncio.Event, board: _Board) -> None:
    stop.set()
    board.say("podium", "stopping")


async def _keep_running(
    name: str,
    service: Service,
    registry: Registry,
    stop: asyncio.Event,
    board: _Board,
    options: Mapping[str, Any],
) -> None:
    """Start a service again when it ends by an error: one part that fails does not take the others along."""
    report = board.report_of(name)
    while not stop.is_set():
        try:
            await service(registry, stop, report, options)
        except PodiumError as error:
            report(f"{error.message} {error.remedy} Trying again.", healthy=False)
        except Exception as error:
            report(f"{type(error).__name__}: {error}. Trying again.", healthy=False)
        try:
            await asyncio.wait_for(stop.wait(), _RESTART_SECONDS)
        except TimeoutError:
            continue
