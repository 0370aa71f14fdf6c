"""What a run made and nobody named: every id that is shown opens with `show`, `lineage` and `pull`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import RESULT, NewOutput, Run, RunRequest
from registry.values import Role
from tests.common import content
from tests.common.registries import Maker, running, write_report
from tests.unit.registry.cli.conftest import Podium

ROOM = Resources(cpu=8, memory="8Gi")
OPENING = ("show", "lineage", "pull")


@pytest.fixture
def made(registry: Registry, tmp_path: Path) -> Run:
    """A run with a step; each made an adapter without a name."""
    acting, claim = running(registry, "train")
    acting.steps.ask(RunRequest("fit", parent=claim.run.id, place="/fit#1"))
    (taken,) = registry.runs.claim("worker", free=ROOM, total=ROOM)
    for number, writing in enumerate((taken, claim)):
        folder = content.write_adapter(tmp_path / writing.run.id, seed=number)
        stored = registry.catalog.store(folder, "adapter")
        output = NewOutput(RESULT, "adapter", stored.digest)
        registry.acting(writing.origin).runs.finish(writing.run.id, [output])
    return registry.runs.get(claim.run.id)


def opened(podium: Podium, verb: str, name: str, tmp_path: Path) -> object:
    rest = [tmp_path / "pulled" / name.replace("/", "-")] if verb == "pull" else []
    done = podium(verb, name, *rest, "--json")
    assert done.status == 0, done
    data = done.json
    return data["nodes"][0]["digest"] if verb == "lineage" else data["digest"]


@pytest.mark.parametrize("verb", OPENING)
def test_it_is_opened_by_its_id_its_digest_its_run_and_its_step(
    podium: Podium, registry: Registry, made: Run, tmp_path: Path, verb: str
) -> None:
    (output,) = made.outputs
    (step,) = registry.steps.of(made.id)
    names = (output.value, output.value[:12], output.digest[:20], output.digest[7:19], made.id, made.id[:8])
    assert {opened(podium, verb, name, tmp_path) for name in names} == {output.digest}
    assert opened(podium, verb, f"{made.id}/fit", tmp_path) == step.outputs[0].digest


@pytest.mark.parametrize("verb", ["show", "pull"])
def test_a_name_comes_before_an_id_that_begins_alike(
    podium: Podium, registry: Registry, made: Run, make: Maker, tmp_path: Path, verb: str
) -> None:
    name = made.outputs[0].value[:4]
    version = make.adapter(name)
    data = podium(verb, name, *([tmp_path / "out"] if verb == "pull" else []), "--json").json
    assert (data["ref"] if verb == "pull" else data["versions"][0]["ref"]) == version.ref


def test_an_ambiguous_beginning_is_refused_with_all_that_begin_so(
    podium: Podium, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["abcd" + "0" * 28, "abcd" + "1" * 28])
    monkeypatch.setattr("registry.store.values.uuid", SimpleNamespace(uuid4=lambda: UUID(next(ids))))
    make.adapter("bot"), make.adapter("cat")
    refused = podium("show", "abcd")
    assert (refused.status, "'abcd' begins several ids." in refused.stderr) == (2, True)
    assert all(said in refused.stderr for said in ("abcd0000", "bot:v1", "abcd1111", "cat:v1"))


def test_what_a_name_was_given_is_shown_as_the_version(podium: Podium, registry: Registry, made: Run) -> None:
    registry.catalog.name("bot", made.outputs[0].value)
    shown = podium("show", made.id)
    assert (shown.status, "bot:v1" in shown.stdout) == (0, True)


@pytest.mark.parametrize("verb", OPENING)
def test_what_names_nothing_is_not_found(podium: Podium, made: Run, tmp_path: Path, verb: str) -> None:
    rest = [tmp_path / "pulled"] if verb == "pull" else []
    for name in ("0" * 12, "sha256:" + "0" * 12, f"{made.id}/nothing"):
        missed = podium(verb, name, *rest)
        assert (missed.status, missed.stdout) == (2, "")


def test_a_report_without_a_name_shows_its_scores(
    podium: Podium, registry: Registry, bot: Maker, tmp_path: Path
) -> None:
    subject, data = registry.catalog.resolve("bot:v1"), registry.catalog.resolve("held-out:v1")
    inputs = {"subject": subject.ref, "data": data.ref}
    roles = {"subject": Role.SUBJECT, "data": Role.HELD_OUT}
    run = registry.runs.queue(RunRequest("evaluate", inputs=inputs, roles=roles))
    (claim,) = registry.runs.claim("worker", free=ROOM, total=ROOM, only=run.id)
    folder = write_report(tmp_path / "report", subject.digest, data.digest, 0.875)
    stored = registry.catalog.store(folder, "report")
    output = NewOutput(RESULT, "report", stored.digest)
    (made,) = registry.acting(claim.origin).runs.finish(run.id, [output]).outputs
    shown = podium("show", made.value[:12])
    assert shown.status == 0
    assert "accuracy" in shown.stdout and "0.875" in shown.stdout and made.value[:12] in shown.stdout
