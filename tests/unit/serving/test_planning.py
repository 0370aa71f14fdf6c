"""The planner alone: what it does next in each state of the world, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Route, RouteTable, Target
from serving.engine import Fence, Observation, Phase, RouteMap
from serving.planning import attempts_key, plan, setup_key
from serving.planning.processes import DRAIN_SECONDS, SILENCE_SECONDS
from serving.preflight import Finding, Problem
from serving.state import (
    Apply,
    Attempts,
    Begin,
    Check,
    Desired,
    Drain,
    DropRoute,
    Fail,
    Finish,
    Flip,
    Forget,
    Load,
    Observed,
    Probe,
    Setup,
    Stage,
    Start,
    Stop,
    Unload,
    route_map,
)

NOW = 1000.0
AT = datetime(2026, 11, 30, tzinfo=UTC)
ENGINE = "e1"
BASE_ONE = Loaded("tiny:v1", "sha256:" + "b" * 64)
ONE = Loaded("bot:v1", "sha256:" + "1" * 64)
TWO = Loaded("bot:v2", "sha256:" + "2" * 64)
THREE = Loaded("bot:v3", "sha256:" + "3" * 64)
SETUP = Setup(BASE_ONE, ENGINE)
RIGHT = SETUP.fingerprint


def target(version: Loaded, generation: int = 1, served: str = "bot", revision: int = 1) -> Target:
    artifact, _, number = version.ref.partition(":v")
    return Target("router", revision, served, artifact, "production", generation, int(number), version.digest)


def rollout(aim: Target, state: RolloutState = RolloutState.LIVE) -> Rollout:
    return Rollout(f"{aim.ref}#{aim.generation}", aim, state, AT)


def route(version: Loaded, previous: Loaded | None = None, served: str = "bot") -> Route:
    return Route(served, version, 1, "r", previous)


BASE_DONE = rollout(target(BASE_ONE, served=BASE))
DESIRED = Desired("router", target(BASE_ONE, served=BASE), {"bot": target(ONE)}, ENGINE)


def world(**changes: Any) -> Observed:
    """One replica that serves ONE, with TWO desired by nobody; all is quiet."""
    table = changes.pop(
        "table", RouteTable(2, {BASE: route(BASE_ONE, served=BASE), "bot": route(ONE)}, ENGINE)
    )
    observed = Observed(
        table=table,
        open={},
        latest={BASE: BASE_DONE, "bot": rollout(target(ONE))},
        replicas={0: ready(table)},
        staged=frozenset({BASE_ONE.digest, ONE.digest}),
        probed=frozenset({("boot", BASE_ONE.ref), ("boot", ONE.ref)}),
    )
    return replace(observed, **changes)


def ready(table: RouteTable, *loaded: Loaded, **changes: Any) -> Observation:
    seen = Observation(
        phase=Phase.READY,
        boot="boot",
        endpoint="http://x",
        base=BASE_ONE.ref,
        fingerprint=RIGHT,
        models={v.ref: f"/files/{v.digest[7:]}" for v in (ONE, *loaded)},
        map=route_map(table, Fence(1, 1, table.generation)),
    )
    return replace(seen, **changes)


def rolling(version: Loaded = TWO, generation: int = 2, **changes: Any) -> tuple[Desired, Observed]:
    """A promotion to ``version`` was begun."""
    aim = target(version, generation)
    started = rollout(aim, RolloutState.STARTED)
    return replace(DESIRED, serves={"bot": aim}), world(**{"open": {"bot": started}, **changes})


def test_what_is_as_it_should_be_needs_no_step() -> None:
    quiet = plan(DESIRED, world(), NOW)
    assert (quiet.steps, quiet.waiting) == ((), ())


def test_a_promotion_goes_step_by_step_to_its_flip() -> None:
    desired, observed = rolling()
    assert plan(desired, replace(observed, open={}), NOW).steps == (Begin(target(TWO, 2)),)
    started = observed.open["bot"]
    assert plan(desired, observed, NOW).steps == (Stage(TWO, started),)
    observed = replace(observed, staged=observed.staged | {TWO.digest})
    assert plan(desired, observed, NOW).steps == (Check(TWO, BASE_ONE, started),)
    observed = replace(observed, checked={(TWO.digest, BASE_ONE.digest): ()})
    assert plan(desired, observed, NOW).steps == (Load(0, TWO, started),)
    observed = replace(observed, replicas={0: ready(observed.table, TWO)})
    assert plan(desired, observed, NOW).steps == (Probe(0, TWO, False, started),)
    observed = replace(observed, probed=observed.probed | {("boot", TWO.ref)})
    assert plan(desired, observed, NOW).steps == (Flip(started),)


def test_after_the_flip_the_map_is_applied_and_only_then_it_is_live() -> None:
    desired, observed = rolling()
    table = RouteTable(3, {BASE: route(BASE_ONE, served=BASE), "bot": route(TWO, ONE)}, ENGINE)
    flipped = rollout(target(TWO, 2), RolloutState.FLIPPED)
    observed = replace(
        observed,
        table=table,
        open={"bot": flipped},
        staged=observed.staged | {TWO.digest},
        replicas={0: replace(ready(table, TWO), map=ready(world().table).map)},
        probed=observed.probed | {("boot", TWO.ref)},
    )
    assert plan(desired, observed, NOW).steps == (Apply(0, route_map(table, Fence(1, 1, 3))),)
    observed = replace(observed, replicas={0: ready(table, TWO)})
    assert plan(desired, observed, NOW).steps == (Finish(flipped, RolloutState.LIVE),)


@pytest.mark.parametrize(
    "other",
    [
        Observation(Phase.SILENT, fingerprint=RIGHT),
        ready(world().table, fingerprint="another", in_flight={ONE.ref: 1}),
    ],
    ids=["silent", "with another base"],
)
def test_it_is_not_live_while_a_replica_may_still_answer_with_the_old_version(other: Observation) -> None:
    table = RouteTable(3, {BASE: route(BASE_ONE, served=BASE), "bot": route(TWO, ONE)}, ENGINE)
    flipped = rollout(target(TWO, 2), RolloutState.FLIPPED)
    desired = replace(DESIRED, serves={"bot": target(TWO, 2)}, replicas=2)
    observed = world(
        table=table,
        open={"bot": flipped},
        staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest}),
        probed=frozenset({("boot", v.ref) for v in (BASE_ONE, ONE, TWO)}),
    )
    observed = replace(observed, replicas={0: ready(table, TWO), 1: other})
    assert not any(isinstance(step, Finish) for step in plan(desired, observed, NOW).steps)


def test_every_ready_replica_loads_and_probes_before_the_flip() -> None:
    desired, observed = rolling(
        staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest}),
        checked={(TWO.digest, BASE_ONE.digest): ()},
        probed=frozenset({(boot, v.ref) for boot in ("boot", "other") for v in (BASE_ONE, ONE)}),
    )
    desired = replace(desired, replicas=2)
    both = {0: ready(observed.table), 1: ready(observed.table, TWO, boot="other")}
    observed = replace(observed, replicas=both)
    started = observed.open["bot"]
    assert plan(desired, observed, NOW).steps == (Load(0, TWO, started), Probe(1, TWO, False, started))


def test_what_is_certain_fails_the_rollout_and_what_is_not_is_tried_once_more() -> None:
    desired, observed = rolling(staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest}))
    key = (TWO.digest, BASE_ONE.digest)
    bad = Finding(Problem.RANK, "Its rank is 64.")
    (failed,) = plan(desired, replace(observed, checked={key: (bad,)}), NOW).steps
    assert isinstance(failed, Fail) and failed.certain and failed.reason == "Its rank is 64."
    account = attempts_key(observed.open["bot"])
    observed = replace(observed, checked={key: ()}, attempts={account: Attempts(1, NOW, "no")})
    waiting = plan(desired, observed, NOW)
    assert waiting.steps == () and waiting.wake_at == NOW + 1 and "no" in waiting.waiting[0]
    assert isinstance(plan(desired, observed, NOW + 1).steps[0], Load)
    twice = replace(observed, attempts={account: Attempts(2, NOW, "no")})
    assert plan(desired, twice, NOW).steps == (Fail(observed.open["bot"], "no", False),)
    fatal = replace(observed, attempts={account: Attempts(1, NOW, "it died", fatal=True)})
    assert plan(desired, fatal, NOW).steps == (Fail(observed.open["bot"], "it died", False),)


def test_a_store_that_is_down_delays_a_rollout_and_does_not_fail_it() -> None:
    desired, observed = rolling()
    observed = replace(observed, attempts={f"files/{TWO.digest}": Attempts(9, NOW, "the store is down")})
    assert plan(desired, observed, NOW).steps == ()
    assert plan(desired, observed, NOW + 61).steps == (Stage(TWO, observed.open["bot"]),)


def test_a_blocked_content_is_not_tried_again() -> None:
    desired, observed = rolling(blocked={(TWO.digest, BASE_ONE.digest): "rank too high"})
    (failed,) = plan(desired, observed, NOW).steps
    assert isinstance(failed, Fail) and not failed.certain and "blocked" in failed.reason


def test_a_newer_promotion_takes_the_place_of_an_undecided_one_and_waits_for_a_decided_one() -> None:
    desired, observed = rolling()
    newer = replace(desired, serves={"bot": target(THREE, 3)})
    assert plan(newer, observed, NOW).steps == (Begin(target(THREE, 3)),)
    decided = {"bot": rollout(target(TWO, 2), RolloutState.FLIPPED)}
    steps = plan(newer, replace(observed, open=decided), NOW).steps
    assert not any(isinstance(step, Begin) for step in steps)


def test_a_dead_replica_is_started_again_after_a_growing_while() -> None:
    dead = world(replicas={0: Observation(Phase.DEAD, detail="out of memory")})
    assert plan(DESIRED, dead, NOW).steps == (Start(0, SETUP),)
    failing = replace(dead, attempts={"replica/0": Attempts(4, NOW, "out of memory")})
    waiting = plan(DESIRED, failing, NOW)
    assert waiting.steps == () and "out of memory" in waiting.waiting[0]
    assert plan(DESIRED, failing, NOW + 8).steps == (Start(0, SETUP),)


def test_a_booted_replica_gets_its_versions_before_its_map() -> None:
    table = world().table
    booted = ready(table, boot="new", models={}, map=None)
    observed = world(replicas={0: booted}, probed=frozenset())
    assert plan(DESIRED, observed, NOW).steps == (Probe(0, BASE_ONE, True),)
    observed = replace(observed, probed=frozenset({("new", BASE_ONE.ref)}))
    assert plan(DESIRED, observed, NOW).steps == (Load(0, ONE),)
    observed = replace(observed, replicas={0: replace(booted, models=ready(table).models)})
    assert plan(DESIRED, observed, NOW).steps == (Probe(0, ONE, False),)
    observed = replace(observed, probed=observed.probed | {("new", ONE.ref)})
    assert plan(DESIRED, observed, NOW).steps == (Apply(0, route_map(table, Fence(1, 1, 2))),)


def test_a_new_controller_puts_its_own_epoch_into_every_replica() -> None:
    observed = world(epoch=2)
    assert plan(DESIRED, observed, NOW).steps == (Apply(0, route_map(observed.table, Fence(1, 2, 2))),)


def test_a_silent_process_is_ended_after_a_while_and_not_before() -> None:
    silent = world(replicas={0: Observation(Phase.SILENT, fingerprint=RIGHT)}, since={0: NOW})
    assert plan(DESIRED, silent, NOW + 1).steps == ()
    assert isinstance(plan(DESIRED, silent, NOW + SILENCE_SECONDS).steps[0], Stop)


def test_other_settings_drain_a_replica_before_it_is_stopped() -> None:
    changed = replace(DESIRED, engine="e2")
    quiet = plan(changed, world(), NOW)
    assert quiet.steps == () and "HAProxy" in quiet.waiting[0]
    changed = replace(changed, allow_downtime=True)
    (drain,) = plan(changed, world(), NOW).steps
    assert isinstance(drain, Drain) and "makes way for tiny:v1" in drain.reason
    draining = replace(ready(world().table, in_flight={ONE.ref: 2}), phase=Phase.DRAINING)
    observed = world(replicas={0: draining}, since={0: NOW})
    assert plan(changed, observed, NOW).steps == ()
    assert isinstance(plan(changed, observed, NOW + DRAIN_SECONDS).steps[0], Stop)
    idle = replace(observed, replicas={0: replace(draining, in_flight={})})
    assert isinstance(plan(changed, idle, NOW).steps[0], Stop)


def test_a_version_that_nobody_needs_is_unloaded_when_it_has_answered() -> None:
    table = RouteTable(3, {BASE: route(BASE_ONE, served=BASE), "bot": route(ONE, TWO)}, ENGINE)
    observed = world(
        table=table,
        staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest, THREE.digest}),
        probed=frozenset({("boot", v.ref) for v in (BASE_ONE, ONE, TWO)}),
    )
    busy = ready(table, TWO, THREE, in_flight={THREE.ref: 1})
    assert plan(DESIRED, replace(observed, replicas={0: busy}), NOW).steps == ()
    idle = ready(table, TWO, THREE)
    assert plan(DESIRED, replace(observed, replicas={0: idle}), NOW).steps == (Unload(0, THREE.ref),)


def test_files_stay_while_a_process_may_read_them() -> None:
    observed = world(staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest}))
    loaded = replace(observed, replicas={0: ready(observed.table, TWO, in_flight={TWO.ref: 1})})
    assert not plan(DESIRED, loaded, NOW).steps
    starting = replace(observed, replicas={0: Observation(Phase.STARTING, fingerprint=RIGHT)})
    assert not plan(DESIRED, starting, NOW).steps
    assert [type(step).__name__ for step in plan(DESIRED, observed, NOW).steps] == ["Unstage"]


def test_a_name_that_is_no_longer_declared_loses_its_route() -> None:
    assert plan(replace(DESIRED, serves={}), world(), NOW).steps == (DropRoute("bot"),)


def test_a_paused_deployment_heals_and_changes_nothing() -> None:
    desired, observed = rolling(staged=frozenset({BASE_ONE.digest, ONE.digest, TWO.digest}))
    paused = replace(desired, paused=True)
    assert plan(paused, observed, NOW).steps == ()
    assert plan(paused, replace(observed, open={}), NOW).steps == ()
    dead = replace(observed, replicas={0: Observation(Phase.DEAD)})
    assert plan(paused, dead, NOW).steps == (Start(0, SETUP),)


def test_a_removed_deployment_ends_its_rollouts_then_its_processes_then_its_routes() -> None:
    desired, observed = rolling()
    removed = replace(desired, removed=True)
    assert isinstance(plan(removed, observed, NOW).steps[0], Finish)
    observed = replace(observed, open={})
    assert plan(removed, observed, NOW).steps == (Drain(0),)
    observed = replace(observed, replicas={0: Observation(Phase.ABSENT)})
    assert set(plan(removed, observed, NOW).steps) == {DropRoute(BASE), DropRoute("bot")}
    observed = replace(observed, table=RouteTable(4), staged=frozenset())
    assert plan(removed, observed, NOW).steps == (Forget(),)
    assert plan(removed, replace(observed, latest={}), NOW).steps == ()


def test_a_new_base_waits_until_everything_on_it_is_known_to_fit() -> None:
    second = Loaded("tiny:v2", "sha256:" + "c" * 64)
    moving = rollout(target(second, 2, served=BASE), RolloutState.STARTED)
    desired = replace(DESIRED, base=moving.target)
    observed = world(open={BASE: moving}, staged=frozenset({BASE_ONE.digest, ONE.digest, second.digest}))
    assert plan(desired, observed, NOW).steps == (Check(ONE, second, moving),)
    bad = {(ONE.digest, second.digest): (Finding(Problem.OTHER_BASE, "Another base."),)}
    (failed,) = plan(desired, replace(observed, checked=bad), NOW).steps
    assert isinstance(failed, Fail) and "bot:v1 does not fit tiny:v2" in failed.reason
    good = replace(observed, checked={(ONE.digest, second.digest): ()})
    (failed,) = plan(desired, good, NOW).steps
    assert isinstance(failed, Fail) and "HAProxy" in failed.reason and "allow_downtime" in failed.reason
    (drain,) = plan(replace(desired, allow_downtime=True), good, NOW).steps
    assert isinstance(drain, Drain) and "makes way for tiny:v2" in drain.reason


def test_a_base_that_does_not_start_is_given_up_for_the_one_before() -> None:
    second = Loaded("tiny:v2", "sha256:" + "c" * 64)
    moving = rollout(target(second, 2, served=BASE), RolloutState.STARTED)
    observed = world(
        open={BASE: moving},
        staged=frozenset({BASE_ONE.digest, ONE.digest, second.digest}),
        checked={(ONE.digest, second.digest): ()},
        replicas={0: Observation(Phase.DEAD)},
        attempts={setup_key(Setup(second, ENGINE).fingerprint): Attempts(3, NOW, "bad weights")},
    )
    desired = replace(DESIRED, base=moving.target)
    assert plan(desired, observed, NOW).steps == (Start(0, SETUP),), "first what serves"
    observed = replace(observed, replicas={0: ready(observed.table)})
    (failed,) = plan(desired, observed, NOW).steps
    assert isinstance(failed, Fail) and not failed.certain and "bad weights" in failed.reason


phases = st.sampled_from(list(Phase))
versions = st.sampled_from([ONE, TWO, THREE])
states = st.sampled_from([RolloutState.STARTED, RolloutState.FLIPPED])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Desired, Observed]:
    """Any combination of what may be found, also those that should not be."""
    current, previous = draw(versions), draw(st.none() | versions)
    routes = {BASE: route(BASE_ONE, served=BASE), "bot": route(current, previous)}
    table = draw(st.sampled_from([RouteTable(), RouteTable(3, routes, ENGINE)]))
    loaded = draw(st.lists(versions, max_size=3))
    maps = st.sampled_from(
        [None, route_map(table, Fence(1, 1, table.generation)), RouteMap(Fence(1, 1, 1), {}, frozenset())]
    )
    replicas = {
        index: ready(
            table,
            phase=draw(phases),
            models={v.ref: f"/files/{v.digest[7:]}" for v in loaded},
            map=draw(maps),
            fingerprint=draw(st.sampled_from([RIGHT, "other"])),
            in_flight=draw(st.dictionaries(st.sampled_from([v.ref for v in loaded] or ["x"]), st.just(1))),
        )
        for index in range(draw(st.integers(1, 2)))
    }
    aim = target(draw(versions), draw(st.integers(1, 3)))
    opened = {"bot": rollout(aim, draw(states))} if draw(st.booleans()) else {}
    observed = Observed(
        table=table,
        open=opened,
        latest={BASE: BASE_DONE, **opened},
        replicas=replicas,
        staged=frozenset(draw(st.sets(st.sampled_from([v.digest for v in (BASE_ONE, ONE, TWO, THREE)])))),
        checked={(v.digest, BASE_ONE.digest): () for v in draw(st.lists(versions))},
        probed=frozenset(("boot", v.ref) for v in [BASE_ONE, *draw(st.lists(versions))]),
    )
    desired = replace(
        DESIRED,
        serves={"bot": target(draw(versions), draw(st.integers(1, 3)))},
        replicas=len(replicas),
        paused=draw(st.booleans()),
        removed=draw(st.booleans()),
    )
    return desired, observed


@given(worlds())
def test_no_plan_ever_harms_what_is_served(case: tuple[Desired, Observed]) -> None:
    desired, observed = case
    current = observed.table.routes.get("bot")
    for step in plan(desired, observed, NOW).steps:
        match step:
            case Unload():
                seen = observed.replicas[step.replica]
                assert not seen.in_flight.get(step.ref)
                assert seen.map is not None and step.ref not in seen.map.open
                assert current is None or step.ref != current.current.ref
            case Flip():
                version = Loaded(step.rollout.target.ref, step.rollout.target.digest)
                ready_now = [s for s in observed.replicas.values() if s.phase is Phase.READY]
                right = [s for s in ready_now if s.fingerprint == RIGHT]
                assert right and all(version.ref in s.models for s in right)
                assert ("boot", version.ref) in observed.probed
            case Apply():
                seen = observed.replicas[step.replica]
                assert set(step.routes.routes.values()) <= set(seen.models)
            case Finish(state=RolloutState.LIVE):
                assert not [s for s in observed.replicas.values() if s.phase is Phase.SILENT]
                wanted = route_map(observed.table, observed.fence)
                ready_now = [s for s in observed.replicas.values() if s.phase is Phase.READY]
                assert ready_now and all(s.map == wanted for s in ready_now)
            case Fail():
                assert step.rollout.state is RolloutState.STARTED
