"""A promotion over HTTP is judged before its transaction begins, and kept with all that belongs to it."""

from __future__ import annotations

import pytest

from registry.gates.rules import Gate, Threshold
from registry.store import evidence
from registry.store.stored import StoredRegistry
from registry.values import AppObject
from registry.wire import headers
from tests.common.registries import Maker
from tests.unit.registry.http.conftest import Api

_MOVE = {"alias": "production"}
_PATH = "/versions/bot:v1/promotions"


def _trail(beneath: StoredRegistry) -> list[int]:
    """What was answered to each promotion, as the trail has it."""
    return [e.status for e in beneath.identity.audit(limit=20) if e.operation == "promotions.promote"]


def test_others_write_while_a_promotion_is_judged(
    bot: Maker, api: Api, beneath: StoredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_all, judged = evidence.judge_all, []

    def writing_beside(*given: object) -> object:
        judged.append(beneath.catalog.tag("bot:v2", {"seen": str(len(judged))}))
        return judge_all(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(evidence, "judge_all", writing_beside)
    given = {headers.IDEMPOTENCY: "one"}
    answers = [api().post(_PATH, json=_MOVE, headers=given) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert len(judged) == 1


def test_a_promotion_is_kept_with_its_answer_and_its_line_in_the_trail(
    bot: Maker, api: Api, beneath: StoredRegistry
) -> None:
    assert api().post(_PATH, json=_MOVE, headers={headers.IDEMPOTENCY: "one"}).status_code == 200
    assert _trail(beneath) == [200]
    replayed = api().post(_PATH, json=_MOVE, headers={headers.IDEMPOTENCY: "one"})
    assert replayed.headers["idempotent-replayed"] == "true"
    assert _trail(beneath) == [200]


def test_a_promotion_that_a_gate_refuses_leaves_a_line_and_an_event_and_no_move(
    bot: Maker, api: Api, beneath: StoredRegistry
) -> None:
    bot.dataset()
    gate = Gate("good", "bot", "production", Threshold(metric="accuracy", on="held-out:v1", at_least=0.5))
    objects = [AppObject("support", "gate", gate.name, gate.to_json())]
    beneath.apps.apply("support", objects, plan=beneath.apps.plan("support", objects))
    answer = api().post(_PATH, json=_MOVE, headers={headers.IDEMPOTENCY: "one"})
    assert (answer.status_code, answer.json()["code"]) == (409, "gate_failed")
    assert _trail(beneath) == [409]
    assert beneath.events.tail(limit=1)[0].type == "podium.promotion.refused"
    assert beneath.promotions.history("bot") == []
