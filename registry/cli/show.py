"""`podium show`, `list` and `delete`: what is there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.console import Group, RenderableType

from registry.cli.output import Output, ago, pairs, size_text, with_output
from registry.protocol import Registry
from registry.references import Reference
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
@click.argument("reference")
@with_output
def show(out: Output, reference: str) -> None:
    """Show an artifact (its aliases, and what is live) or one version of it."""
    if Reference.parse(reference).is_bare:
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
        parts = [_versions_table(out, versions)]
        if aliases:
            rows = [_alias_row(alias, live[alias.name]) for alias in aliases]
            parts.insert(0, out.table(["alias", "version", ">generation", "moved", "live", "held"], rows))
        return Group(*parts)

    out.show(data, human)


def _routes(registry: Registry, alias: Alias) -> list[dict[str, str]]:
    """What each deployment that follows the alias sends its served name to: the route beside the alias."""
    found = []
    for deployment in registry.deployments.with_routes():
        for served, route in registry.deployments.routes(deployment).routes.items():
            if route.current.ref.partition(":")[0] == alias.artifact:
                found.append({"deployment": deployment, "served": served, "version": route.current.ref})
    return found


def _alias_data(alias: Alias, routes: list[dict[str, str]]) -> dict[str, Any]:
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


def _alias_row(alias: Alias, routes: list[dict[str, str]]) -> list[object]:
    live = ", ".join(f"{r['version'].partition(':')[2]} in {r['deployment']}" for r in routes) or None
    held = f"by {alias.held_by}" if alias.held_by else None
    return [alias.name, f"v{alias.version}", alias.generation, alias.moved_at, live, held]


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
    return out.table(["version", "aliases", ">size", ">files", "digest", "made", "by"], rows)


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
            ("size", f"{size_text(version.size)} in {version.files} files"),
            ("aliases", ", ".join(version.aliases) or "-"),
            ("tags", pairs(version.tags)),
            ("made", f"{ago(version.created_at)} by {version.created_by}"),
            ("run", version.run or "-"),
        ]
        scores = [
            [
                e.report,
                e.evaluator,
                s.metric,
                f"{s.value:.4g}",
                None if s.base is None else f"{s.base:.4g}",
                e.at,
            ]
            for e in evaluations
            for s in e.scores.values()
        ]
        files = [[f.path, size_text(f.size), f.sha256[:12]] for f in manifest.files]
        parts = [out.table(["", ""], facts), out.table(["file", ">size", "sha256"], files)]
        if scores:
            parts.append(out.table(["report", "evaluator", "metric", ">value", ">base", "when"], scores))
        return Group(*parts)

    out.show(data, human)


@click.command("list")
@click.argument("pattern", default="*")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", default="", help="Begin after this artifact name, or below this version number.")
@with_output
def list_(out: Output, pattern: str, limit: int, after: str) -> None:
    """List artifacts that match PATTERN, or the versions of the artifact with that name."""
    if "*" not in pattern and "?" not in pattern:
        before = Reference.parse(f"{pattern}:{after}").version if after else None
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
    out.show(data, lambda: out.table(["artifact", "kind", ">versions", "aliases", ">size"], rows))


@click.command()
@click.argument("reference")
@with_output
def delete(out: Output, reference: str) -> None:
    """Delete a version that no alias, rollback window or deployment needs."""
    version = out.registry.catalog.delete(reference)
    out.show({"ref": version.ref, "digest": version.digest}, lambda: f"{version.ref} is deleted.")
