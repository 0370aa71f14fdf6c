"""What Prometheus is told of the deployments that this process controls.

Durations and failures are counted as the controller takes its steps; what replicas answered is read from
what the controller saw of them last, so that a scrape asks nobody. Counters begin at zero with the process
(those of answers with the replica's), as Prometheus expects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from registry.deployments import Rollout, RolloutState, RouteTable
from registry.errors import NotFound, PodiumError
from serving.engine import Observation
from serving.preflight import Finding
from serving.state import (
    Begin,
    Check,
    Drain,
    Fail,
    Finish,
    Flip,
    Load,
    Observed,
    Probe,
    Stage,
    Step,
    Stop,
    Switch,
)

__all__ = ["REGISTRY", "Sight", "SwapMeter", "engine_metrics", "unwatch", "watch"]

#: All metrics of this room.
REGISTRY = CollectorRegistry()

# From a flip in a millisecond to a model of many gigabytes that is loaded.
_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)

_SWAPS = Counter("podium_swaps", "Rollouts that ended, by how", ["deployment", "outcome"], registry=REGISTRY)
_SECONDS = Histogram(
    "podium_swap_seconds",
    "Seconds that a phase of a rollout took",
    ["deployment", "phase"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
_FAILURES = Counter(
    "podium_swap_failures",
    "Steps of a controller that went wrong, by what was wrong",
    ["deployment", "step", "reason"],
    registry=REGISTRY,
)


class SwapMeter:
    """Measures the steps of one deployment's controller."""

    _phases: Mapping[type, str] = {Stage: "stage", Check: "check", Load: "load", Probe: "probe"}

    def __init__(self, deployment: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._deployment = deployment
        self._clock = clock
        self._flipped: dict[str, float] = {}  # rollout -> when its route was decided
        self._leaving: dict[str, float] = {}  # version that is routed to no more -> since when
        self._draining: dict[int, float] = {}  # replica -> since when

    def took(self, step: Step, observed: Observed, seconds: float) -> None:
        """A step was taken, and went well."""
        phase = self._phases.get(type(step))
        if phase is not None:
            self._observe(phase, seconds)
        match step:
            case Begin(target) if target.served in observed.open:
                self._end(RolloutState.SUPERSEDED)
            case Flip(rollout):
                self._flip([rollout], observed)
            case Switch(_, rollouts):
                self._flip(rollouts, observed)
            case Finish(rollout, state):
                self._finish(rollout, state)
            case Fail():
                self._end(RolloutState.FAILED)
            case Drain(replica):
                self._draining.setdefault(replica, self._clock())
            case Stop(replica) if replica in self._draining:
                self._observe("drain", self._clock() - self._draining.pop(replica))

    def failed(self, step: Step, error: PodiumError) -> None:
        """A step went wrong."""
        self._fail(type(step).__name__.lower(), error.code)

    def refused(self, findings: Sequence[Finding]) -> None:
        """Preflight refused a version."""
        for problem in {finding.problem for finding in findings}:
            self._fail("check", problem.value)

    def saw(self, replicas: Mapping[int, Observation]) -> None:
        """Replicas were looked at: what has left them has drained."""
        for version, since in list(self._leaving.items()):
            if not any(seen.in_flight.get(version) for seen in replicas.values()):
                self._observe("drain", self._clock() - since)
                del self._leaving[version]

    def _flip(self, rollouts: Sequence[Rollout], observed: Observed) -> None:
        now = self._clock()
        for rollout in rollouts:
            self._flipped[rollout.id] = now
            route = observed.table.routes.get(rollout.target.served)
            if route is not None and route.current.ref != rollout.target.ref:
                self._leaving[route.current.ref] = now
            self._leaving.pop(rollout.target.ref, None)

    def _finish(self, rollout: Rollout, state: RolloutState) -> None:
        self._end(state)
        since = self._flipped.pop(rollout.id, None)
        if state is RolloutState.LIVE and since is not None:
            self._observe("flip", self._clock() - since)

    def _end(self, outcome: RolloutState) -> None:
        _SWAPS.labels(self._deployment, outcome.value).inc()

    def _observe(self, phase: str, seconds: float) -> None:
        _SECONDS.labels(self._deployment, phase).observe(seconds)

    def _fail(self, step: str, reason: str) -> None:
        _FAILURES.labels(self._deployment, step, reason).inc()


@dataclass(frozen=True, slots=True)
class Sight:
    """What a controller saw last."""

    replicas: Mapping[int, Observation] = field(default_factory=dict)
    table: RouteTable = field(default_factory=RouteTable)


#: Asks a replica's engine for its own metrics. Blocks; raises `EngineUnavailable`.
AskEngine = Callable[[], str]


@dataclass(frozen=True, slots=True)
class _Watched:
    sight: Callable[[], Sight]
    engines: Mapping[int, AskEngine]


_watched: dict[str, _Watched] = {}


def watch(
    deployment: str, sight: Callable[[], Sight], engines: Mapping[int, AskEngine] | None = None
) -> None:
    """From now on tell of a deployment what ``sight`` gives; it is called in another thread."""
    _watched[deployment] = _Watched(sight, engines or {})


def unwatch(deployment: str) -> None:
    """Tell nothing more of a deployment: another process controls it now, or nobody."""
    _watched.pop(deployment, None)


def engine_metrics(deployment: str, replica: int) -> str:
    """What an engine says of itself. Raises `NotFound`, `EngineUnavailable`. Blocks."""
    watched = _watched.get(deployment)
    ask = watched.engines.get(replica) if watched else None
    if ask is None:
        raise NotFound(f"No replica {replica} of '{deployment}' is controlled here.", remedy="")
    return ask()


class _Deployments(Collector):
    """Of each deployment that is watched: what its replicas answered, and what they are answering."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        of_replica = ["deployment", "replica"]
        answers = CounterMetricFamily(
            "podium_answers", "Answers that ended", labels=[*of_replica, "served", "version", "status"]
        )
        seconds = CounterMetricFamily(
            "podium_answer_seconds",
            "Seconds that these answers took together",
            labels=[*of_replica, "served", "version", "status"],
        )
        refused = CounterMetricFamily(
            "podium_requests_refused", "Requests that were not passed on", labels=[*of_replica, "status"]
        )
        running = GaugeMetricFamily(
            "podium_answers_in_flight", "Answers under way", labels=[*of_replica, "version"]
        )
        routes = GaugeMetricFamily(
            "podium_route",
            "1 for the version that a name is answered by",
            labels=["deployment", "served", "version"],
        )
        for name, watched in sorted(_watched.items()):
            sight = watched.sight()
            for served, route in sight.table.routes.items():
                routes.add_metric([name, served, route.current.ref], 1)
            for index, seen in sight.replicas.items():
                replica = [name, str(index)]
                for asked, version, status, count, took in seen.ended:
                    answers.add_metric([*replica, asked, version, str(status)], count)
                    seconds.add_metric([*replica, asked, version, str(status)], took)
                for status_text, count in seen.refused.items():
                    refused.add_metric([*replica, status_text], count)
                for version, count in seen.in_flight.items():
                    running.add_metric([*replica, version], count)
        yield from (answers, seconds, refused, running, routes)


REGISTRY.register(_Deployments())
