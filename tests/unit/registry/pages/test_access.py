"""The page of access: who sees and does what there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from registry.errors import GateFailed
from registry.gates import Approved, Gate
from registry.http.app import create_app
from registry.http.authorising import COOKIE
from registry.http.serving import Running, bound
from registry.identity.roles import TeamRole
from registry.store.stored import StoredRegistry
from registry.values import AppObject
from tests.common.registries import Maker, Place


@pytest.fixture
def stored(sqlite_place: Place, tmp_path: Path) -> StoredRegistry:
    """An artifact whose alias needs an admin's approval."""
    registry = sqlite_place.open()
    Maker(registry, tmp_path).adapter("bot")
    gate = Gate("blessed", "b*", "production", Approved(role="admin"))
    objects = [AppObject("app", gate.deployable, gate.name, gate.to_json())]
    registry.apps.apply("app", objects, plan=registry.apps.plan("app", objects))
    return registry


@pytest.fixture
def client(stored: StoredRegistry) -> Iterator[httpx.Client]:
    with (
        Running(create_app(stored), bound("127.0.0.1", 0)) as running,
        httpx.Client(base_url=running.url, headers={"origin": running.url}) as found,
    ):
        yield found


def sign_in(client: httpx.Client, registry: StoredRegistry, role: TeamRole) -> None:
    client.cookies.set(COOKIE, registry.identity.issue(f"a-{role.value}", role).secret)


def test_a_token_is_made_shown_once_and_revoked(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored, TeamRole.ADMIN)
    page = client.post("/access/tokens", data={"name": "ci", "role": "trainer", "pattern": "b*", "days": "7"})
    (secret,) = set(re.findall(r"podium_[0-9a-f]{12}_[\w-]{43}", page.text))
    made = stored.identity.authenticate(secret)
    assert made is not None and (made.name, made.role, made.pattern) == ("ci", TeamRole.TRAINER, "b*")
    assert page.headers["cache-control"] == "no-store"
    assert secret not in client.get("/access").text
    assert client.post(f"/access/tokens/{made.id}/revoke").status_code == 303
    assert stored.identity.authenticate(secret) is None
    trail = [(line.operation, line.status) for line in stored.identity.audit()]
    assert trail == [("identity.revoke", 200), ("identity.issue", 200)]
    assert "identity.revoke" in client.get("/access").text


@pytest.mark.parametrize("fields", [{"role": "king"}, {"days": "soon"}, {"name": "a b"}, {"days": "-1"}])
def test_a_token_of_nonsense_is_refused_on_a_page(
    client: httpx.Client, stored: StoredRegistry, fields: dict[str, str]
) -> None:
    sign_in(client, stored, TeamRole.ADMIN)
    page = client.post("/access/tokens", data={"name": "ci", "role": "viewer", **fields})
    assert page.status_code == 422 and "That did not work" in page.text
    assert [each.name for each in stored.identity.tokens()] == ["a-admin"]


def test_who_is_no_admin_makes_and_revokes_nothing_and_reads_no_trail(
    client: httpx.Client, stored: StoredRegistry
) -> None:
    sign_in(client, stored, TeamRole.PROMOTER)
    (own,) = stored.identity.tokens()
    assert client.post("/access/tokens", data={"name": "x", "role": "admin"}).status_code == 403
    assert client.post(f"/access/tokens/{own.id}/revoke").status_code == 403
    page = client.get("/access").text
    assert own.id in page and "Revoke…" not in page and "What was asked over HTTP" not in page
    sign_in(client, stored, TeamRole.VIEWER)
    assert own.id not in client.get("/access").text


def test_an_approval_that_is_waited_for_is_given_by_who_may(
    client: httpx.Client, stored: StoredRegistry
) -> None:
    ask = "/artifacts/bot/promote?alias=production&version=v1"
    sign_in(client, stored, TeamRole.PROMOTER)
    assert "bot:v1" in client.get("/access").text
    assert 'id="approve"' not in client.get(ask).text  # a promoter's word is not what the gate asks for
    with pytest.raises(GateFailed):
        stored.promotions.promote("bot:v1", "production")
    sign_in(client, stored, TeamRole.ADMIN)
    assert 'id="approve"' in client.get(ask).text
    given = client.post(
        "/artifacts/bot/approve", data={"alias": "production", "version": "v1", "reason": "read it"}
    )
    assert given.headers["location"] == ask
    assert "read it" in client.get(ask).text
    assert "bot:v1" not in client.get("/access").text
    assert stored.promotions.promote("bot:v1", "production").to_version == 1
