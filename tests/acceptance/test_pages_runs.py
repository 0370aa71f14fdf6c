"""The pages of runs in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from registry.identity.roles import TeamRole
from registry.measures import measured
from registry.protocol import Registry
from registry.resources import Resources
from registry.runs import RESULT, Cause, Claim, NewOutput, RunError, RunRequest
from tests.acceptance.conftest import Visitor
from tests.common.pages import PHONE, Site
from tests.common.serving import write_lora

_ROOM = Resources(cpu=64, memory="64Gi")


def begin(site: Site, task: str, *, parent: str | None = None, place: str | None = None) -> Claim:
    """A run that a worker has just taken."""
    asked = RunRequest(
        task, {"lr": 0.003}, {"base": "tiny:v1"}, resources=Resources(cpu=1), parent=parent, place=place
    )
    run = site.registry.runs.queue(asked)
    (claim,) = site.registry.runs.claim("worker-1", free=_ROOM, total=_ROOM, only=run.id)
    return claim


def acting(site: Site, claim: Claim) -> Registry:
    return site.registry.acting(claim.origin)


def test_a_run_is_followed_from_its_first_line_to_the_version_it_is_published_as(
    site: Site, visit: Visitor, tmp_path: Path
) -> None:
    page = visit(TeamRole.TRAINER).go("/runs")
    claim = begin(site, "sft")
    page.get_by_role("link", name="sft", exact=True).click()  # it came by itself
    expect(page.get_by_role("status")).to_contain_text("running")
    expect(page.get_by_role("link", name="tiny:v1")).to_be_visible()
    acting(site, claim).runs.append_log(claim.run.id, 1, b"10%|#\r\r100%|####\nloss <b>0.5</b>\n")
    expect(page.get_by_text("loss <b>0.5</b>")).to_be_visible()
    expect(page.get_by_text("10%|#", exact=True)).to_have_count(0)
    expect(page.get_by_role("heading", name="Curves")).to_have_count(0)  # it has reported nothing yet
    acting(site, claim).measures.add(claim.run.id, [measured(1, {"loss": 2.0, "eval_loss": 2.5})])
    expect(page.get_by_role("img", name="eval_loss 2.5, loss 2 at step 1, 1 points")).to_be_visible()
    more = [measured(step, {"loss": 2.0 / step, "learning_rate": 0.001}) for step in (2, 4)]
    acting(site, claim).measures.add(claim.run.id, more)
    expect(page.get_by_role("img", name="eval_loss 2.5, loss 0.5 at step 4, 3 points")).to_be_visible()
    expect(page.get_by_role("img", name="learning_rate 0.001 at step 4, 2 points")).to_be_visible()
    page.get_by_label("logarithmic").check()
    expect(page.locator(".chart canvas")).to_have_count(2)
    expect(page.locator(".chart", has=page.locator(".uplot"))).to_have_count(2)
    page.wait_for_function(  # each has made room for the other
        "[...document.querySelectorAll('.chart')].every((each) => each.scrollWidth <= each.clientWidth)"
    )
    stored = acting(site, claim).catalog.store(write_lora(tmp_path / "trained", 9), "adapter")
    acting(site, claim).runs.finish(claim.run.id, [NewOutput(RESULT, "adapter", stored.digest)])
    expect(page.get_by_role("status")).to_contain_text("succeeded")
    page.get_by_text("Publish…").click()
    page.get_by_label("Artifact").fill("ticket-router")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ticket-router:v5")


def test_a_failed_run_says_why_and_is_recovered_and_cancelled_by_button(site: Site, visit: Visitor) -> None:
    claim = begin(site, "train.py:train")
    said = RunError("ValueError", "the data set has no <rows>", "Traceback ...", "Push one that has rows.")
    acting(site, claim).runs.end(claim.run.id, Cause.ERROR, said)
    page = visit(TeamRole.TRAINER).go(f"/runs/{claim.run.id}")
    expect(page.get_by_text("ValueError: the data set has no <rows>").first).to_be_visible()
    expect(page.get_by_text("Push one that has rows.")).to_be_visible()
    page.get_by_role("button", name="Recover").click()
    expect(page.get_by_role("status")).to_contain_text("queued")
    page.get_by_text("Cancel…").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("cancelled")


def test_a_viewer_sees_a_run_on_a_phone_and_tells_it_nothing(site: Site, visit: Visitor) -> None:
    claim = begin(site, "sft")
    page = visit(TeamRole.VIEWER, viewport=PHONE, color_scheme="dark").go(f"/runs/{claim.run.id}")
    expect(page.get_by_role("status")).to_contain_text("running")
    expect(page.get_by_text("Cancel…")).to_have_count(0)
    for path in ("/runs", f"/runs/{claim.run.id}"):
        page.goto(site.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
