"""Facets over HTTP: classes with a method for each operation of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from registry.remote.transport import Transport
from registry.wire.operation import Operation
from registry.wire.table import operations


class RemoteFacet:
    """One facet of the protocol; its methods are put in by `facet_class`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


@cache
def facet_class(name: str) -> type[RemoteFacet]:
    """The class of a facet; what is done by hand is left out."""
    methods = {each.method: _method(each) for each in operations() if each.facet == name}
    return type(f"Remote{name.title()}", (RemoteFacet,), {"__doc__": f"`{name}` over HTTP.", **methods})


def _method(operation: Operation) -> Callable[..., Any]:
    @wraps(operation.function)
    def method(self: RemoteFacet, *arguments: Any, **named: Any) -> Any:
        given = operation.signature.bind(self, *arguments, **named).arguments
        del given["self"]
        return self._transport.call(operation, given)

    return method
