"""`podium show` for what has no name: an output of a run that nobody published."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, counted, size_text
from registry.content.manifest import Manifest
from registry.protocol import Registry
from registry.values import Evaluation, LineageNode, Role

FILES_SHOWN = 100  # of a content, for people; a folder may have a hundred thousand
ID_SHOWN = 12  # digits of a value's id; commands take as many as it takes to be the only one


def show_value(out: Output, node: LineageNode) -> None:
    """Print a value that no version names: what it is, which run made it, its files and scores."""
    manifest = out.registry.catalog.manifest(node.digest)
    evaluations = _evaluations(out.registry, node)
    data = {
        "value": node.value,
        "kind": node.kind,
        "digest": node.digest,
        "run": node.run,
        "size": manifest.size,
        "file_list": [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in manifest.files],
        "evaluations": [asdict(evaluation) for evaluation in evaluations],
    }

    def human() -> RenderableType:
        facts = [
            ("value", node.value),
            ("kind", node.kind),
            ("digest", node.digest),
            ("size", f"{size_text(manifest.size)} in {counted(len(manifest.files), 'file')}"),
            ("run", node.run or "-"),
            ("name", f"none yet; podium publish {node.run} NAME" if node.run else "none"),
        ]
        return out.page([out.facts(facts), *content_tables(out, manifest, evaluations)])

    out.show(data, human)


def _evaluations(registry: Registry, node: LineageNode) -> list[Evaluation]:
    """Of what it is, and of what it says itself where it is a report."""
    if node.kind != "report":
        return registry.evaluations.of(node.digest)
    graph = registry.lineage.walk(node.value, depth=1)
    subjects = {edge.parent for edge in graph.edges if edge.role is Role.SUBJECT and edge.child == node.value}
    digests = {each.digest for each in graph.nodes if each.value in subjects}
    found = [each for digest in sorted(digests) for each in registry.evaluations.of(digest)]
    return [each for each in found if each.report in (node.value, *node.refs)]


def content_tables(out: Output, manifest: Manifest, evaluations: list[Evaluation]) -> list[RenderableType]:
    """The files of a content and, if there are any, its scores."""
    shown = manifest.files[:FILES_SHOWN]
    parts = [
        out.table(["file", ">size", "sha256"], [[f.path, size_text(f.size), f.sha256[:12]] for f in shown])
    ]
    if more := len(manifest.files) - len(shown):
        parts.append(Text(f"... and {counted(more, 'more file')}: --json lists all."))
    scores = [
        [
            report_name(e.report),
            e.evaluator,
            s.metric,
            f"{s.value:.4g}",
            None if s.base is None else f"{s.base:.4g}",
            e.at,
        ]
        for e in evaluations
        for s in e.scores.values()
    ]
    if scores:
        parts.append(out.table(["report", "evaluator", "metric", ">value", ">base", "when"], scores))
    return parts


def report_name(report: str) -> str:
    """A report's reference, or enough of its id to open it by."""
    return report if ":" in report else report[:ID_SHOWN]
