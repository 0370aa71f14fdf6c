"""What a person tells a run by button: to end, to go on, to give what it made a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from registry.errors import InvalidRequest
from registry.http.performing import Asked, Performer
from registry.identity.roles import TeamRole
from registry.outputs import output_of
from registry.pages.visiting import form
from registry.protocol import Registry

_Form = Annotated[dict[str, str], Depends(form)]
#: Carries an order out; the address that shows what came of it.
_Order = Callable[[Registry, str, Mapping[str, str]], str]


def add_telling(router: APIRouter) -> None:
    @router.post("/runs/{run}/{order}")
    def tell(request: Request, run: str, order: str, fields: _Form) -> Response:
        if order not in _ORDERS:
            raise InvalidRequest("A run cannot be told that.", remedy="Use podium's own pages.")
        operation, act = _ORDERS[order]
        went_to: list[str] = []

        def carry_out(registry: Registry) -> bytes:
            went_to.append(act(registry, run, fields))
            return b""

        performer: Performer = request.app.state.performer
        performer.perform(request, Asked(operation, TeamRole.TRAINER, {"run": run, **fields}), carry_out)
        return RedirectResponse(went_to[-1] if went_to else f"/runs/{run}", 303)


def _cancel(registry: Registry, run: str, _: Mapping[str, str]) -> str:
    return f"/runs/{registry.runs.cancel(run).id}"


def _recover(registry: Registry, run: str, _: Mapping[str, str]) -> str:
    return f"/runs/{registry.runs.recover(run).id}"


def _publish(registry: Registry, run: str, fields: Mapping[str, str]) -> str:
    chosen = output_of(registry.runs.get(run), fields.get("output") or None)
    version = registry.catalog.name(fields.get("name", "").strip(), chosen.value).version
    return f"/artifacts/{version.artifact}/v{version.number}"


_ORDERS: Mapping[str, tuple[str, _Order]] = {
    "cancel": ("runs.cancel", _cancel),
    "recover": ("runs.recover", _recover),
    "publish": ("catalog.name", _publish),
}
