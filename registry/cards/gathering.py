"""What a card says, gathered from the registry: lineage, evaluations, the run that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.errors import PodiumError, RunNotFound
from registry.protocol import Registry
from registry.runs import Run
from registry.values import Evaluation, LineageNode, Role, Score, Version

_MOST_EVALUATIONS = 20
_LARGEST_CONFIG = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Made:
    """Something that the version was made from."""

    role: Role
    name: str  # reference, or the id of a value that has none
    digest: str
    hub: str | None = None  # its id on the Hugging Face Hub, where that is known

    @property
    def artifact(self) -> str:
        return self.name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Measured:
    """One score, and on what it was measured."""

    score: Score
    dataset: str  # reference; its digest where it has none
    dataset_digest: str
    report: str
    evaluator: str


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a card says."""

    version: Version
    made_from: tuple[Made, ...]
    measured: tuple[Measured, ...]
    run: Run | None = None
    config: Mapping[str, Any] = field(default_factory=dict)  # an adapter's

    def of(self, role: Role) -> tuple[Made, ...]:
        return tuple(each for each in self.made_from if each.role is role)


def gather(registry: Registry, reference: str) -> Facts:
    """The facts of a version's card. Raises what resolving the reference raises."""
    version = registry.catalog.resolve(reference)
    return Facts(
        version=version,
        made_from=_made_from(registry, version),
        measured=_measured(registry, version),
        run=_run(registry, version.run),
        config=_config(registry, version) if version.kind == "adapter" else {},
    )


def _made_from(registry: Registry, version: Version) -> tuple[Made, ...]:
    graph = registry.lineage.walk(version.ref, depth=1)
    nodes = {node.value: node for node in graph.nodes}
    found = [
        Made(
            edge.role,
            _name(nodes[edge.parent]),
            nodes[edge.parent].digest,
            _hub(registry, nodes[edge.parent]),
        )
        for edge in graph.edges
        if edge.child == graph.root and edge.role is not Role.CODE
    ]
    return tuple(sorted(found, key=lambda each: (list(Role).index(each.role), each.name)))


def _name(node: LineageNode) -> str:
    return node.refs[0] if node.refs else node.value[:12]


def _hub(registry: Registry, node: LineageNode) -> str | None:
    """Where it was fetched from: its tag ``hub``, or what the recipe that fetched it was given."""
    if node.refs:
        tagged = registry.catalog.resolve(node.refs[0]).tags.get("hub")
        if tagged:
            return tagged
    run = _run(registry, node.run)
    source = run.arguments.get("source") if run is not None and run.task == "prefetch" else None
    if not isinstance(source, str) or source.count("/") > 1 or source.startswith((".", "/", "package:")):
        return None
    return source.partition("@")[0]


def _run(registry: Registry, run: str | None) -> Run | None:
    try:
        return registry.runs.get(run) if run else None
    except RunNotFound:
        return None


def _measured(registry: Registry, version: Version) -> tuple[Measured, ...]:
    """The newest score of each metric by each evaluator on each dataset."""
    newest: dict[tuple[str, str, str], Measured] = {}
    for evaluation in registry.evaluations.of(version.digest)[:_MOST_EVALUATIONS]:
        dataset = _dataset(registry, evaluation)
        for score in evaluation.scores.values():
            key = (dataset, score.metric, evaluation.evaluator)
            found = Measured(
                score, dataset, evaluation.dataset_digest, evaluation.report, evaluation.evaluator
            )
            newest.setdefault(key, found)
    return tuple(newest[key] for key in sorted(newest))


def _dataset(registry: Registry, evaluation: Evaluation) -> str:
    for node in registry.lineage.walk(evaluation.report, depth=1).nodes:
        if node.digest == evaluation.dataset_digest and node.refs:
            return node.refs[0]
    return evaluation.dataset_digest[:19]


def _config(registry: Registry, version: Version) -> Mapping[str, Any]:
    try:
        found = json.loads(registry.catalog.read(version.digest, "adapter_config.json", 0, _LARGEST_CONFIG))
    except (PodiumError, ValueError):  # a card of what cannot be read now is better than none
        return {}
    return found if isinstance(found, dict) else {}
