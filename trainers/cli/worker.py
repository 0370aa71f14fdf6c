"""`podium worker`: take queued runs on this machine."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import click

from registry.cli.amount import AMOUNT
from registry.cli.connecting import connected
from registry.cli.output import Output, with_output
from trainers.machine import capacity
from trainers.worker import run_worker


@click.command()
@click.option("--cpu", type=AMOUNT, help="Processors to offer; all unless given.")
@click.option("--memory", help="Memory to offer, such as 24Gi; all unless given.")
@click.option("--gpu", help="GPUs to offer, such as L4:1; all that are found unless given.")
@click.option("--pool", default="default", show_default=True, help="Whose runs to take.")
@click.option(
    "--grace", default=10.0, show_default=True, type=AMOUNT, help="Seconds that tasks have to end at a stop."
)
@with_output
def worker(
    out: Output, cpu: float | None, memory: str | None, gpu: str | None, pool: str, grace: float
) -> None:
    """Take queued runs that fit, each in child processes, until stopped.

    SIGTERM and Ctrl-C hand what runs back at once, and another worker takes it up.
    """

    def report(line: str) -> None:
        if out.as_json:
            click.echo(json.dumps({"worker": line}))
        else:
            click.echo(f"{time.strftime('%H:%M:%S')} {line}")

    registry = connected(out, report)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run_worker(registry, capacity(cpu, memory, gpu), stop, report, pool=pool, grace=grace)

    asyncio.run(work())
