"""Operations: every method of the protocol's facets described once, for server and client alike.

A method becomes a route: the names in braces of its path are parameters in the path, the others of a GET
stand in the query, those of anything else in a JSON object. What a method returns is the answer's body. Types
are read from the protocol's own annotations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from types import EllipsisType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from registry.identity.roles import TeamRole

_IN_PATH = re.compile(r"\{(\w+)(?::path)?\}")
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


@dataclass(frozen=True)
class Operation:
    """One method of one facet, as it is asked for over HTTP."""

    facet: str  # "promotions"
    method: str  # "promote"
    verb: str
    path: str  # below the prefix, "/artifacts/{name}/aliases"
    role: TeamRole
    protocol: type  # the facet's Protocol class
    artifact: str | None = None  # the parameter that names the artifact which is changed, or a version of it
    repeatable: bool = False  # a write that does nothing more when it is done twice
    audited: bool = True  # where it is a write: whether the trail has a line of it
    judged: bool = False  # does much before it writes, and opens its own transaction for that
    secret: bool = False  # its answer holds a secret, and is kept nowhere
    page: str | None = None  # the parameter that a page begins after
    page_key: str | None = None  # ... and the attribute of the last item that stands there
    hints: Mapping[str, Any] = field(default_factory=dict, compare=False)  # names of types loaded late

    @property
    def name(self) -> str:
        return f"{self.facet}.{self.method}"

    @property
    def reads(self) -> bool:
        return self.role is TeamRole.VIEWER

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        return tuple(_IN_PATH.findall(self.path))

    @cached_property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self.protocol, self.method)
        return function

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """Parameter (and ``return``) -> type, without what cannot be written in JSON."""
        found = get_type_hints(self.function, localns=dict(self.hints), include_extras=True)
        return {name: _plain(hint) for name, hint in found.items()}

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        return tuple(self.signature.parameters.values())[1:]

    @cached_property
    def beside_path(self) -> tuple[inspect.Parameter, ...]:
        """Parameters that stand in the query or in the body."""
        return tuple(p for p in self.parameters if p.name not in self.in_path)

    @cached_property
    def answer(self) -> TypeAdapter[Any]:
        return adapter_of(self.types["return"])

    def adapter(self, parameter: str) -> TypeAdapter[Any]:
        return self._adapters[parameter]

    @cached_property
    def _adapters(self) -> Mapping[str, TypeAdapter[Any]]:
        return {p.name: adapter_of(self.types[p.name]) for p in self.parameters}

    @property
    def summary(self) -> str:
        """The first sentence of the method's docstring."""
        text = inspect.getdoc(self.function) or self.name
        return text.partition("\n")[0]


def adapter_of(hint: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type as JSON."""
    if is_dataclass(hint):  # these bring a configuration of their own
        return TypeAdapter(hint)
    return TypeAdapter(hint, config=_CONFIG)


def _plain(hint: Any) -> Any:
    """A type as JSON has it: what is left out of a request is not given, and every collection is a list."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Collection:
        return Sequence[arguments]  # type: ignore[valid-type]
    if EllipsisType in arguments:
        return Union[tuple(each for each in arguments if each is not EllipsisType)]  # noqa: UP007
    return hint
