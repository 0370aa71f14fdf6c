"""`podium runs wait`: for runs that are named, and for those that are given a version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import Cause, Run, RunError, RunRequest
from registry.values import AppObject
from tests.common.registries import Maker
from tests.unit.trainers.cli.conftest import Podium
from trainers.cli import wait
from triggers import OnArtifact, Trigger, queue_run

ROOM = Resources(cpu=8, memory="8Gi")
LONG = 60.0  # seconds; what takes so long has waited for nothing


def queue(registry: Registry, *, of: str = "bot:v1") -> Run:
    return registry.runs.queue(RunRequest("evaluate", inputs={"subject": of}))


def end(registry: Registry, run: Run, error: RunError | None = None) -> None:
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.id)
    acting = registry.acting(claim.origin)
    if error is None:
        acting.runs.finish(run.id, [])
    else:
        acting.runs.end(run.id, Cause.ERROR, error)


@pytest.mark.usefixtures("bot")
def test_it_returns_when_all_runs_with_the_version_have_ended(podium: Podium, registry: Registry) -> None:
    first, second, other = queue(registry), queue(registry), queue(registry, of="bot:v2")
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(lambda: [end(registry, run) for run in (first, second)])
        done = podium("runs", "wait", "--of", "bot:v1", "--timeout", LONG, "--json")
        ending.result()
    assert done.status == 0
    assert {each["run"] for each in done.json} <= {first.id, second.id}
    assert registry.runs.get(other.id).ended_at is None


@pytest.mark.usefixtures("bot")
def test_runs_are_named_by_the_beginning_of_their_ids(podium: Podium, registry: Registry) -> None:
    run = queue(registry)
    end(registry, run)
    done = podium("runs", "wait", run.id[:10])
    assert (done.status, done.stdout) == (0, f"Run {run.id} (evaluate) succeeded.\n")


@pytest.mark.usefixtures("bot")
def test_one_that_did_not_succeed_is_told_by_the_exit_status(podium: Podium, registry: Registry) -> None:
    good, bad, given_up = queue(registry), queue(registry), queue(registry)
    end(registry, good)
    end(registry, bad, RunError("ValueError", "no data"))
    registry.runs.cancel(given_up.id)
    done = podium("runs", "wait", good.id, bad.id, given_up.id)
    assert done.status == 1
    assert "failed: ValueError: no data" in done.stdout and "was cancelled." in done.stdout


@pytest.mark.usefixtures("bot")
def test_one_that_goes_on_after_the_time_given_is_named(podium: Podium, registry: Registry) -> None:
    run = queue(registry)
    late = podium("runs", "wait", run.id, "--timeout", 0.1)
    assert late.status == 3
    assert f"Not ended after 0.1 s: {run.id} (queued)." in late.stderr
    assert f"Waiting for {run.id} (evaluate, queued)." in late.stderr


def test_where_nothing_runs_and_no_trigger_begins_anything_it_returns_at_once(
    podium: Podium, registry: Registry, bot: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = podium("runs", "wait", "--of", "bot:v1", "--timeout", LONG)
    assert (done.status, done.stdout) == (0, "Nothing is queued or runs with bot:v1.\n")
    declared = Trigger("judge", OnArtifact("bot"), queue_run("evaluate", subject="{ref}"))
    trigger = AppObject("app", "trigger", "judge", declared.to_json())
    registry.apps.apply("app", [trigger], plan=registry.apps.plan("app", [trigger]))
    monkeypatch.setattr(wait, "BEGIN_SECONDS", 0.1)
    done = podium("runs", "wait", "--of", "bot:v1", "--timeout", LONG)
    assert done.status == 0 and "Waiting for a trigger to begin a run with bot:v1." in done.stderr


@pytest.mark.parametrize("arguments", [(), ("abc", "--of", "bot:v1"), ("nothing",), ("--of", "cat:v1")])
def test_what_is_waited_for_has_to_be_said_and_be_there(podium: Podium, arguments: tuple[str, ...]) -> None:
    assert podium("runs", "wait", *arguments).status == 2
