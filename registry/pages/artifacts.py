"""The list of artifacts, and one artifact with its versions and aliases."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from registry.http.authorising import Asker
from registry.pages.rendering import Pages
from registry.pages.routed import routed
from registry.pages.visiting import visitor

_PAGE = 50
_LONGEST_SEARCH = 100
_Visitor = Annotated[Asker, Depends(visitor)]


def add_artifacts(router: APIRouter, pages: Pages) -> None:
    @router.get("/artifacts")
    def artifacts(
        request: Request,
        who: _Visitor,
        q: Annotated[str, Query(max_length=_LONGEST_SEARCH)] = "",
        after: Annotated[str, Query(max_length=_LONGEST_SEARCH)] = "",
    ) -> Response:
        found = who.registry.catalog.artifacts(_glob(q), limit=_PAGE + 1, after=after)
        more = found[_PAGE - 1].name if len(found) > _PAGE else ""
        return pages.show(
            request, "artifacts.html", who, artifacts=found[:_PAGE], q=q, after=after, more=more
        )

    @router.get("/artifacts/{name}")
    def artifact(
        request: Request,
        who: _Visitor,
        name: str,
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    ) -> Response:
        registry = who.registry
        aliases = registry.promotions.aliases(name)
        versions = registry.catalog.versions(name, limit=_PAGE + 1, before=before)
        more = versions[_PAGE - 1].number if len(versions) > _PAGE else None
        return pages.show(
            request,
            "artifact.html",
            who,
            name=name,
            aliases=aliases,
            live=routed(registry, name),
            versions=versions[:_PAGE],
            before=before,
            more=more,
        )


def _glob(search: str) -> str:
    """What was typed, anywhere in a name; a glob is taken as it is."""
    typed = search.strip().lower()
    return typed if "*" in typed or "?" in typed else f"*{typed}*"
