"""Routes for all operations of the table: what they take and answer is read from the protocol's types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response

from registry.errors import InvalidRequest
from registry.http.examples import EXAMPLES
from registry.http.pages import CURSOR, from_cursor, next_link, to_cursor
from registry.http.performing import Asked, Performer
from registry.store.stored import StoredRegistry
from registry.wire.operation import Operation
from registry.wire.table import operations

_LARGEST = 2**63 - 1  # what a column holds
_MOST_LISTED = 10_000
_BODY = "body"


def add_operations(router: APIRouter, performer: Performer) -> None:
    """Add a route for every operation."""
    for operation in operations():
        router.add_api_route(
            operation.path,
            _endpoint(operation, performer),
            methods=[operation.verb],
            tags=[operation.facet],
            name=operation.name,
            operation_id=operation.name.replace(".", "_"),
            summary=operation.summary,
            description=inspect.getdoc(operation.function),
            response_model=operation.types["return"],
            openapi_extra={"x-podium-role": operation.role.value},
        )


def _endpoint(operation: Operation, performer: Performer) -> Callable[..., Response]:
    def endpoint(request: Request, **given: Any) -> Response:
        cursor = given.pop(CURSOR, None)
        body = given.pop(_BODY, None)
        arguments = {name: value for name, value in given.items() if value is not ...}
        if isinstance(body, BaseModel):
            arguments |= {name: getattr(body, name) for name in body.model_fields_set}
        if cursor is not None:
            arguments[str(operation.page)] = _key(operation, from_cursor(request, cursor))
        _expect_generation(operation, request, arguments)
        asked = Asked(
            operation.name,
            operation.role,
            arguments,
            operation.artifact,
            operation.repeatable,
            operation.audited,
            operation.secret,
            operation.answer.dump_json if operation.judged else None,
        )
        listed: list[Any] = []
        answer = performer.perform(request, asked, _act(operation, arguments, listed))
        _link_next(operation, request, answer, arguments, listed)
        return answer

    endpoint.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    return endpoint


def _act(
    operation: Operation, arguments: Mapping[str, Any], listed: list[Any]
) -> Callable[[StoredRegistry], bytes]:
    def act(registry: StoredRegistry) -> bytes:
        found = getattr(getattr(registry, operation.facet), operation.method)(**arguments)
        if operation.page is not None:
            listed.extend(found)
        return operation.answer.dump_json(found)

    return act


def _signature(operation: Operation) -> inspect.Signature:
    parameters = [inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)]
    parameters += [
        _parameter(name, Annotated[_bounded(operation.types[name]), Path(examples=[EXAMPLES[name]])])
        if name in EXAMPLES
        else _parameter(name, Annotated[_bounded(operation.types[name]), Path()])
        for name in operation.in_path
    ]
    if operation.verb == "GET":
        parameters += [_in_query(operation, each) for each in operation.beside_path]
        if operation.page is not None:
            cursor = Annotated[str | None, Query(description="Where a page begins, from `Link: rel=next`.")]
            parameters.append(_parameter(CURSOR, cursor, None))
    elif operation.beside_path:
        parameters.append(_parameter(_BODY, _body_model(operation)))
    return inspect.Signature(parameters, return_annotation=Response)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _in_query(operation: Operation, parameter: inspect.Parameter) -> inspect.Parameter:
    hint = operation.types[parameter.name]
    if parameter.name == "limit":
        bounded: Any = Annotated[hint, Query(ge=1, le=_MOST_LISTED)]
    else:
        bounded = Annotated[_bounded(hint), Query()]
    default = parameter.default
    if parameter.name == operation.page and default is inspect.Parameter.empty:
        default = 0  # a first page needs no place to begin
    return _parameter(parameter.name, bounded, default)


def _bounded(hint: Any) -> Any:
    """A number that a column holds."""
    if hint is int or hint == (int | None):
        return Annotated[hint, Field(ge=-_LARGEST, le=_LARGEST)]
    return hint


def _body_model(operation: Operation) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for each in operation.beside_path:
        required = each.default is inspect.Parameter.empty
        default = ... if required else (None if each.default is ... else each.default)
        examples = [EXAMPLES[each.name]] if each.name in EXAMPLES else None
        fields[each.name] = (_bounded(operation.types[each.name]), Field(default, examples=examples))
    name = "".join(part.title() for part in f"{operation.facet}_{operation.method}".split("_"))
    config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
    model: type[BaseModel] = create_model(f"{name}Request", __config__=config, **fields)
    return model


def _key(operation: Operation, key: Any) -> Any:
    try:
        return operation.adapter(str(operation.page)).validate_python(key, strict=True)
    except ValidationError as error:
        raise InvalidRequest("The cursor is damaged.", remedy="Begin at the first page.") from error


def _expect_generation(operation: Operation, request: Request, arguments: dict[str, Any]) -> None:
    """``If-Match`` with an alias's generation is `expect_generation`."""
    match = request.headers.get("if-match")
    if match is None or operation.name != "promotions.promote":
        return
    text = match.strip().removeprefix("W/").strip('"')
    if not text.isdecimal() or len(text) > 18:
        raise InvalidRequest(
            "If-Match is no generation of an alias.", remedy='Send for example: If-Match: "3"'
        )
    arguments["expect_generation"] = int(text)


def _link_next(
    operation: Operation, request: Request, answer: Response, arguments: Mapping[str, Any], listed: list[Any]
) -> None:
    if operation.page is None or not listed or len(listed) < arguments["limit"]:
        return
    cursor = to_cursor(request, getattr(listed[-1], str(operation.page_key)))
    answer.headers["link"] = next_link(request, cursor)
