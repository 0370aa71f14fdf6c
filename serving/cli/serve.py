"""`podium serve`: one deployment, run in the foreground."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from registry.cli.output import Output, with_output
from registry.errors import InvalidInput
from registry.protocol import Registry
from serving.deployment import VLLM, Deployment
from serving.desiring import Declared
from serving.metrics_server import metrics_at
from serving.reconcile import run_controllers

__all__ = ["serve"]


def _pairs(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    names = {}
    for text in given:
        name, equals, reference = text.partition("=")
        if not equals or not name or not reference:
            raise click.BadParameter(f"'{text}' is not NAME=REF")
        if name in names:
            raise click.BadParameter(f"'{name}' is given twice")
        names[name] = reference
    return names


@click.command()
@click.option("--base", required=True, metavar="REF", help="The base model, such as smollm2:production.")
@click.option(
    "--name",
    "names",
    multiple=True,
    callback=_pairs,
    metavar="NAME=REF",
    help="A name that clients ask for, and what it follows; may be repeated.",
)
@click.option("--deployment", default="serve", show_default=True, help="What the deployment is called.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1; a free one unless given.")
@click.option("--replicas", type=int, default=1, show_default=True, help="Processes behind one address.")
@click.option(
    "--allow-downtime", is_flag=True, help="Stop the old process first where two do not fit at once."
)
@click.option("--max-lora-rank", type=int, default=16, show_default=True)
@click.option("--python", type=click.Path(dir_okay=False), help="Interpreter of an environment with vLLM.")
@click.option(
    "--engine-arg", "args", multiple=True, metavar="ARG", help="A further flag of vLLM; repeatable."
)
@with_output
def serve(
    out: Output,
    base: str,
    names: Mapping[str, str],
    deployment: str,
    port: int | None,
    replicas: int,
    allow_downtime: bool,
    max_lora_rank: int,
    python: str | None,
    args: tuple[str, ...],
) -> None:
    """Serve a base model and adapters on it, following their aliases, until Ctrl-C."""
    engine = VLLM(max_lora_rank=max_lora_rank, args=args, python=python and str(Path(python).absolute()))
    wanted = Deployment(
        deployment,
        base=base,
        serves=names,
        engine=engine,
        replicas=replicas,
        port=port,
        allow_downtime=allow_downtime,
    )
    _require_references(out.registry, wanted)
    asyncio.run(_run(out, wanted))


def _require_references(registry: Registry, wanted: Deployment) -> None:
    """Say at once that something is not there, rather than wait for it; raises `NotFound`, `InvalidInput`."""
    base = registry.catalog.resolve(wanted.base)
    if base.kind != "model":
        raise InvalidInput(
            f"{base.ref} is a version of kind {base.kind}, and a base must be a model.",
            remedy="Name the model with --base, and adapters with --name NAME=REF.",
        )
    for reference in wanted.serves.values():
        registry.catalog.resolve(reference)


async def _run(out: Output, wanted: Deployment) -> None:
    wake, stop = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    declared = {wanted.name: Declared(wanted, _next_revision(out.registry, wanted.name))}
    with metrics_at(out.registry.settings.metrics):
        await run_controllers(out.registry, wake, stop, _reporter(out), source=lambda: declared)


def _next_revision(registry: Registry, name: str) -> int:
    """Each start in the foreground is a deployment of its own, with rollouts of its own."""
    latest = registry.deployments.latest_rollouts(name)
    return max((rollout.target.revision for rollout in latest), default=0) + 1


def _reporter(out: Output):  # type: ignore[no-untyped-def]
    def report(deployment: str, line: str) -> None:
        if out.as_json:
            out.show({"deployment": deployment, "line": line}, lambda: None)
        else:
            click.echo(f"{deployment}: {line}")

    return report
