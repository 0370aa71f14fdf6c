"""`podium publish`: make what a run or a step of it made a version."""

from __future__ import annotations

import click

from registry.cli.output import Output, with_output
from registry.outputs import locate_step, output_of


@click.command()
@click.argument("path", metavar="RUN[/STEP]")
@click.argument("name")
@click.option("--output", metavar="NAME", help="Which of its outputs; the result unless given.")
@with_output
def publish(out: Output, path: str, name: str, output: str | None) -> None:
    """Make an output of a run, or of a step of it, a version of the artifact NAME."""
    run = locate_step(out.registry, path)
    chosen = output_of(run, output)
    published = out.registry.catalog.name(name, chosen.value)
    version = published.version
    data = {
        "ref": version.ref,
        "digest": version.digest,
        "version": version.number,
        "value": chosen.value,
        "run": version.run,
        "created": published.created,
    }
    said = "is" if published.created else "was already"
    out.show(data, lambda: f"{version.ref} {said} what run {version.run} made.")
