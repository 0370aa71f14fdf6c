"""What Prometheus is told: steps, failures, answers, and where it asks."""

from __future__ import annotations

import urllib.request
import uuid
from datetime import UTC, datetime

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from registry.deployments import Loaded, Rollout, RolloutState, Route, RouteTable, Target
from registry.errors import Unavailable
from serving.engine import Observation, Phase
from serving.errors import AdapterRefused, EngineUnavailable
from serving.metrics import REGISTRY, Sight, SwapMeter, unwatch, watch
from serving.metrics_server import metrics_at
from serving.preflight import Finding, Problem
from serving.state import Begin, Drain, Fail, Finish, Flip, Load, Observed, Stage, Stop

V2 = Target("router", 1, "bot", "bot", "production", 2, 2, "sha256:2")
ROLLOUT = Rollout("r2", V2, RolloutState.STARTED, datetime.now(UTC))
TABLE = RouteTable(1, {"bot": Route("bot", Loaded("bot:v1", "sha256:1"), 1, "r1")})
OBSERVED = Observed(table=TABLE, open={}, latest={}, replicas={})


class Meter:
    """A meter of a deployment of its own, on a clock of the test's."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.now = 0.0
        self.meter = SwapMeter(self.name, lambda: self.now)

    def value(self, metric: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(metric, {"deployment": self.name, **labels})

    def seconds(self, phase: str) -> float | None:
        return self.value("podium_swap_seconds_sum", phase=phase)


def test_each_phase_is_timed_from_stage_to_drain() -> None:
    m = Meter()
    m.meter.took(Stage(Loaded("bot:v2", "sha256:2"), ROLLOUT), OBSERVED, 0.5)
    m.meter.took(Load(0, Loaded("bot:v2", "sha256:2"), ROLLOUT), OBSERVED, 0.25)
    m.meter.took(Flip(ROLLOUT), OBSERVED, 0.001)
    m.now = 2.0
    m.meter.saw({0: Observation(Phase.READY, in_flight={"bot:v1": 1, "bot:v2": 1})})
    m.meter.took(Finish(ROLLOUT, RolloutState.LIVE), OBSERVED, 0.001)
    assert m.seconds("drain") is None
    m.now = 5.0
    m.meter.saw({0: Observation(Phase.READY, in_flight={"bot:v2": 1})})
    m.now = 9.0
    m.meter.saw({0: Observation(Phase.READY)})
    assert [m.seconds(phase) for phase in ("stage", "load", "flip", "drain")] == [0.5, 0.25, 2.0, 5.0]
    assert m.value("podium_swaps_total", outcome="live") == 1


def test_a_replica_that_is_drained_is_timed_until_it_is_stopped() -> None:
    m = Meter()
    m.meter.took(Drain(0), OBSERVED, 0.0)
    m.now = 1.0
    m.meter.took(Drain(0), OBSERVED, 0.0)
    m.now = 3.0
    m.meter.took(Stop(0, "it is drained"), OBSERVED, 0.0)
    assert m.seconds("drain") == 3.0


def test_each_outcome_is_counted() -> None:
    m = Meter()
    m.meter.took(Begin(V2), OBSERVED, 0.0)
    m.meter.took(Begin(V2), Observed(table=TABLE, open={"bot": ROLLOUT}, latest={}, replicas={}), 0.0)
    m.meter.took(Fail(ROLLOUT, "rank too high", True), OBSERVED, 0.0)
    m.meter.took(Finish(ROLLOUT, RolloutState.SUPERSEDED), OBSERVED, 0.0)
    assert m.value("podium_swaps_total", outcome="superseded") == 2
    assert m.value("podium_swaps_total", outcome="failed") == 1
    assert m.value("podium_swaps_total", outcome="live") is None


def test_failures_are_counted_by_reason() -> None:
    m = Meter()
    m.meter.failed(Load(0, Loaded("bot:v2", "sha256:2")), AdapterRefused("no", remedy=""))
    m.meter.refused(
        [Finding(Problem.RANK, "64"), Finding(Problem.RANK, "32"), Finding(Problem.DORA, "it is")]
    )
    for step, reason in (("load", "adapter_refused"), ("check", "rank"), ("check", "dora")):
        assert m.value("podium_swap_failures_total", step=step, reason=reason) == 1


def test_a_scrape_tells_what_was_answered_by_name_version_and_status() -> None:
    seen = Observation(
        Phase.READY,
        in_flight={"bot:v1": 3},
        refused={"401": 2},
        ended=(("bot", "bot:v1", 200, 7, 1.5), ("bot:v1", "bot:v1", 499, 1, 0.5)),
    )
    watch("scraped", lambda: Sight({0: seen}, TABLE))
    try:
        with metrics_at("127.0.0.1:0") as url:
            assert url is not None
            with urllib.request.urlopen(url, timeout=10) as response:
                text = response.read().decode()
    finally:
        unwatch("scraped")
    samples = {
        (s.name, s.labels.get("served"), s.labels.get("version"), s.labels.get("status")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.labels.get("deployment") == "scraped"
    }
    assert samples == {
        ("podium_answers_total", "bot", "bot:v1", "200"): 7,
        ("podium_answers_total", "bot:v1", "bot:v1", "499"): 1,
        ("podium_answer_seconds_total", "bot", "bot:v1", "200"): 1.5,
        ("podium_answer_seconds_total", "bot:v1", "bot:v1", "499"): 0.5,
        ("podium_requests_refused_total", None, None, "401"): 2,
        ("podium_answers_in_flight", None, "bot:v1", None): 3,
        ("podium_route", "bot", "bot:v1", None): 1,
    }


def test_an_address_that_is_taken_is_said_to_be() -> None:
    with metrics_at("127.0.0.1:0") as url, pytest.raises(Unavailable, match="cannot be served"):
        assert url is not None
        with metrics_at(url.removeprefix("http://").removesuffix("/metrics")):
            raise AssertionError("two servers have one address")


def test_without_an_address_nothing_is_served() -> None:
    with metrics_at(None) as url:
        assert url is None


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/router/0", 200, "vllm:num_requests_running 3"),
        ("/router/1", 503, "it does not answer"),
        ("/router/2", 404, "No replica 2 of 'router'"),
        ("/other/0", 404, "'other'"),
        ("/router/x", 404, "See /metrics"),
        ("/router/0/0", 404, "See /metrics"),
    ],
)
def test_an_engine_is_asked_for_its_own_metrics(path: str, status: int, words: str) -> None:
    def fails() -> str:
        raise EngineUnavailable("it does not answer", remedy="")

    watch("router", Sight, {0: lambda: "vllm:num_requests_running 3\n", 1: fails})
    try:
        with metrics_at("127.0.0.1:0") as url, httpx.Client(trust_env=False) as http:
            answer = http.get(f"{url}{path}")
    finally:
        unwatch("router")
    assert answer.status_code == status
    assert words in answer.text
