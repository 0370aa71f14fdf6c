"""Who may do what over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import SecretStr

from registry.database.statements import sql
from registry.errors import Forbidden, RunRefused, Unauthorized
from registry.gates.rules import Gate, Threshold
from registry.identity.roles import TeamRole
from registry.resources import Resources
from registry.runs import RunRequest
from registry.store.stored import StoredRegistry
from registry.values import AppObject, Origin
from tests.common.registries import Maker, Place, ServedPlace
from tests.unit.registry.http.conftest import Api, Client


@pytest.mark.parametrize("token", ["", "nonsense", "podium_000000000000_" + "a" * 43])
def test_without_a_token_that_is_known_nothing_is_answered(api: Api, token: str) -> None:
    answer = api(token=token).get("/artifacts")
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthorized"
    assert "PODIUM_TOKEN" in answer.json()["remedy"]


def test_a_revoked_token_is_refused_from_then_on(beneath: StoredRegistry, api: Api) -> None:
    issued = beneath.identity.issue("carol", TeamRole.VIEWER)
    http = api(token=issued.secret)
    assert http.get("/artifacts").status_code == 200
    beneath.identity.revoke("carol")
    assert http.get("/artifacts").status_code == 401


def test_an_expired_token_is_refused(beneath: StoredRegistry) -> None:
    issued = beneath.identity.issue("carol", TeamRole.VIEWER, days=1)
    assert beneath.identity.authenticate(issued.secret) is not None
    database = beneath._session.database
    real = database.now
    database.now = lambda: real() + timedelta(days=1, seconds=1)
    assert beneath.identity.authenticate(issued.secret) is None


def test_an_expired_token_is_answered_as_an_unknown_one(beneath: StoredRegistry, api: Api) -> None:
    issued = beneath.identity.issue("carol", TeamRole.VIEWER, days=1)
    http = api(token=issued.secret)
    assert http.get("/artifacts").status_code == 200
    past = beneath._session.now() - timedelta(days=1)
    expire = sql("UPDATE token SET expires_at = :past WHERE id = :id")
    with beneath._session.database.transaction() as transaction:
        transaction.execute(expire, past=past, id=issued.token.id)
    assert http.get("/artifacts").status_code == 401


def test_only_the_hash_of_a_token_is_stored(place: ServedPlace, beneath: StoredRegistry) -> None:
    secret = beneath.identity.issue("carol", TeamRole.ADMIN).secret.split("_", 2)[2]
    stored = b"".join(path.read_bytes() for path in place.settings.home.glob("podium.db*"))
    assert secret.encode() not in stored


@pytest.mark.parametrize(
    ("role", "may"),
    [("viewer", False), ("trainer", False), ("promoter", True), ("admin", True)],
)
def test_only_promoters_and_above_promote(bot: Maker, client: Client, role: str, may: bool) -> None:
    registry = client(role)
    assert registry.catalog.resolve("bot:v1").number == 1
    if may:
        assert registry.promotions.promote("bot:v1", "production").to_version == 1
        return
    with pytest.raises(Forbidden, match="needs the role promoter") as refusal:
        registry.promotions.promote("bot:v1", "production")
    assert refusal.value.details["needed"] == "promoter"


def test_a_viewer_publishes_nothing(bot: Maker, client: Client) -> None:
    with pytest.raises(Forbidden, match="needs the role trainer"):
        Maker(client("viewer"), bot.scratch / "viewer").adapter("bot")


def test_a_pattern_bounds_what_a_token_may_change(bot: Maker, client: Client) -> None:
    registry = client("promoter", pattern="support-*")
    assert registry.catalog.resolve("bot:v1").number == 1
    with pytest.raises(Forbidden, match="match 'support-\\*'"):
        registry.promotions.promote("bot:v1", "production")
    with pytest.raises(Forbidden, match="match"):
        Maker(registry, bot.scratch / "scoped").adapter("bot")
    with pytest.raises(Forbidden, match="match"):
        registry.runs.queue(RunRequest("sft", publish="bot", resources=Resources(cpu=1)))


def test_a_protected_alias_moves_by_its_role_alone(
    bot: Maker, beneath: StoredRegistry, client: Client
) -> None:
    beneath.identity.protect("bo*", "production", TeamRole.ADMIN)
    promoter = client("promoter")
    promoter.promotions.promote("bot:v1", "candidate")
    for move in (
        lambda: promoter.promotions.promote("bot:v1", "production"),
        lambda: promoter.promotions.rollback("bot", "production"),
    ):
        with pytest.raises(Forbidden, match="needs the role admin"):
            move()
    client("admin").promotions.promote("bot:v1", "production")
    beneath.identity.protect("bo*", "production", TeamRole.PROMOTER)
    assert promoter.promotions.promote("bot:v2", "production").to_version == 2


def test_a_promoter_deploys_but_changes_no_gate(client: Client) -> None:
    gate = Gate("good", "bot", "production", Threshold(metric="accuracy", on="held-out:v1", at_least=0.5))
    guarded = [AppObject("support", "gate", gate.name, gate.to_json())]
    promoter, admin = client("promoter"), client("admin")
    with pytest.raises(Forbidden, match="needs the role admin"):
        promoter.apps.apply("support", guarded, plan=promoter.apps.plan("support", guarded))
    admin.apps.apply("support", guarded, plan=admin.apps.plan("support", guarded))
    with pytest.raises(Forbidden, match="needs the role admin"):  # taking it away would open the alias
        promoter.apps.apply("support", [], plan=promoter.apps.plan("support", []))


def test_what_is_written_is_of_who_has_the_token(bot: Maker, client: Client, beneath: StoredRegistry) -> None:
    registry = client("promoter").acting(Origin("user:mallory"))
    assert registry.promotions.promote("bot:v1", "production").actor == "user:bob"


@pytest.mark.parametrize("actor", ["system:serving", "trigger:app/name", "run:3fa85f645717"])
def test_a_promoter_writes_as_nobody_else(bot: Maker, client: Client, actor: str) -> None:
    with pytest.raises(Forbidden, match="cannot write as"):
        client("promoter").acting(Origin(actor)).promotions.promote("bot:v1", "production")


def test_the_leases_of_relay_and_controllers_are_an_admins(client: Client) -> None:
    with pytest.raises(Forbidden, match="needs the role admin"):
        client("trainer").leases.acquire("relay", "me")
    assert client("admin").leases.acquire("relay", "me") is not None


def _run_token(beneath: StoredRegistry) -> tuple[str, str]:
    """A run that a worker carries out, and its token."""
    run = beneath.runs.queue(RunRequest("train.py:train", resources=Resources(cpu=1)))
    room = Resources(cpu=4, memory="8Gi")
    (claim,) = beneath.runs.claim("worker-1", free=room, total=room, only=run.id)
    return run.id, beneath.acting(claim.origin).identity.for_run(run.id).secret


def test_a_runs_token_speaks_for_its_run_alone(bot: Maker, beneath: StoredRegistry, api: Api) -> None:
    run, secret = _run_token(beneath)
    http = api(token=secret)
    facts = http.get("/server").json()
    assert facts["actor"] == f"run:{run}"
    assert http.post(f"/runs/{run}/attempts/1/log", json={"data": "aGVsbG8="}).status_code == 200
    refused = http.post("/versions/bot:v1/promotions", json={"alias": "production"})
    assert refused.status_code == 403
    assert http.post("/tokens", json={"name": "x", "role": "admin"}).status_code == 403


def test_a_runs_token_ends_with_its_lease(beneath: StoredRegistry, api: Api) -> None:
    run, secret = _run_token(beneath)
    http = api(token=secret)
    assert http.get(f"/runs/{run}").status_code == 200
    beneath.runs.cancel(run)
    assert http.get(f"/runs/{run}").status_code == 401


def test_an_approval_says_who_gave_it_in_which_role(
    bot: Maker, client: Client, beneath: StoredRegistry
) -> None:
    client("promoter").identity.approve("bot:v1", "production", reason="read the samples")
    (given,) = beneath.identity.approvals(beneath.catalog.resolve("bot:v1").digest)
    assert (given.actor, given.role, given.reason) == ("user:bob", TeamRole.PROMOTER, "read the samples")


def test_every_write_has_a_line_in_the_trail_also_one_that_was_refused(
    bot: Maker, client: Client, beneath: StoredRegistry
) -> None:
    registry = client("promoter")
    registry.promotions.promote("bot:v1", "production")
    with pytest.raises(Forbidden):
        registry.identity.issue("eve", TeamRole.ADMIN)
    newest = [(e.actor, e.operation, e.status) for e in beneath.identity.audit(limit=2)]
    assert newest == [("user:bob", "identity.issue", 403), ("user:bob", "promotions.promote", 200)]


def test_the_trail_and_tokens_of_runs_are_kept_for_their_time_alone(
    bot: Maker, client: Client, beneath: StoredRegistry
) -> None:
    run, _ = _run_token(beneath)
    client("promoter").promotions.promote("bot:v1", "production")
    lines = len(beneath.identity.audit(limit=100))
    assert lines > 0
    assert beneath.identity.forget(audit_days=400) == 0
    database = beneath._session.database
    real = database.now
    database.now = lambda: real() + timedelta(days=31)
    assert beneath.identity.forget(audit_days=32) == 0
    assert beneath.identity.forget(audit_days=30) == lines
    count = sql("SELECT count(*) FROM token WHERE run = :run")
    with database.reading() as reader:
        assert reader.one(count, run=run)[0] == 0
    assert "ada" in [token.name for token in beneath.identity.tokens()]


def test_other_errors_keep_their_kind_over_http(place: Place, bot: Maker) -> None:
    registry = place.open()
    run = registry.runs.queue(RunRequest("train.py:train", resources=Resources(cpu=1)))
    with pytest.raises(RunRefused):
        registry.runs.recover(run.id)
    with pytest.raises(Unauthorized):
        place.open(token=SecretStr("podium_000000000000_" + "a" * 43)).catalog.artifacts()
