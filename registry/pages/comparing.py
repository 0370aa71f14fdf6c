"""What changed between two versions, down to tensors."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from registry.content.diff import Print
from registry.http.authorising import Asker
from registry.pages.rendering import Pages
from registry.pages.visiting import visitor
from registry.references import parse_version_number

_MOST_TENSORS = 200  # a merged model changes hundreds; the rest is counted
_MOST_VERSIONS = 50  # to choose from


def add_comparing(router: APIRouter, pages: Pages) -> None:
    @router.get("/artifacts/{name}/compare")
    def compare(
        request: Request, who: Annotated[Asker, Depends(visitor)], name: str, before: str, after: str
    ) -> Response:
        catalog = who.registry.catalog
        old = catalog.resolve(f"{name}:v{parse_version_number(before)}")
        new = catalog.resolve(f"{name}:v{parse_version_number(after)}")
        found = catalog.diff(old.ref, new.ref)
        versions = {version.number for version in catalog.versions(name, limit=_MOST_VERSIONS)}
        return pages.show(
            request,
            "compare.html",
            who,
            name=name,
            old=old,
            new=new,
            diff=found,
            tensors=found.tensors[:_MOST_TENSORS],
            left_out=max(0, len(found.tensors) - _MOST_TENSORS),
            form=_form,
            numbers=sorted(versions | {old.number, new.number}, reverse=True),
        )


def _form(tensor: Print | None) -> str:
    return "" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
