"""The pages of events and of access in a real browser, over a relay and a consumer that work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from registry.deliveries import DeliveryState
from registry.identity.roles import TeamRole
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from registry.values import AppObject
from tests.acceptance.conftest import Visitor
from tests.common.pages import PHONE, Site, visiting
from tests.common.receiver import Receiver, receiving
from tests.common.waiting import wait_until
from triggers.actions import Notify, Promote
from triggers.consumer import run_consumer
from triggers.deployed import TRIGGERS, DeployedTriggers
from triggers.filters import OnArtifact, OnPromotion
from triggers.memory import MemoryBus
from triggers.relay import run_relay
from triggers.trigger import Trigger


def _quiet(line: str, *, healthy: bool = True) -> None:
    """Nobody listens to the report."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Site]:
    """A site whose triggers stage what is published, and tell a receiver of what is staged."""
    home = tmp_path_factory.mktemp("site")
    registry = StoredRegistry.open(Settings(home=home / "home", actor="ada", notify_networks="127.0.0.0/8"))
    found = Site(home, registry)
    _deploy(registry, receiver.url)
    stop, bus = asyncio.Event(), MemoryBus()

    async def serve() -> None:
        await asyncio.gather(
            run_relay(registry, bus, stop, _quiet),
            run_consumer(registry, bus, TRIGGERS, DeployedTriggers(registry), stop, _quiet),
        )

    serving = found.begin(serve())
    try:
        wait_until(lambda: len(registry.deliveries.subscriptions()) == 2, 60, "the triggers are not served")
        yield found
    finally:
        found.call(stop.set)
        serving.result(60)
        found.close()
        registry.close()


def _deploy(registry: StoredRegistry, url: str) -> None:
    triggers = [
        Trigger("stage", OnArtifact("support-*"), Promote("staging")),
        Trigger("tell", OnPromotion("support-*", alias="staging"), Notify(f"{url}/hook"), retries=0),
    ]
    objects = [AppObject("support", each.deployable, each.name, each.to_json()) for each in triggers]
    registry.apps.apply("support", objects, plan=registry.apps.plan("support", objects))


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visitor]:
    """`tests.acceptance.conftest.visit` over the site of this module."""
    with ExitStack() as stack:
        opened = []

        def opening(role: TeamRole = TeamRole.PROMOTER, **options: Any) -> Any:
            token = site.token(role, f"{role.value}-{len(opened)}")
            opened.append(stack.enter_context(visiting(browser, site, token, **options)))
            return opened[-1]

        yield opening
        assert [each.complaints for each in opened if each.complaints] == []


def dead(site: Site) -> int:
    return len(site.registry.deliveries.find(state=DeliveryState.DEAD))


def test_events_come_in_by_themselves_and_are_filtered(site: Site, visit: Visitor) -> None:
    page = visit().go("/events")
    site.make.dataset("held-out")
    expect(page.get_by_role("link", name="held-out:v1")).to_be_visible()  # without a reload
    page.get_by_label("Type").select_option("alias")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"type=alias"))
    expect(page.get_by_role("link", name="held-out:v1")).to_have_count(0)
    site.registry.promotions.promote("held-out:v1", "good")
    expect(page.get_by_role("link", name="held-out:good")).to_be_visible()
    page.get_by_label("Actor").fill("user:nobody")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No event is like that.")).to_be_visible()


def test_a_dead_letter_is_tried_again_by_button_and_followed_until_it_is_done(
    site: Site, receiver: Receiver, visit: Visitor
) -> None:
    receiver.statuses, receiver.says = [503], b"down for a moment"
    window = visit()
    page = window.go("/events/dead")
    site.make.adapter("support-bot")
    expect(page.get_by_text("answered the notification with 503: down for a moment")).to_be_visible()
    page.get_by_role("link", name="Try again…").click()
    expect(page.get_by_role("status").get_by_text("dead")).to_be_visible()
    taken = len(receiver.taken)
    page.get_by_text("Try again…").click()
    assert len(receiver.taken) == taken  # it asks once
    page.get_by_role("button", name="Try again now").click()
    expect(page.locator(".chip.good", has_text="done")).to_be_visible()  # without a reload
    assert len(receiver.taken) == taken + 1
    assert receiver.taken[-1].headers["webhook-id"] == receiver.taken[-2].headers["webhook-id"]
    page.goto(f"{site.url}/events/dead")
    expect(page.get_by_text("None. Everything")).to_be_visible()


def test_what_led_to_an_event_and_what_followed_is_clicked_through(site: Site, visit: Visitor) -> None:
    site.make.adapter("support-desk")
    page = visit().go("/events?type=version&of=support-desk")
    page.get_by_role("link", name="version.published").click()
    expect(page.get_by_text("No other event: user:ada did it.")).to_be_visible()
    expect(page.get_by_role("link", name="support/stage")).to_be_visible()
    page.get_by_role("link", name="alias.promoted").click()  # it follows, without a reload
    expect(page.get_by_role("heading", level=1)).to_have_text("alias.promoted")
    expect(page.get_by_role("link", name="support/tell")).to_be_visible()
    page.get_by_role("link", name="version.published").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("version.published")


def test_subscriptions_say_what_they_do_and_how_they_are_doing(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.VIEWER).go("/events/subscriptions")
    row = page.get_by_role("row", name="support/stage")
    expect(row).to_contain_text("promote")
    expect(row.get_by_text("up to date")).to_be_visible()


def test_a_viewer_sees_dead_letters_and_tries_none_again(
    site: Site, receiver: Receiver, visit: Visitor
) -> None:
    receiver.statuses, receiver.says = [500], b""
    site.make.adapter("support-mail")
    wait_until(lambda: dead(site) == 1, 60, "no letter is dead")
    window = visit(TeamRole.VIEWER)
    page = window.go("/events/dead")
    page.get_by_role("link", name="support/tell").click()
    expect(page.get_by_text("answered the notification with 500")).to_be_visible()
    expect(page.get_by_text("Try again")).to_have_count(0)
    (letter,) = site.registry.deliveries.find(state=DeliveryState.DEAD)
    answer = page.request.post(
        f"{site.url}/events/deliveries/{letter.id}/retry", headers={"origin": site.url}
    )
    assert answer.status == 403 and dead(site) == 1
    site.registry.deliveries.retry(letter.id)
    done = DeliveryState.DONE
    wait_until(lambda: site.registry.deliveries.get(letter.id).state is done, 60, "it is not delivered")


def test_a_token_is_made_by_button_shown_once_and_revoked(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.ADMIN).go("/access")
    page.get_by_text("New token…").click()
    page.get_by_label("Who it is for").fill("ci-nightly")
    page.get_by_label("Role").select_option("trainer")
    page.get_by_role("button", name="Make the token").click()
    secret = page.locator("#secret").inner_text()
    assert site.registry.identity.authenticate(secret) is not None
    page.get_by_role("link", name="Done").click()
    row = page.get_by_role("row", name="ci-nightly")
    row.get_by_text("Revoke…").click()
    row.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="ci-nightly").get_by_text("revoked")).to_be_visible()
    assert site.registry.identity.authenticate(secret) is None


@pytest.mark.parametrize("path", ["/events", "/events/dead", "/events/subscriptions", "/access"])
def test_the_page_is_no_wider_than_a_phone(site: Site, visit: Visitor, path: str) -> None:
    page = visit(viewport=PHONE, color_scheme="dark").go(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
