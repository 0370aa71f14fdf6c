"""Fixtures of the browser tests. A test fails where the browser complained of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from registry.identity.roles import TeamRole
from tests.common.pages import Site, Visit, chromium, running_browser, visiting
from tests.common.registries import Place

Visitor = Callable[..., Visit]
expect.set_options(timeout=60_000)  # ms: a machine that is busy is slow, and not wrong


# Not for the session: while it is there, Playwright's event loop runs in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("this machine has no Chromium")
    with running_browser() as found:
        yield found


@pytest.fixture
def site(tmp_path: Path, sqlite_place: Place) -> Iterator[Site]:
    """Pages over a registry with three adapters, of which the second is live."""
    found = Site(tmp_path, sqlite_place.open())
    found.furnish()
    yield found
    found.close()


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Opens a window with a session of a role; what it complained of fails the test at its end."""
    with ExitStack() as stack:
        opened = []

        def opening(role: TeamRole | None = TeamRole.ADMIN, **options: Any) -> Visit:
            token = site.token(role, f"{role.value}-{len(opened)}") if role else None
            opened.append(stack.enter_context(visiting(browser, site, token, **options)))
            return opened[-1]

        yield opening
        assert [each.complaints for each in opened if each.complaints] == []
