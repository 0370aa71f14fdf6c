"""What `podium up` does with what was deployed: triggers act, handlers run, holds are waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from registry import Registry, Settings, connect
from registry.apps.deploying import prepare
from registry.deliveries import DeliveryState
from registry.errors import NotFound
from tests.common.loops import eventually
from tests.common.receiver import receiving
from triggers.service import run_events

pytestmark = pytest.mark.integration

Scenario = Callable[[Registry], Awaitable[None]]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = connect(
        Settings(
            home=tmp_path / "home",
            actor="ada",
            notify_networks="127.0.0.0/8",
            notify_secret=SecretStr("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        )
    )
    yield opened
    opened.close()


@pytest.fixture
def deploy(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Deploy an app file of this text."""
    monkeypatch.setenv("PODIUM_HOME", str(registry.settings.home))

    def deploying(text: str) -> None:
        path = tmp_path / "app.py"
        path.write_text("from registry import *\nfrom triggers import *\napp = App('support')\n" + text)
        app, objects = prepare(registry, path)
        registry.apps.apply(app, objects, plan=registry.apps.plan(app, objects))

    return deploying


@asynccontextmanager
async def up(registry: Registry) -> AsyncIterator[list[str]]:
    stop, lines = asyncio.Event(), list[str]()

    def report(line: str, *, healthy: bool = True) -> None:
        lines.append(line)

    task = asyncio.create_task(run_events(registry, stop, report))
    try:
        yield lines
    finally:
        stop.set()
        await task


def run(registry: Registry, scenario: Scenario) -> None:
    async def whole() -> None:
        async with up(registry):
            await scenario(registry)

    asyncio.run(whole())


def publish(registry: Registry, folder: Path, text: str, name: str = "tickets") -> str:
    path = folder / "data.txt"
    path.write_text(text)
    return registry.catalog.publish(name, path, "dataset").version.ref


def alias_of(registry: Registry, alias: str = "staging") -> int | None:
    try:
        return registry.promotions.get("tickets", alias).version
    except NotFound:
        return None


def states(registry: Registry) -> list[DeliveryState]:
    return [each.state for each in reversed(registry.deliveries.find())]


PROMOTE = 'stage = Trigger("stage", OnArtifact("tickets"), Promote("staging"))\n'


def test_a_trigger_promotes_what_was_published_and_the_history_says_why(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy(PROMOTE)
        publish(registry, tmp_path, "one")
        await eventually(lambda: alias_of(registry) == 1)
        (promotion,) = registry.promotions.history("tickets")
        assert promotion.actor == "trigger:support/stage"
        assert promotion.reason == "version.published tickets:v1"
        cause, effect = registry.events.after(0)
        assert (effect.causation, effect.correlation) == (cause.id, cause.correlation)

    run(registry, scenario)


def test_what_was_published_while_nothing_ran_is_handled_at_the_next_start(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    publish(registry, tmp_path, "before the deploy")
    deploy(PROMOTE)
    publish(registry, tmp_path, "after it")

    async def scenario(registry: Registry) -> None:
        await eventually(lambda: alias_of(registry) == 2)
        assert [p.to_version for p in registry.promotions.history("tickets")] == [2]

    run(registry, scenario)


def test_a_trigger_waits_for_a_hold_and_goes_on_when_it_is_released(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy(PROMOTE)
        for text in ("one", "two"):
            publish(registry, tmp_path, text)
        await eventually(lambda: alias_of(registry) == 2)
        await eventually(lambda: states(registry) == [DeliveryState.DONE] * 2)
        registry.promotions.rollback("tickets", "staging", to=1)
        publish(registry, tmp_path, "three")
        await eventually(lambda: states(registry)[-1] is DeliveryState.HELD)
        assert alias_of(registry) == 1
        assert not [e for e in registry.events.after(0) if e.type == "podium.promotion.refused"]
        registry.promotions.release("tickets", "staging")
        await eventually(lambda: alias_of(registry) == 3)

    run(registry, scenario)


def test_a_run_is_queued_once_for_each_event_with_the_event_as_its_cause(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy('t = Trigger("train", OnArtifact("tickets"), queue_run("sft", data="{ref}", rank=4))\n')
        publish(registry, tmp_path, "one")
        await eventually(lambda: states(registry) == [DeliveryState.DONE])
        (queued,) = registry.runs.list()
        assert queued.task == "sft"
        assert queued.actor == "trigger:support/train"
        assert queued.arguments == {"rank": 4}
        assert {i.parameter: i.ref for i in queued.inputs} == {"data": "tickets:v1"}
        assert queued.causation == registry.events.after(0)[0].id
        assert queued.key == registry.deliveries.find()[0].id

    run(registry, scenario)


def test_a_task_of_the_apps_own_file_is_queued_with_its_code(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    text = (
        "from trainers import TaskEnvironment\nenv = TaskEnvironment('cpu')\n"
        "@env.task\ndef count(data: Dataset) -> int:\n    return 1\n"
        'c = Trigger("count", OnArtifact("tickets"), queue_run(count, data="{ref}"))\n'
    )

    async def scenario(registry: Registry) -> None:
        deploy(text)
        publish(registry, tmp_path, "one")
        await eventually(lambda: states(registry) == [DeliveryState.DONE])
        (queued,) = registry.runs.list()
        (code,) = registry.apps.objects("code")
        assert (queued.task, queued.code) == ("app.py:count", code.body["bundle"])

    run(registry, scenario)


def test_a_deployed_handler_runs_in_a_process_of_its_own_and_a_new_deploy_replaces_it(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    text = (
        "import os\n@subscribe(OnArtifact('tickets'))\ndef note(event, context):\n"
        f"    open({str(seen)!r}, 'a').write(f'WORD {{event.ref}} {{os.getpid()}}\\n')\n"
    )

    def lines() -> list[list[str]]:
        return [line.split() for line in seen.read_text().splitlines()] if seen.exists() else []

    async def scenario(registry: Registry) -> None:
        deploy(text.replace("WORD", "first"))
        publish(registry, tmp_path, "one")
        await eventually(lambda: len(lines()) == 1, 40)
        deploy(text.replace("WORD", "second"))
        await eventually(lambda: replaced(registry), 40)
        publish(registry, tmp_path, "two")
        await eventually(lambda: len(lines()) == 2, 40)
        first, second = lines()
        assert (first[:2], second[:2]) == (["first", "tickets:v1"], ["second", "tickets:v2"])
        assert first[2] != second[2]

    run(registry, scenario)


def test_a_handler_that_kills_its_process_dies_alone(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    text = (
        "import os, time\nfrom pathlib import Path\n"
        "@subscribe(OnArtifact('tickets'), name='kills', retries=0)\ndef kills(event, context):\n"
        f"    while not Path({str(began)!r}).exists(): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), 9)\n"
        "@subscribe(OnArtifact('tickets'), name='works', retries=0)\ndef works(event, context):\n"
        f"    Path({str(began)!r}).touch()\n"
        f"    while not Path({str(go)!r}).exists(): time.sleep(0.01)\n"
    )

    def ended() -> dict[str, tuple[str, int]]:
        return {each.subscription: (each.state.value, each.attempts) for each in registry.deliveries.find()}

    async def scenario(registry: Registry) -> None:
        deploy(text)
        publish(registry, tmp_path, "one")
        await eventually(lambda: ended().get("support/kills", ("", 0))[0] == "dead", 60)
        go.touch()
        await eventually(lambda: ended().get("support/works") == ("done", 1), 60)

    run(registry, scenario)


def replaced(registry: Registry) -> bool:
    """Whether the process of the newest code has begun."""
    return len(list((registry.settings.home / "apps" / "support").glob("*"))) == 2


def test_deliveries_to_a_trigger_that_is_removed_are_stopped(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy('n = Trigger("tell", OnArtifact(), Notify("http://127.0.0.1:9/"), backoff=60)\n')
        publish(registry, tmp_path, "one")
        await eventually(lambda: states(registry) == [DeliveryState.PENDING] and attempts(registry) == 1)
        deploy("")
        await eventually(lambda: states(registry) == [DeliveryState.STOPPED])

    run(registry, scenario)


def attempts(registry: Registry) -> int:
    return registry.deliveries.find()[0].attempts


def test_a_notification_is_a_cloudevent_with_an_idempotency_key_and_is_repeated_until_it_is_taken(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy(f'n = Trigger("tell", OnArtifact(), Notify("{receiver.url}/hook"), backoff=0.05)\n')
        publish(registry, tmp_path, "one")
        await eventually(lambda: states(registry) == [DeliveryState.DONE])

    with receiving() as receiver:
        receiver.statuses = [503]
        run(registry, scenario)
    first, second = receiver.taken
    body = json.loads(first.body)
    assert body["type"] == "podium.version.published"
    assert body["data"]["artifact"] == "tickets"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-signature"].startswith("v1,")


def test_a_trigger_that_follows_from_itself_stops_after_the_first_turn(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    async def scenario(registry: Registry) -> None:
        deploy('t = Trigger("turn", OnPromotion(), Promote("next"))\n')
        ref = publish(registry, tmp_path, "one")
        registry.promotions.promote(ref, "staging")
        await eventually(lambda: states(registry) == [DeliveryState.DONE, DeliveryState.STOPPED])
        assert alias_of(registry, "next") == 1

    run(registry, scenario)


def test_two_ups_of_one_home_share_the_work_and_one_takes_over(
    registry: Registry, deploy: Callable[[str], None], tmp_path: Path
) -> None:
    other = connect(registry.settings)

    async def scenario() -> None:
        deploy(PROMOTE)
        async with up(other):
            async with up(registry):
                publish(registry, tmp_path, "one")
                await eventually(lambda: alias_of(registry) == 1)
            publish(registry, tmp_path, "two")
            await eventually(lambda: alias_of(registry) == 2, 40)

    asyncio.run(scenario())
    other.close()
    assert states(registry) == [DeliveryState.DONE] * 2
