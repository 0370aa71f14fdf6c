"""Asking a server: one HTTP client for all threads, errors as they were raised there, writes done once."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, KeysView, Mapping, Set, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import ValidationError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from registry.errors import InvalidInput, PodiumError, ServerMismatch, ServerUnavailable, Unauthorized
from registry.values import Origin
from registry.wire import headers
from registry.wire.operation import Operation
from registry.wire.problems import from_problem

_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=32, keepalive_expiry=20.0)
_ATTEMPTS = 4


@dataclass
class _Shared:
    """What all registries over one server share."""

    client: httpx.Client
    address: str
    open: threading.local = field(default_factory=threading.local)  # this thread's transaction


@dataclass(frozen=True)
class Transport:
    """Requests to one server, on one origin's behalf. Thread-safe."""

    shared: _Shared
    origin: Origin | None = None  # None: whoever the token is of

    @classmethod
    def to(cls, address: str, token: str | None, *, http: httpx.BaseTransport | None = None) -> Transport:
        """To the server at ``address``; ``http`` is what carries requests, the network unless given.

        Raises:
            Unauthorized: there is no token.
        """
        if not token:
            raise Unauthorized(
                f"The server {address} needs a token.",
                remedy="Set PODIUM_TOKEN to a token that 'podium token add' made there.",
            )
        given = {"authorization": f"Bearer {token}", headers.LEVEL: str(headers.API_LEVEL)}
        try:
            client = httpx.Client(
                base_url=address + headers.PREFIX,
                headers=given,
                timeout=_TIMEOUT,
                limits=_LIMITS,
                transport=http,
            )
        except (UnicodeEncodeError, httpx.InvalidURL) as error:
            raise InvalidInput("PODIUM_TOKEN or PODIUM_URL cannot be used.", remedy="Correct it.") from error
        return cls(_Shared(client, address))

    def acting(self, origin: Origin | None) -> Transport:
        return replace(self, origin=origin)

    def close(self) -> None:
        self.shared.client.close()

    # Operations

    def call(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Ask for an operation; what its method returns.

        Raises:
            PodiumError: as the server raised it.
            ServerUnavailable: nobody answers.
        """
        path = _path(operation, arguments)
        given = {p.name: p for p in operation.beside_path if p.name in arguments}
        sent = {
            name: _plain(operation, name, arguments[name])
            for name, parameter in given.items()
            if arguments[name] is not parameter.default
        }
        if operation.verb == "GET":
            answer = self.request("GET", path, params={n: _text(v) for n, v in sent.items() if v is not None})
        else:
            body = json.dumps(sent).encode() if operation.beside_path else None
            answer = self.request(operation.verb, path, body=body, repeatable=operation.repeatable)
        try:
            return operation.answer.validate_json(answer.content)
        except ValidationError as error:
            raise self._strange(answer) from error

    def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        repeatable: bool = True,
        timeout: float | None = None,
        content_type: str = "application/json",
    ) -> httpx.Response:
        """One request, sent again when the way there breaks; a key keeps a write from being done twice.

        What is ``repeatable`` needs none.
        """
        given = self._headers()
        if body is not None:
            given["content-type"] = content_type
        if not repeatable:
            given[headers.IDEMPOTENCY] = uuid.uuid4().hex
        ask = self.shared.client.build_request(
            verb,
            path,
            params=params,
            content=body,
            headers=given,
            timeout=httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout, connect=5.0),
        )
        answer = self._sent(lambda: self.shared.client.send(ask))
        if answer.is_success:
            self._check_level(answer)
            return answer
        raise self._error(answer)

    def _sent(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        # What is part of an open transaction is not sent again: the first may have been carried out, and
        # no answer of it is kept before the end.
        attempts = 1 if self.transaction is not None else _ATTEMPTS
        retrying = Retrying(
            retry=retry_if_exception_type(httpx.TransportError) | retry_if_result(_is_too_soon),
            stop=stop_after_attempt(attempts),
            wait=_pause,
            retry_error_callback=_last,  # what came last counts, be it an answer or an error
        )
        try:
            return retrying(send)
        except httpx.HTTPError as error:
            raise ServerUnavailable(
                f"The server {self.shared.address} does not answer: {str(error) or type(error).__name__}.",
                remedy="Check PODIUM_URL, and that 'podium up' or 'podium server' runs there.",
            ) from error

    def _headers(self) -> dict[str, str]:
        found = {}
        origin = self.origin
        if origin is not None:
            found[headers.ACTOR] = quote(origin.actor)
            if origin.authority is not None:
                found[headers.LEASE] = quote(origin.authority.lease)
                found[headers.EPOCH] = str(origin.authority.epoch)
            if origin.causation is not None:
                found[headers.CAUSATION] = quote(origin.causation)
            if origin.correlation is not None:
                found[headers.CORRELATION] = quote(origin.correlation)
        if self.transaction is not None:
            found[headers.TRANSACTION] = self.transaction
        return found

    def _error(self, answer: httpx.Response) -> PodiumError:
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict) or "code" not in document:
            return self._strange(answer)
        return from_problem(document)

    def _check_level(self, answer: httpx.Response) -> None:
        level = answer.headers.get(headers.LEVEL, "")
        if level.isdecimal() and int(level) >= headers.OLDEST_LEVEL:
            return
        if level.isdecimal():
            raise ServerMismatch(
                f"The server {self.shared.address} is older than this podium understands.",
                remedy="Update the server, or install its version of podium here.",
            )
        raise self._strange(answer)

    def _strange(self, answer: httpx.Response) -> PodiumError:
        if answer.status_code in (502, 503, 504):
            return ServerUnavailable(
                f"The server {self.shared.address} does not answer ({answer.status_code}).",
                remedy="Try again.",
            )
        return ServerMismatch(
            f"What answers at {self.shared.address} is no podium server that this podium understands "
            f"({answer.status_code}).",
            remedy="Check PODIUM_URL, and that both have the same version.",
        )

    # Transactions

    @property
    def transaction(self) -> str | None:
        """The id of the transaction that the calling thread is in."""
        found: str | None = getattr(self.shared.open, "transaction", None)
        return found

    @contextmanager
    def in_transaction(self) -> Iterator[None]:
        """All requests of this thread inside the block become true together, or not at all."""
        if self.transaction is not None:
            yield
            return
        id = self.request("POST", "/transactions").json()["id"]
        self.shared.open.transaction = id
        try:
            yield
        except BaseException:
            self.shared.open.transaction = None
            self._undo(id)
            raise
        self.shared.open.transaction = None
        self.request("POST", f"/transactions/{id}/commit")

    def _undo(self, id: str) -> None:
        try:
            self.request("DELETE", f"/transactions/{id}")
        except PodiumError:
            return  # the server undoes by itself what nobody goes on with


_GROWING = wait_random_exponential(multiplier=0.05, max=1.0)
_LONGEST_PAUSE = 5.0


def _is_too_soon(answer: httpx.Response) -> bool:
    return answer.status_code == httpx.codes.TOO_MANY_REQUESTS


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: as long as the server asks for, if it does."""
    outcome = state.outcome
    if outcome is not None and not outcome.failed:
        asked = outcome.result().headers.get("retry-after", "")
        return min(float(asked), _LONGEST_PAUSE) if asked.isdecimal() else 1.0
    return _GROWING(state)


def _last(state: RetryCallState) -> httpx.Response:
    assert state.outcome is not None
    answer: httpx.Response = state.outcome.result()
    return answer


def _path(operation: Operation, arguments: Mapping[str, Any]) -> str:
    path = operation.path
    for name in operation.in_path:
        value = _text(_plain(operation, name, arguments[name]))
        path = path.replace(f"{{{name}:path}}", quote(value)).replace(f"{{{name}}}", quote(value, safe=":@"))
    return path


def _plain(operation: Operation, name: str, value: Any) -> Any:
    """A value as plain JSON."""
    if isinstance(value, Set | KeysView | ValuesView):
        value = list(value)
    return operation.adapter(name).dump_python(value, mode="json", warnings=False)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
