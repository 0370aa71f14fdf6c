"""A server with something to look at, and a browser that says what it did not like.

``python -m tests.common.pages FOLDER`` writes the pictures of the documentation.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from registry.gates import Gate, Threshold
from registry.http.app import create_app
from registry.http.authorising import COOKIE
from registry.http.serving import Running, bound
from registry.http.shell import Failures
from registry.identity.roles import TeamRole
from registry.settings import Settings
from registry.store.stored import StoredRegistry
from registry.values import AppObject, Parent, Role, Version
from serving.controller import Controller
from tests.common.registries import Maker
from tests.common.serving import World, write_lora

_Result = TypeVar("_Result")

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1180, "height": 820}


class Site:
    """The pages over a registry, and a deployment of it whose controller works when it is told to."""

    def __init__(self, home: Path, registry: StoredRegistry) -> None:
        self.registry = registry
        self.world = World(home, registry)
        self.make = Maker(registry, home / "made")
        self._running = Running(create_app(registry, failures=Failures(most=1_000)), bound("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()  # of engines and controller; Playwright has one of its own
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._controller: Controller | None = None

    @property
    def url(self) -> str:
        return self._running.url

    def token(self, role: TeamRole = TeamRole.ADMIN, name: str = "ada") -> str:
        return self.registry.identity.issue(name, role).secret

    def do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of what engines or controller do, in their event loop."""
        return self.begin(work).result(60)

    def begin(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Start what goes on in that event loop until it is told to end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, act: Callable[[], object]) -> None:
        """Do something in that event loop."""
        self._loop.call_soon_threadsafe(act)

    def roll(self) -> None:
        """Let the deployment's controller bring about all that is wanted."""
        self._controller = self._controller or self.world.controller()
        self.do(self.world.settle(self._controller))

    def ask(self) -> dict[str, Any]:
        """An answer of the served name."""
        return self.do(self.world.ask())

    def close(self) -> None:
        self._running.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def furnish(self) -> None:
        """A base model, training data, three adapters with reports, a gate, a live deployment."""
        world, registry = self.world, self.registry
        base = world.publish_base()
        data, held_out = self.make.dataset("tickets"), self.make.dataset("tickets-held-out")
        gate = Gate(
            "accurate",
            "ticket-router",
            "production",
            Threshold(metric="accuracy", on="tickets-held-out:v1", at_least=0.7),
        )
        objects = [AppObject("support", gate.deployable, gate.name, gate.to_json())]
        registry.apps.apply("support", objects, plan=registry.apps.plan("support", objects))
        for seed, value in ((1, 0.74), (2, 0.81), (3, 0.52), (4, 0.86)):
            version = self._adapter(seed, base.ref, data.ref)
            self.make.report(
                version, held_out, value, base=0.41, examples={"1": 1.0, "2": 0.0}, name="ticket-scores"
            )
        registry.promotions.promote("ticket-router:v1", "production", reason="the first that beats the base")
        self.roll()
        registry.promotions.promote("ticket-router:v2", "production", reason="better on long tickets")
        registry.promotions.promote("ticket-router:v4", "candidate")
        self.roll()

    def _adapter(self, seed: int, base: str, data: str) -> Version:
        folder = write_lora(self.world.home / f"with-lineage-{seed}", seed)
        parents = [Parent(base, Role.BASE), Parent(data, Role.DATA)]
        return self.registry.catalog.publish("ticket-router", folder, "adapter", parents=parents).version


class Visit:
    """A browser's window with a session, and all that went wrong in it."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.context, self.site = context, site
        self.complaints: list[str] = []
        self.page = self._watched(context.new_page())

    def _watched(self, page: Page) -> Page:
        page.set_default_timeout(15_000)
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        return page

    def _heard(self, type: str, text: str) -> None:
        if type in ("error", "warning"):
            self.complaints.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.site.url, "data:")):
            self.complaints.append(f"it asked {url}")

    def go(self, path: str) -> Page:
        self.page.goto(self.site.url + path)
        return self.page


def chromium() -> str | None:
    """The path of a Chromium on this machine."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser: Browser, site: Site, token: str | None, **options: Any) -> Iterator[Visit]:
    """A window whose cookie holds the token; ``options`` are of Playwright's ``new_context``."""
    context = browser.new_context(**{"viewport": DESKTOP, **options})
    if token is not None:
        context.add_cookies([{"name": COOKIE, "value": token, "url": site.url, "sameSite": "Strict"}])
    try:
        yield Visit(context, site)
    finally:
        context.close()


_PICTURES = (
    ("artifacts", "/artifacts"),
    ("artifact", "/artifacts/ticket-router"),
    ("version", "/artifacts/ticket-router/v2"),
    ("compare", "/artifacts/ticket-router/compare?before=v2&after=v4"),
    ("alias", "/artifacts/ticket-router/aliases/production"),
    ("plan", "/artifacts/ticket-router/promote?alias=production&version=v4"),
    ("refused", "/artifacts/ticket-router/promote?alias=production&version=v3"),
    ("rollback", "/artifacts/ticket-router/rollback?alias=production"),
    ("promotion", "/artifacts/ticket-router/aliases/production/2"),
    ("deployments", "/deployments"),
    ("deployment", "/deployments/router"),
)


def take_pictures(folder: Path) -> None:
    """Every page light and dark, and as on a phone."""
    with tempfile.TemporaryDirectory() as scratch, running_browser() as browser:
        registry = StoredRegistry.open(Settings(home=Path(scratch) / "home", actor="ada"))
        site = Site(Path(scratch), registry)
        try:
            site.furnish()
            token = site.token()
            for look, options in (
                ("light", {"color_scheme": "light"}),
                ("dark", {"color_scheme": "dark"}),
                ("phone", {"color_scheme": "light", "viewport": PHONE}),
            ):
                with visiting(browser, site, token, **options) as visit:
                    for name, path in _PICTURES:
                        visit.go(path)
                        visit.page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
                    print(look, visit.complaints or "nothing to complain of")
        finally:
            site.close()
            registry.close()


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
