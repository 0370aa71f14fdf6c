"""Prometheus metrics of the registry: read when they are asked for, so that nothing costs in between."""

from __future__ import annotations

from collections import Counter

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from registry.deliveries import DeliveryState
from registry.http.performing import Performer
from registry.identity.roles import TeamRole
from registry.protocol import Registry
from registry.runs import RunState

_MOST_COUNTED = 10_000


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
    def _registry(self) -> Registry:
        return self._performer.registry

    def describe(self) -> list[Metric]:
        return []  # or registering would ask the database

    def collect(self) -> list[Metric]:
        position = self._registry.events.position()
        return [
            _gauge("podium_events", "Events so far", position.newest),
            _gauge(
                "podium_events_unrelayed",
                "Events that NATS does not have yet",
                position.newest - position.relayed,
            ),
            _gauge("podium_stream_incarnation", "Incarnation of the event stream", position.incarnation),
            self._runs(),
            self._deliveries(),
            self._workers(),
            self._replicas(),
        ]

    def _runs(self) -> Metric:
        family = GaugeMetricFamily("podium_runs", "Runs that have not ended", labels=["state"])
        for state in (RunState.QUEUED, RunState.RUNNING):
            found = self._registry.runs.list(state=state, limit=_MOST_COUNTED)
            family.add_metric([state.value], len(found))
        return family

    def _deliveries(self) -> Metric:
        family = GaugeMetricFamily(
            "podium_deliveries", "Deliveries that wait or were given up", labels=["state"]
        )
        for state in (DeliveryState.PENDING, DeliveryState.RUNNING, DeliveryState.HELD, DeliveryState.DEAD):
            found = self._registry.deliveries.find(state=state, limit=_MOST_COUNTED)
            family.add_metric([state.value], len(found))
        return family

    def _workers(self) -> Metric:
        family = GaugeMetricFamily("podium_workers", "Workers that take runs", labels=["pool"])
        for pool, count in Counter(worker.pool for worker in self._registry.workers.all()).items():
            family.add_metric([pool], count)
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
