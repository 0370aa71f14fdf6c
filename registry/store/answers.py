"""Answers that were given to writes over HTTP: what is sent again gets them, and does nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from registry.database.engine import UniqueViolation
from registry.database.statements import sql
from registry.errors import InvalidRequest
from registry.store.session import Session

KEPT = timedelta(hours=24)

_FIND = sql("SELECT request, status, body FROM answer WHERE token = :token AND key = :key")
_KEEP = sql("""
    INSERT INTO answer (token, key, request, status, body, at)
    VALUES (:token, :key, :request, :status, :body, :now)
""")
_FORGET = sql("DELETE FROM answer WHERE at < :before")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str


class StoredAnswers:
    """Kept in the transaction of the write itself: there is an answer exactly where the write was done."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, token: str, key: str, request: str) -> Answer | None:
        """What was answered to the request with that key.

        Raises:
            InvalidRequest: it was another request.
        """
        with self._session.reading() as reader:
            row = reader.first(_FIND, token=token, key=key)
        if row is None:
            return None
        if row[0] != request:
            raise InvalidRequest(
                f"The idempotency key '{key}' was used for another request.",
                remedy="Use a new key for each write, and the same only to send the same again.",
            )
        return Answer(row[1], row[2])

    def keep(self, token: str, key: str, request: str, answer: Answer) -> None:
        """Raises `UniqueViolation` where the same was done at the same time."""
        # Not under the origin's lease: it has ended by now where the write was to give it back.
        with self._session.database.transaction() as transaction:
            transaction.execute(
                _KEEP,
                token=token,
                key=key,
                request=request,
                status=answer.status,
                body=answer.body,
                now=self._session.now(),
            )

    def forget(self) -> None:
        """Remove those that nobody asks for any more."""
        with self._session.database.transaction() as transaction:
            transaction.execute(_FORGET, before=self._session.now() - KEPT)


__all__ = ["KEPT", "Answer", "StoredAnswers", "UniqueViolation"]
