"""What app files declare: filters, subscriptions, triggers, actions; and that JSON gives them back."""

from __future__ import annotations

from typing import Any

import pytest

from registry.apps import Deployable
from registry.events import Data, EvaluationRecorded, EventType, RolloutChanged, RunChanged
from registry.resources import Resources
from registry.runs import RunRequest
from registry.values import AppObject, Event, Role
from tests.common.outbox import promoted, published
from tests.unit.triggers.bus_suite import event
from triggers.actions import Notify, Promote, QueueRun, filled, queue_run
from triggers.errors import InvalidAction, InvalidFilter, InvalidSubscription
from triggers.filters import (
    Filter,
    OnArtifact,
    OnEvaluation,
    OnPromotion,
    OnRollout,
    OnRun,
    filter_from_json,
    filter_to_json,
)
from triggers.retry import LONGEST_BACKOFF, RetryPolicy
from triggers.subscription import Subscription, subscribe
from triggers.trigger import Trigger


def happened(type: EventType, data: Data) -> Event:
    fields: dict[str, Any] = {name: getattr(event(1), name) for name in Event.__dataclass_fields__}
    return Event(**{**fields, "type": type.value, "data": data.model_dump(mode="json")})


MOVED = happened(EventType.ALIAS_PROMOTED, promoted("support-bot", 3, alias="candidate"))
BACK = happened(EventType.ALIAS_ROLLED_BACK, promoted("support-bot", 2, alias="candidate"))
NEW = happened(
    EventType.VERSION_PUBLISHED, published("support-bot", 3).model_copy(update={"tags": {"a": "1"}})
)
JUDGED = happened(
    EventType.EVALUATION_RECORDED,
    EvaluationRecorded(
        report="report:v1",
        artifact="support-bot",
        version=3,
        subject_digest="sha256:a",
        dataset_digest="sha256:b",
        evaluator="evaluate",
        scores={"accuracy": 0.9},
    ),
)
LIVE = happened(
    EventType.ROLLOUT_LIVE,
    RolloutChanged(
        deployment="router", served="bot", artifact="support-bot", alias="p", version=3, generation=2
    ),
)
FAILED = happened(EventType.RUN_FAILED, RunChanged(run="r1", task="sft", state="failed"))


@pytest.mark.parametrize(
    ("filter", "event", "expected"),
    [
        (OnPromotion(), MOVED, True),
        (OnPromotion("support-*", "candidate"), MOVED, True),
        (OnPromotion("support-bot", "production"), MOVED, False),
        (OnPromotion("other"), MOVED, False),
        (OnPromotion(), BACK, False),
        (OnPromotion(rollbacks=True), BACK, True),
        (OnPromotion(), NEW, False),
        (OnArtifact("support-bot"), NEW, True),
        (OnArtifact(kind="adapter"), NEW, True),
        (OnArtifact(kind="model"), NEW, False),
        (OnArtifact(tags={"a": "1"}), NEW, True),
        (OnArtifact(tags={"a": "2"}), NEW, False),
        (OnEvaluation("support-bot", "accuracy", at_least=0.9), JUDGED, True),
        (OnEvaluation(metric="accuracy", at_least=0.91), JUDGED, False),
        (OnEvaluation(metric="accuracy", at_most=0.5), JUDGED, False),
        (OnEvaluation(metric="nll"), JUDGED, False),
        (OnEvaluation(evaluator="manual"), JUDGED, False),
        (OnRollout("support-bot"), LIVE, True),
        (OnRollout(state="failed"), LIVE, False),
        (OnRollout(deployment="other"), LIVE, False),
        (OnRun("sft", "failed"), FAILED, True),
        (OnRun("sft"), FAILED, False),
        (OnRun("evaluate", "failed"), FAILED, False),
    ],
)
def test_a_filter_matches_what_it_says(filter: Filter, event: Event, expected: bool) -> None:
    assert filter.matches(event) is expected
    assert filter_from_json(filter_to_json(filter)) == filter


def test_an_event_with_unknown_data_matches_nothing_and_breaks_nothing() -> None:
    fields: dict[str, Any] = {name: getattr(MOVED, name) for name in Event.__dataclass_fields__}
    for type in EventType:
        empty = Event(**{**fields, "type": type.value, "data": {}})
        filters = (
            OnPromotion("support-bot"),
            OnArtifact("support-bot"),
            OnEvaluation("support-bot", "accuracy"),
            OnRollout("support-bot"),
            OnRun("sft"),
        )
        assert not any(filter.matches(empty) for filter in filters)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OnPromotion(alias="latest"),
        lambda: OnPromotion(alias="v3"),
        lambda: OnRollout(state="lively"),
        lambda: OnRun(state="flying"),
        lambda: OnEvaluation(at_least=0.5),
        lambda: filter_from_json({"on": "moon"}),
        lambda: filter_from_json({"on": "run", "phase": "full"}),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(InvalidFilter):
        make()


def test_a_decorated_function_is_a_deployable_subscription_and_still_a_function() -> None:
    @subscribe(OnPromotion("support-bot"), mode="latest", retries=2)
    def tell_them(event: Any, context: Any) -> None:
        """Tell them."""
        event.append(context)

    calls: list[Any] = []
    tell_them(calls, 1)  # type: ignore[arg-type]
    assert calls == [1]
    assert isinstance(tell_them, Subscription)
    assert isinstance(tell_them, Deployable)
    assert (tell_them.name, tell_them.__doc__) == ("tell-them", "Tell them.")
    assert tell_them.to_json() == {
        "on": {"on": "promotion", "artifact": "support-bot", "alias": None, "rollbacks": False},
        "mode": "latest",
        "retries": 2,
        "backoff": 1.0,
    }


@pytest.mark.parametrize(
    "options", [{"mode": "some"}, {"retries": -1}, {"backoff": -1.0}, {"name": "Not A Name"}, {"name": ""}]
)
def test_a_subscription_with_settings_that_cannot_be_used_is_refused(options: Any) -> None:
    with pytest.raises(InvalidSubscription):
        subscribe(OnPromotion(), **options)(lambda event, context: None)


TRIGGERS = [
    Trigger("judge", OnArtifact("bot"), queue_run("evaluate", subject="{ref}", data="held-out:v1", limit=3)),
    Trigger("stage", OnEvaluation("bot", "accuracy", at_least=0.9), Promote("staging"), mode="latest"),
    Trigger("tell", OnRollout(state="failed"), Notify("https://example.org/hook"), retries=9, backoff=0.5),
]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda t: t.name)
def test_a_trigger_is_deployable_and_its_json_gives_it_back(trigger: Trigger) -> None:
    assert isinstance(trigger, Deployable)
    stored = AppObject("app", trigger.deployable, trigger.name, trigger.to_json())
    assert Trigger.from_json(stored.name, stored.body) == trigger


def test_arguments_that_look_like_references_are_inputs() -> None:
    action = queue_run("evaluate", subject="{ref}", data="held-out:v1", note="a b:c", limit=3)
    assert action.inputs == {"subject": "{ref}", "data": "held-out:v1"}
    assert action.arguments == {"note": "a b:c", "limit": 3}


def test_a_task_says_itself_what_it_needs() -> None:
    class Train:
        __module__ = "app"

        def request(self, arguments: Any) -> RunRequest:
            return RunRequest(
                "train", inputs=arguments, roles={"data": Role.DATA}, resources=Resources(cpu=2), retries=3
            )

    action = queue_run(Train(), data="{ref}")
    assert action == QueueRun(
        ":train",
        inputs={"data": "{ref}"},
        roles={"data": "data"},
        resources=Resources(cpu=2).to_json(),
        retries=3,
    )


@pytest.mark.parametrize(
    ("on", "action"),
    [
        (OnArtifact(), queue_run("evaluate", subject="{refs}")),
        (OnArtifact(), QueueRun("evaluate", inputs={"subject": "{ref.__class__}"})),
        (OnArtifact(), QueueRun("evaluate", inputs={"subject": "{ref"})),
        (OnArtifact(), QueueRun("evaluate", roles={"subject": "king"})),
        (OnArtifact(), Promote("latest")),
        (OnArtifact(), Notify("file:///etc/passwd")),
        (OnRun(), Promote("staging")),
        (OnRun(), queue_run("evaluate", subject="{artifact}:v1")),
    ],
)
def test_an_action_that_its_events_cannot_feed_is_refused(on: Filter, action: Any) -> None:
    with pytest.raises(InvalidAction):
        Trigger("t", on, action)


def test_placeholders_are_filled_from_the_event() -> None:
    assert filled("{artifact} by {actor}", {"artifact": "bot", "actor": "ada"}) == "bot by ada"
    with pytest.raises(InvalidAction, match="ref"):
        filled("{ref}", {})


def test_each_retry_waits_about_twice_as_long_and_the_last_one_is_the_last() -> None:
    policy = RetryPolicy(retries=3, backoff=1.0)
    delays = [policy.delay(n, "d") for n in (1, 2, 3, 4)]
    assert delays[3] is None
    for expected, delay in zip((1, 2, 4), delays, strict=False):
        assert delay is not None
        assert expected / 2 <= delay <= expected
    assert policy.delay(1, "d") == policy.delay(1, "d")
    assert policy.delay(1, "d") != policy.delay(1, "e")


def test_no_delay_is_longer_than_the_longest() -> None:
    delay = RetryPolicy(retries=10_000, backoff=1.0).delay(9_999, "d")
    assert delay is not None
    assert delay <= LONGEST_BACKOFF
