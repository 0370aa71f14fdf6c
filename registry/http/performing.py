"""Carrying out what is asked: with the asker's rights, once, and with a line in the audit trail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from registry.database.engine import NoRow, UniqueViolation
from registry.errors import InvalidRequest, NotFound, PodiumError, Refused, TooManyRequests
from registry.http.allowance import Allowance
from registry.http.answering import json_answer
from registry.http.authorising import Asker, asker
from registry.http.transactions import OpenTransactions
from registry.identity.roles import TeamRole
from registry.store.answers import Answer
from registry.store.stored import StoredRegistry
from registry.wire import headers
from registry.wire.problems import status_of


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    operation: str
    role: TeamRole
    arguments: Mapping[str, Any]
    artifact: str | None = None  # the argument that names the artifact which is changed
    repeatable: bool = False
    audited: bool = True
    secret: bool = False
    sealed: Callable[[Any], bytes] | None = None  # opens its own transaction; how to write what that made

    @property
    def writes(self) -> bool:
        return self.role is not TeamRole.VIEWER


Act = Callable[[StoredRegistry], bytes]

_BURST, _PER_SECOND = 5000, 1000  # of one token: far more than a worker, a person or a page asks
_BAD_DATA = "22"  # classes of SQLSTATE
_NO_PARENT, _NO_PARENT_IN_SQLITE = "23503", "FOREIGN KEY constraint failed"


class Performer:
    """Does what is asked. Called in threads, never in the event loop."""

    def __init__(self, registry: StoredRegistry, requests: Allowance | None = None) -> None:
        self.registry = registry
        self.requests = requests or Allowance(_BURST, 1 / _PER_SECOND)
        self.transactions = OpenTransactions()

    def asker(self, request: Request) -> Asker:
        """Who asks, if they may ask now.

        Raises:
            TooManyRequests: with this token too much was asked; others go on undisturbed.
        """
        who = asker(request, self.registry)
        if not self.requests.take(who.token.id):
            raise TooManyRequests(
                f"More than {_PER_SECOND} requests a second came with the token of '{who.token.name}'.",
                remedy="Ask less often; follow the events instead of looking again and again.",
            )
        return who

    def perform(self, request: Request, asked: Asked, act: Act) -> Response:
        """Answer a request with the JSON that ``act`` gives, which it gets a registry of the asker for.

        Raises:
            PodiumError: what the answer will say instead.
        """
        who = self.asker(request)
        transaction = request.headers.get(headers.TRANSACTION)
        if transaction is None:
            return self._perform(request, who, asked, act)
        # All in the transaction's thread: a line in the trail, written beside it, would wait for its end.
        return self.transactions.run(
            transaction, who.token.id, lambda: self._perform(request, who, asked, act, joined=True)
        )

    def _perform(
        self, request: Request, who: Asker, asked: Asked, act: Act, *, joined: bool = False
    ) -> Response:
        try:
            who.require(asked.operation, asked.role)
            who.require_for(asked.operation, asked.arguments, asked.artifact)
            act = _refusing_bad_values(act)
            if not asked.writes:
                return json_answer(act(who.registry), request)
            if joined:
                return json_answer(self._recorded(request, who, asked, act), request)
            return self._write(request, who, asked, act)
        except PodiumError as error:
            if asked.writes and asked.audited:
                _record(request, who, asked, status_of(error))
            raise

    def _write(self, request: Request, who: Asker, asked: Asked, act: Act) -> Response:
        key = request.headers.get(headers.IDEMPOTENCY)
        if asked.repeatable or asked.secret or key is None:
            return json_answer(self._recorded(request, who, asked, act), request)
        if not 0 < len(key) <= headers.LONGEST_ID or not key.isprintable():
            raise InvalidRequest(
                f"An idempotency key has 1 to {headers.LONGEST_ID} printable characters.",
                remedy="Use a random one, such as a UUID.",
            )
        return self._once(request, who, asked, act, key)

    def _recorded(self, request: Request, who: Asker, asked: Asked, act: Act) -> bytes:
        """The write and its line in the trail, both or neither."""
        if not asked.audited:
            return act(who.registry)
        return self._together(who, asked, act, lambda _: _record(request, who, asked, 200))

    def _once(self, request: Request, who: Asker, asked: Asked, act: Act, key: str) -> Response:
        answers, fingerprint = who.registry.answers, _fingerprint(request, asked)

        def keep(body: bytes) -> None:
            if asked.audited:
                _record(request, who, asked, 200)
            answers.keep(who.token.id, key, fingerprint, Answer(200, body.decode()))

        given = answers.find(who.token.id, key, fingerprint)
        if given is None:
            try:
                return json_answer(self._together(who, asked, act, keep), request)
            except (UniqueViolation, PodiumError):
                # The same request may have been carried out beside this one, and then stands.
                given = answers.find(who.token.id, key, fingerprint)
                if given is None:
                    raise
        answer = json_answer(given.body.encode(), request, given.status)
        answer.headers["idempotent-replayed"] = "true"
        return answer

    @staticmethod
    def _together(who: Asker, asked: Asked, act: Act, keep: Callable[[bytes], None]) -> bytes:
        """Carry it out, and keep what is kept of it, in one transaction."""
        write = asked.sealed
        if write is not None:  # judging takes long: the write's own transaction begins after it
            return act(who.registry.sealing(lambda made: keep(write(made))))
        with who.registry.transaction():
            body = act(who.registry)
            keep(body)
            return body


def _fingerprint(request: Request, asked: Asked) -> str:
    said = f"{request.method} {request.url.path}?{request.url.query}\n{asked.arguments!r}"
    return hashlib.sha256(said.encode(errors="backslashreplace")).hexdigest()


def _record(request: Request, who: Asker, asked: Asked, status: int) -> None:
    address = request.client.host if request.client else ""
    who.registry.identity.record(who.token.id, asked.operation, request.url.path, status, address)


def _refusing_bad_values(act: Act) -> Act:
    """Values that no column can hold are a mistake in the request, not in the server."""

    def refusing(registry: StoredRegistry) -> bytes:
        try:
            return act(registry)
        except PodiumError:
            raise
        except Exception as error:
            mistake = _as_mistake(error)
            if mistake is error:
                raise
            raise mistake from error

    return refusing


def _as_mistake(error: Exception) -> Exception:
    """What a database's refusal of a value says of the request; itself where that is not the request's."""
    state = str(getattr(error, "sqlstate", ""))
    if isinstance(error, UniqueViolation):
        return Refused("There is one already.", remedy="Nothing was changed. See what there is first.")
    if isinstance(error, NoRow) or state == _NO_PARENT or _NO_PARENT_IN_SQLITE in str(error):
        return NotFound(
            "What the request names is not there.", remedy="Nothing was changed. See what there is first."
        )
    if isinstance(error, OverflowError | UnicodeEncodeError) or state.startswith(_BAD_DATA):
        return _unusable()
    return error


def _unusable() -> InvalidRequest:
    return InvalidRequest(
        "A number in the request is too large, or a text is no Unicode.", remedy="Nothing was changed."
    )
