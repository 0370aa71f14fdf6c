"""Templates to pages: what every page of every room is rendered with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from registry.cli.output import ago, counted, size_text
from registry.http.authorising import Asker

_OWN = Path(__file__).parent / "templates"


@dataclass(frozen=True, order=True, slots=True)
class Section:
    """A link at the top of every page; rooms add theirs to ``app.state.sections``."""

    order: int
    label: str
    path: str


def add_section(app: FastAPI, section: Section) -> None:
    """Show a link at the top of every page."""
    sections = getattr(app.state, "sections", ())
    app.state.sections = tuple(sorted({*sections, section}))


class Pages:
    """The pages of one room: its own templates, and those that it shares with all."""

    def __init__(self, templates: Path = _OWN) -> None:
        self._environment = Environment(
            loader=FileSystemLoader([templates, _OWN]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            ago=ago, size=size_text, counted=counted, moment=_moment, short=_short, number=_number
        )

    def show(
        self, request: Request, template: str, who: Asker | None, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """The page; only its changing part (``#live``) where that alone is asked for.

        ``template`` extends ``page.html`` and has its changing part in the block ``live``.
        """
        found = self._environment.get_template(template)
        context = found.new_context({**_shared(request, who), **values})
        if request.headers.get("hx-target") == "live":
            text = "".join(found.blocks["live"](context))
        else:
            text = found.render(context.get_all())
        # A page shows what its reader may see now, and is never to be shown from a cache to the next.
        return HTMLResponse(text, status, {"cache-control": "no-store", "vary": "hx-target"})


def _shared(request: Request, who: Asker | None) -> Mapping[str, Any]:
    return {
        "who": who,
        "path": request.url.path,
        "sections": getattr(request.app.state, "sections", ()),
        "newest": getattr(request.state, "newest", 0),
    }


def _moment(at: datetime) -> str:
    """As it stands in a tooltip: to the second, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _number(value: float) -> str:
    return f"{value:.4g}"
