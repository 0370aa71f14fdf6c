"""Prometheus metrics of the registry: read when they are asked for, so that nothing costs in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from registry.http.performing import Performer
from registry.identity.roles import TeamRole
from registry.store.counts import Count
from registry.store.stored import StoredRegistry


def add_metrics(app: FastAPI, performer: Performer) -> None:
    """Add ``/metrics``, for whoever has a viewer's token."""
    collectors = CollectorRegistry()
    collectors.register(_Registry(performer))

    @app.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        performer.asker(request).require("metrics", TeamRole.VIEWER)
        return Response(generate_latest(collectors), media_type=CONTENT_TYPE_LATEST)


class _Registry(Collector):
    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    @property
    def _registry(self) -> StoredRegistry:
        return self._performer.registry

    def describe(self) -> list[Metric]:
        return []  # or registering would ask the database

    def collect(self) -> list[Metric]:
        return [*self._events(), *self._work(), self._attempts(), self._replicas()]

    def _events(self) -> list[Metric]:
        position = self._registry.events.position()
        behind = position.newest - position.relayed
        return [
            _gauge("podium_events", "Events so far", position.newest),
            _gauge("podium_events_unrelayed", "Events that NATS does not have yet", behind),
            _gauge("podium_stream_incarnation", "Incarnation of the event stream", position.incarnation),
        ]

    def _work(self) -> list[Metric]:
        counts = self._registry.counts
        return [
            _family("podium_runs", "Runs that have not ended", ["state", "pool"], counts.runs()),
            _family(
                "podium_queue_seconds", "How long the oldest queued run waits", ["pool"], counts.waiting()
            ),
            _family(
                "podium_deliveries",
                "Deliveries that wait or were given up",
                ["state"],
                counts.deliveries(),
            ),
            _family("podium_workers", "Workers that take runs", ["pool"], counts.workers()),
            _gauge("podium_leases", "Leases that are held", counts.leases()),
        ]

    def _attempts(self) -> Metric:
        """All claims that ended; those whose lease was lost have the cause ``lost``."""
        family = CounterMetricFamily(
            "podium_attempts", "Attempts of runs that ended, by how and why", labels=["outcome", "cause"]
        )
        for count in self._registry.counts.attempts():
            family.add_metric(count.labels, count.value)
        return family

    def _replicas(self) -> Metric:
        family = GaugeMetricFamily("podium_replicas", "Replicas as last seen", labels=["deployment", "phase"])
        seen = Counter((each.deployment, each.phase) for each in self._registry.deployments.replicas())
        for (deployment, phase), count in seen.items():
            family.add_metric([deployment, phase], count)
        return family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


def _family(name: str, text: str, labels: Sequence[str], counts: Iterable[Count]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for count in counts:
        family.add_metric(count.labels, count.value)
    return family
