"""`podium show`, `list` and `delete`: what is there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.console import RenderableType

from registry.cli.output import Output, ago, counted, pairs, size_text, with_output
from registry.cli.value import content_tables, show_value
from registry.errors import ArtifactNotFound, InvalidReference
from registry.followers import is_led
from registry.outputs import find_made, may_be_made
from registry.protocol import Registry
from registry.references import Reference, parse_version_number
from registry.values import Alias, Version


def version_data(version: Version) -> dict[str, Any]:
    return {
        "ref": version.ref,
        "artifact": version.artifact,
        "version": version.number,
        "kind": version.kind,
        "digest": version.digest,
        "size": version.size,
        "files": version.files,
        "created_at": version.created_at.isoformat(),
        "created_by": version.created_by,
        "run": version.run,
        "aliases": list(version.aliases),
        "tags": dict(version.tags),
        "metadata": dict(version.metadata),
    }


@click.command()
@click.argument("reference", metavar="REFERENCE|RUN/STEP|ID")
@with_output
def show(out: Output, reference: str) -> None:
    """Show an artifact (its aliases, and what is live), one version of it, or what a run made.

    What has no name is shown by RUN or RUN/STEP, or by its id or digest, or the beginning of these.
    """
    if may_be_made(reference):
        try:  # names come before ids that look like them
            _show_artifact(out, reference)
            return
        except (ArtifactNotFound, InvalidReference):
            made = find_made(out.registry, reference)
        if made.refs:
            _show_version(out, made.refs[0])
        else:
            show_value(out, made)
    elif Reference.parse(reference).is_bare:
        _show_artifact(out, reference)
    else:
        _show_version(out, reference)


def _show_artifact(out: Output, name: str) -> None:
    registry = out.registry
    versions = registry.catalog.versions(name, limit=10)
    aliases = registry.promotions.aliases(name)
    live = {alias.name: _routes(registry, alias) for alias in aliases}
    data = {
        "artifact": name,
        "aliases": [_alias_data(alias, live[alias.name]) for alias in aliases],
        "versions": [version_data(version) for version in versions],
    }

    def human() -> RenderableType:
        rows = [_alias_row(alias, live[alias.name]) for alias in aliases]
        columns = ["alias", "version", ">generation", "moved", "live", "held"]
        table = out.table(columns, rows, empty="It has no alias.")
        return out.page([table, _versions_table(out, versions)])

    out.show(data, human)


def _routes(registry: Registry, alias: Alias) -> list[dict[str, Any]]:
    """What each deployment that follows the alias sends its served name to: the route beside the alias.

    A route whose controller is gone says what was live: nobody vouches for it now.
    """
    found: list[dict[str, Any]] = []
    for deployment in registry.deployments.with_routes():
        led = is_led(registry, deployment)
        routes = registry.deployments.routes(deployment).routes
        for rollout in registry.deployments.latest_rollouts(deployment):
            target = rollout.target
            if (target.artifact, target.alias) == (alias.artifact, alias.name) and target.served in routes:
                version = routes[target.served].current.ref
                found.append(
                    {"deployment": deployment, "served": target.served, "version": version, "led": led}
                )
    return found


def _alias_data(alias: Alias, routes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "alias": alias.name,
        "version": f"v{alias.version}",
        "digest": alias.digest,
        "generation": alias.generation,
        "moved_at": alias.moved_at.isoformat(),
        "held_by": alias.held_by,
        "hold_reason": alias.hold_reason,
        "routes": routes,
    }


def _alias_row(alias: Alias, routes: list[dict[str, Any]]) -> list[object]:
    live = "\n".join(_live(route) for route in routes) or None
    held = f"by {alias.held_by}" if alias.held_by else None
    return [alias.name, f"v{alias.version}", alias.generation, alias.moved_at, live, held]


def _live(route: dict[str, Any]) -> str:
    where = f"{route['version'].partition(':')[2]} in {route['deployment']}"
    return where if route["led"] else f"was {where}; nobody leads it now"


def _versions_table(out: Output, versions: list[Version]) -> RenderableType:
    rows = [
        [
            v.ref,
            ", ".join(v.aliases) or None,
            size_text(v.size),
            v.files,
            v.digest[7:19],
            v.created_at,
            v.created_by,
        ]
        for v in versions
    ]
    columns = ["version", "aliases", ">size", ">files", "digest", "made", "by"]
    return out.table(columns, rows, empty="It has no version any more.")


def _show_version(out: Output, reference: str) -> None:
    registry = out.registry
    version = registry.catalog.resolve(reference)
    manifest = registry.catalog.manifest(version.digest)
    evaluations = registry.evaluations.of(version.digest)
    data = {
        **version_data(version),
        "file_list": [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in manifest.files],
        "evaluations": [asdict(evaluation) for evaluation in evaluations],
    }

    def human() -> RenderableType:
        facts = [
            ("reference", version.ref),
            ("kind", version.kind),
            ("digest", version.digest),
            ("size", f"{size_text(version.size)} in {counted(version.files, 'file')}"),
            ("aliases", ", ".join(version.aliases) or "-"),
            ("tags", pairs(version.tags)),
            ("made", f"{ago(version.created_at)} by {version.created_by}"),
            ("run", version.run or "-"),
        ]
        return out.page([out.facts(facts), *content_tables(out, manifest, evaluations)])

    out.show(data, human)


@click.command("list")
@click.argument("pattern", default="*")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", default="", help="Begin after this artifact name, or below this version number.")
@with_output
def list_(out: Output, pattern: str, limit: int, after: str) -> None:
    """List artifacts that match PATTERN, or the versions of the artifact with that name."""
    if "*" not in pattern and "?" not in pattern:
        before = parse_version_number(after if after.startswith("v") else f"v{after}") if after else None
        versions = out.registry.catalog.versions(pattern, limit=limit, before=before)
        out.show([version_data(v) for v in versions], lambda: _versions_table(out, versions))
        return
    artifacts = out.registry.catalog.artifacts(pattern, limit=limit, after=after)
    rows = [
        [
            a.name,
            a.kind,
            a.versions,
            pairs({k: f"v{v}" for k, v in a.aliases.items()}),
            size_text(a.bytes_total),
        ]
        for a in artifacts
    ]
    data = [{**asdict(a), "aliases": {k: f"v{v}" for k, v in a.aliases.items()}} for a in artifacts]
    columns = ["artifact", "kind", ">versions", "aliases", ">size"]
    empty = "Nothing has that name." if pattern != "*" else "Nothing here yet: see 'podium push --help'."
    out.show(data, lambda: out.table(columns, rows, empty=empty))


@click.command()
@click.argument("reference")
@with_output
def delete(out: Output, reference: str) -> None:
    """Delete a version that no alias, rollback window, deployment or gate needs."""
    version = out.registry.catalog.delete(reference)
    out.show({"ref": version.ref, "digest": version.digest}, lambda: f"{version.ref} is deleted.")
