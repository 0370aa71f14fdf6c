"""One version: what it is, what it was made from, how it was judged, where it is live."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.requests import Request
from starlette.responses import Response

from registry.cards.card import card_of
from registry.http.authorising import Asker
from registry.pages.lineage import around
from registry.pages.rendering import Pages
from registry.pages.routed import routed
from registry.pages.visiting import visitor

_MOST_FILES = 200  # a dataset may have many thousand
_Number = Annotated[int, Path(ge=1, le=2**62)]


def add_versions(router: APIRouter, pages: Pages) -> None:
    @router.get("/artifacts/{name}/v{number}")
    def version(
        request: Request, who: Annotated[Asker, Depends(visitor)], name: str, number: _Number
    ) -> Response:
        registry = who.registry
        found = registry.catalog.resolve(f"{name}:v{number}")
        files = registry.catalog.manifest(found.digest).files
        return pages.show(
            request,
            "version.html",
            who,
            version=found,
            files=files[:_MOST_FILES],
            files_left_out=max(0, len(files) - _MOST_FILES),
            lineage=around(registry, found.ref),
            evaluations=registry.evaluations.of(found.digest),
            live=[each for each in routed(registry, name) if each.ref == found.ref],
            aliases=[alias.name for alias in registry.promotions.aliases(name)],
            card=card_of(registry, found.ref),
            earlier=next(iter(registry.catalog.versions(name, limit=1, before=number)), None),
        )

    @router.get("/artifacts/{name}/v{number}/README.md")
    def card(who: Annotated[Asker, Depends(visitor)], name: str, number: _Number) -> Response:
        text = card_of(who.registry, f"{name}:v{number}")
        return Response(text, media_type="text/markdown", headers={"cache-control": "no-store"})
