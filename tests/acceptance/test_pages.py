"""The registry's pages in a real browser: under the policy that they have, which allows no inline script."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from registry.identity.roles import TeamRole
from tests.acceptance.conftest import Visitor
from tests.common.pages import PHONE, Site

ALIAS = "/artifacts/ticket-router/aliases/production"


def test_a_promotion_by_button_is_followed_until_it_is_live(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.PROMOTER).go(ALIAS)
    page.get_by_label("Version to promote").select_option("v4")
    page.get_by_role("button", name="Promote…").click()
    expect(page.get_by_text("router answers ticket-router from v4")).to_be_visible()
    expect(page.get_by_text("accuracy is 0.86")).to_be_visible()
    assert site.registry.promotions.get("ticket-router", "production").version == 2  # a plan moves nothing
    page.get_by_label("Why").fill("reads <b>better</b>")
    page.get_by_role("button", name="Promote to v4").click()
    expect(page).to_have_url(f"{site.url}{ALIAS}/3")
    expect(page.get_by_text("waiting", exact=True)).to_be_visible()
    site.roll()
    expect(page.locator(".chip.good", has_text="live")).to_be_visible()  # without a reload
    assert site.ask()["version"] == "ticket-router:v4"
    page.goto(site.url + ALIAS)
    expect(page.get_by_text("reads <b>better</b>")).to_be_visible()


def test_a_rollback_by_button_goes_to_what_was_live_and_holds(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.PROMOTER).go(ALIAS)
    page.get_by_role("link", name="Roll back…").click()
    page.get_by_role("button", name="Roll back to v1").click()
    expect(page).to_have_url(f"{site.url}{ALIAS}/3")
    site.roll()
    expect(page.locator(".chip.good", has_text="live")).to_be_visible()
    assert site.ask()["version"] == "ticket-router:v1"
    page.goto(site.url + ALIAS)
    expect(page.get_by_text("Triggers wait.")).to_be_visible()
    page.get_by_role("button", name="Release the hold").click()
    expect(page.get_by_text("Triggers wait.")).to_have_count(0)
    assert site.registry.promotions.get("ticket-router", "production").held_by is None


def test_a_gate_that_does_not_pass_is_shown_and_cannot_be_confirmed(site: Site, visit: Visitor) -> None:
    page = visit().go("/artifacts/ticket-router/promote?alias=production&version=v3")
    expect(page.get_by_text("accuracy is 0.52, needs at least 0.7")).to_be_visible()
    expect(page.get_by_role("button", name="Promote to v3")).to_be_disabled()


def test_a_plan_that_is_out_of_date_is_shown_anew_instead_of_carried_out(site: Site, visit: Visitor) -> None:
    window = visit()
    page = window.go("/artifacts/ticket-router/rollback?alias=production")
    site.registry.promotions.promote("ticket-router:v4", "production")
    page.get_by_role("button", name="Roll back to v1").click()
    expect(page.get_by_role("alert")).to_contain_text("has moved to v4 since this plan was made")
    assert site.registry.promotions.get("ticket-router", "production").version == 4
    window.complaints.clear()  # the browser says that 409 is an error


def test_a_viewer_sees_all_and_moves_nothing(site: Site, visit: Visitor) -> None:
    window = visit(TeamRole.VIEWER)
    page = window.go(ALIAS)
    expect(page.get_by_text("better on long tickets")).to_be_visible()
    expect(page.get_by_role("button", name="Promote…")).to_have_count(0)
    page.goto(f"{site.url}/artifacts/ticket-router/promote?alias=production&version=v4")
    expect(page.get_by_text("needs the role promoter")).to_be_visible()
    expect(page.get_by_role("button", name="Promote to v4")).to_be_disabled()


def test_lists_and_timelines_update_by_themselves(site: Site, visit: Visitor) -> None:
    artifacts, timeline = visit().go("/artifacts"), visit().go(ALIAS)
    timeline.get_by_text("1 gate passed").first.click()
    site.make.dataset("more-tickets")
    expect(artifacts.get_by_role("link", name="more-tickets")).to_be_visible()
    site.registry.promotions.promote("ticket-router:v4", "production", reason="by somebody else")
    expect(timeline.get_by_text("by somebody else")).to_be_visible()
    expect(timeline.get_by_text("accuracy is 0.81")).to_be_visible()  # what was opened stays open


def test_search_finds_by_a_part_of_the_name_and_keeps_the_address(site: Site, visit: Visitor) -> None:
    page = visit().go("/artifacts")
    page.get_by_role("searchbox").press_sequentially("held")
    expect(page.get_by_role("link", name="tickets-held-out")).to_be_visible()
    expect(page.get_by_role("link", name="tiny")).to_have_count(0)
    expect(page).to_have_url(f"{site.url}/artifacts?q=held")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_lineage_is_clicked_through_both_ways(site: Site, visit: Visitor) -> None:
    page = visit().go("/artifacts/ticket-router/v2")
    graph = page.get_by_role("group", name="Lineage graph")
    graph.get_by_role("link", name="tiny:v1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tiny:v1")
    page.get_by_role("group", name="Lineage graph").get_by_role("link", name="ticket-router:v4").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ticket-router:v4")


def test_two_versions_are_compared_down_to_tensors(site: Site, visit: Visitor) -> None:
    page = visit().go("/artifacts/ticket-router/v2")
    page.get_by_role("link", name="Compare with v1").click()
    expect(page.get_by_text("layers.0.self_attn.q_proj.lora_A.weight")).to_be_visible()
    page.get_by_label("Old version").select_option("v2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("The same content.")).to_be_visible()


def test_a_promotion_needs_no_mouse(site: Site, visit: Visitor) -> None:
    page = visit().go("/artifacts/ticket-router/v4")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    alias = page.get_by_label("Promote to")
    for _ in range(12):
        page.keyboard.press("Tab")
        if alias.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.type("production")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Why")).to_be_focused()
    page.keyboard.type("without a mouse")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}{ALIAS}/3")
    assert site.registry.promotions.get("ticket-router", "production").version == 4


@pytest.mark.parametrize("path", ["/artifacts", "/artifacts/ticket-router/v2", ALIAS, f"{ALIAS}/2"])
def test_a_page_is_no_wider_than_a_phone(site: Site, visit: Visitor, path: str) -> None:
    page = visit(viewport=PHONE, color_scheme="dark").go(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_who_has_no_session_signs_in_with_a_token_and_comes_back(site: Site, visit: Visitor) -> None:
    window = visit(None)
    page = window.go(ALIAS)
    page.get_by_label("Token").fill("podium_wrong_token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#said")).to_contain_text("not known here")
    page.get_by_label("Token").fill(site.token(TeamRole.VIEWER, "grace"))
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(site.url + ALIAS)
    expect(page.get_by_text("user:grace · viewer")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{site.url}/sign-in")
    window.complaints.clear()  # the browser says that 401 is an error


def test_a_deployment_is_paused_and_resumed_by_button(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.PROMOTER).go("/deployments")
    page.get_by_role("link", name="router", exact=True).click()
    expect(page.get_by_text("1 of 1 replicas ready")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused by user:promoter-0")).to_be_visible()
    site.registry.promotions.promote("ticket-router:v4", "production")
    site.roll()
    assert site.ask()["version"] == "ticket-router:v2"
    page.get_by_role("button", name="Resume").click()
    site.roll()
    expect(page.locator(".chip.good", has_text="ticket-router:v4")).to_be_visible()  # without a reload
    assert site.ask()["version"] == "ticket-router:v4"


def test_a_viewer_tells_a_deployment_nothing(site: Site, visit: Visitor) -> None:
    page = visit(TeamRole.VIEWER).go("/deployments/router")
    expect(page.get_by_role("heading", name="Replicas")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
