"""What the pages promise beside how they look: who sees what, and that no text becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from registry.errors import NotFound
from registry.http.app import create_app
from registry.http.authorising import COOKIE
from registry.http.serving import Running, bound
from registry.identity.roles import TeamRole
from registry.pages.lineage import merge
from registry.pages.plan import earlier
from registry.store.stored import StoredRegistry
from registry.values import LineageEdge, LineageGraph, LineageNode, Role
from tests.common.registries import Maker, Place

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
#: What the policy would not let run: script without an address, style, handlers in a tag.
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|<[a-z][^<>]*\s(style|on[a-z]+)=")
PAGES = (
    "/artifacts",
    "/artifacts/bot",
    "/artifacts/bot/v1",
    "/artifacts/bot/compare?before=v1&after=v2",
    "/artifacts/bot/aliases/production",
    "/artifacts/bot/aliases/production/1",
    "/artifacts/bot/promote?alias=production&version=v2",
    "/artifacts/bot/rollback?alias=production",
    "/artifacts/nothing",
    "/sign-in",
    "/deployments",
    "/events",
    "/events?type=alias&of=bot&actor=%3Cb%3E",
    "/events/dead",
    "/events/subscriptions",
    "/events/nothing",
    "/events/deliveries/nothing",
    "/access",
)


@pytest.fixture
def stored(sqlite_place: Place, tmp_path: Path) -> StoredRegistry:
    """Two versions, of which the alias went from the first to the second."""
    registry = sqlite_place.open()
    make = Maker(registry, tmp_path)
    for number in (1, 2):
        make.adapter("bot")
        registry.promotions.promote(f"bot:v{number}", "production", reason=HOSTILE)
    registry.catalog.tag("bot:v1", {"why": HOSTILE})
    return registry


@pytest.fixture
def client(stored: StoredRegistry) -> Iterator[httpx.Client]:
    with (
        Running(create_app(stored), bound("127.0.0.1", 0)) as running,
        httpx.Client(base_url=running.url) as found,
    ):
        yield found


def sign_in(client: httpx.Client, registry: StoredRegistry, role: TeamRole = TeamRole.ADMIN) -> None:
    client.cookies.set(COOKIE, registry.identity.issue(f"a-{role.value}", role).secret)


def test_no_text_becomes_markup_and_no_page_has_script_or_style_in_it(
    client: httpx.Client, stored: StoredRegistry
) -> None:
    sign_in(client, stored)
    for path in PAGES:
        answer = client.get(path)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert "<script>alert" not in answer.text and "<img" not in answer.text, path
        assert not INLINE.search(answer.text), path
        assert "script-src" not in (policy := answer.headers["content-security-policy"]), path
        assert "default-src 'self'" in policy and "unsafe" not in policy, path


def test_every_file_that_a_page_names_is_there(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    text = client.get("/artifacts/bot/v1").text
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
    assert len(files) == 7
    for path in files:
        assert client.get(path).status_code == 200, path


def test_a_fragment_is_the_changing_part_alone(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    part = client.get("/artifacts", headers={"hx-request": "true", "hx-target": "live"})
    assert "bot" in part.text and "<html" not in part.text
    assert part.headers["cache-control"] == "no-store"


def test_who_has_no_session_is_sent_to_sign_in_and_a_wrong_one_is_counted(client: httpx.Client) -> None:
    answer = client.get("/artifacts?q=bot")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?then=/artifacts%3Fq%3Dbot"
    client.cookies.set(COOKIE, "podium_wrong_token")
    assert client.get("/artifacts").status_code == 401


@pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example", "/\\evil.example", "x"])
def test_signing_in_leads_to_no_other_site(client: httpx.Client, address: str) -> None:
    text = client.get("/sign-in", params={"then": address}).text
    assert 'data-sign-in="/"' in text


def test_a_form_of_another_site_moves_nothing(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    fields = {"alias": "production", "version": "v1", "generation": "2"}
    for headers in ({"origin": "https://evil.example"}, {}):
        assert client.post("/artifacts/bot/promote", data=fields, headers=headers).status_code == 403
    assert stored.promotions.get("bot", "production").version == 2


def test_a_form_needs_the_role_and_leaves_a_line_in_the_trail(
    client: httpx.Client, stored: StoredRegistry
) -> None:
    fields = {"alias": "production", "version": "v1", "generation": "2", "reason": "back"}
    headers = {"origin": str(client.base_url).rstrip("/")}
    sign_in(client, stored, TeamRole.TRAINER)
    refused = client.post("/artifacts/bot/rollback", data=fields, headers=headers)
    assert "needs the role promoter" in refused.text
    sign_in(client, stored, TeamRole.PROMOTER)
    assert client.post("/artifacts/bot/rollback", data=fields, headers=headers).status_code == 303
    moved = stored.promotions.history("bot", "production")[0]
    assert (moved.to_version, moved.actor, moved.reason) == (1, "user:a-promoter", "back")
    trail = [(line.operation, line.status) for line in stored.identity.audit() if "/bot/" in line.target]
    assert trail == [("promotions.rollback", 200), ("promotions.rollback", 403)]


def test_a_form_that_says_nonsense_is_refused_in_words(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    headers = {"origin": str(client.base_url).rstrip("/")}
    for fields in ({}, {"alias": "production", "version": "v1", "generation": "x"}):
        answer = client.post("/artifacts/bot/promote", data=fields, headers=headers)
        assert answer.status_code == 422 and "The form says no" in answer.text
    assert client.post("/artifacts/bot/promote", content=b"\xff", headers=headers).status_code == 422


def test_an_open_page_hears_of_its_own_artifact_alone(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    newest = stored.events.position().newest
    address = f"/live?of=alias&key=bot&after={newest}"
    with client.stream("GET", address, timeout=20) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        stored.promotions.release("bot", "production")  # nothing is held, so nothing is said
        stored.catalog.name("other", stored.catalog.resolve("bot:v1").value)
        stored.promotions.promote("other:v1", "production")
        stored.promotions.rollback("bot", "production")
        assert next(lines) == "data: podium.alias.rolledback"


def test_a_plan_goes_back_to_where_the_rollback_goes(stored: StoredRegistry, tmp_path: Path) -> None:
    make = Maker(stored, tmp_path / "more")
    make.made = 10
    make.adapter("bot")
    stored.promotions.promote("bot:v3", "production")
    for expected in (2, 1):
        assert earlier(stored, "bot", "production") == expected
        assert stored.promotions.rollback("bot", "production").to_version == expected
    assert earlier(stored, "bot", "production") is None


def test_an_unknown_deployment_is_a_page_too(client: httpx.Client, stored: StoredRegistry) -> None:
    sign_in(client, stored)
    answer = client.get("/deployments/nothing")
    assert answer.status_code == 404 and "There is no deployment" in answer.text
    assert NotFound.__name__ not in answer.text


def test_a_lineage_keeps_what_is_near_and_counts_the_rest() -> None:
    def node(value: str, depth: int) -> LineageNode:
        return LineageNode(value, "adapter", "sha256:" + "0" * 64, (), None, depth)

    up = LineageGraph("me", (node("me", 0), node("base", 1)), (LineageEdge("me", "base", Role.BASE),))
    children = tuple(node(f"child-{number}", 1) for number in range(5))
    down = LineageGraph("me", (node("me", 0), *children), ())
    found = merge(up, down, most=3)
    assert [(each.node.value, each.depth) for each in found.shown] == [
        ("base", -1),
        ("me", 0),
        ("child-0", 1),
    ]
    assert found.left_out == 4
    assert found.shown[1].edges == "base=base"


@pytest.mark.parametrize(
    ("path", "said"),
    [("/nowhere", "There is nothing at this address."), ("/login?key=used", "This link has been used")],
)
def test_a_browser_is_told_of_a_wrong_address_or_a_used_link_on_a_page(
    client: httpx.Client, path: str, said: str
) -> None:
    page = client.get(path, headers={"accept": "text/html,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert page.status_code in (401, 404) and said in page.text
    for program in (client.get(path), client.get(f"/api/v1{path}", headers={"accept": "text/html"})):
        assert program.headers["content-type"] == "application/problem+json"
