"""Who asks, and whether they may: from a request's headers to a registry that acts on their behalf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.requests import Request

from registry.errors import Forbidden, InvalidRequest, Unauthorized
from registry.identity import rules
from registry.identity.roles import TeamRole
from registry.identity.tokens import Token
from registry.store.session import check_text
from registry.store.stored import StoredRegistry
from registry.values import Authority, Origin
from registry.wire import headers

#: The cookie that a browser shows instead of a token.
COOKIE = "podium_session"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST_ACTOR = 300


@dataclass(frozen=True)
class Asker:
    """Who asks, with a registry on whose behalf what they ask is done."""

    token: Token
    registry: StoredRegistry

    def require(self, operation: str, role: TeamRole) -> None:
        """Raise `Forbidden` unless the token is good for the operation at all."""
        rules.require_role(self.token, role, operation)
        if role is not TeamRole.VIEWER:
            rules.require_own(self.token, operation)

    def may(self, operation: str, role: TeamRole) -> bool:
        """Whether `require` lets it pass: for pages, which offer no button that would be refused."""
        try:
            self.require(operation, role)
        except Forbidden:
            return False
        return True

    def require_for(self, operation: str, arguments: Mapping[str, Any], artifact: str | None) -> None:
        """Raise `Forbidden` unless it is good for these arguments, too."""
        rules.require_role(self.token, rules.needed_by_arguments(operation, arguments), operation)
        for name in rules.changed_artifacts(operation, arguments, artifact):
            rules.require_scope(self.token, name)
        if operation.startswith("promotions.") and artifact is not None:
            (name,) = rules.changed_artifacts(operation, arguments, artifact)
            needed = self.registry.identity.role_to_move(name, arguments["alias"])
            rules.require_role(self.token, needed, f"move {name}:{arguments['alias'][:64]}")


def asker(request: Request, registry: StoredRegistry) -> Asker:
    """Who sent a request. It reads the database: call it in a thread.

    Raises:
        Unauthorized: no token, or none that is good now.
        Forbidden: it speaks for somebody whom its token does not stand for.
    """
    token = registry.identity.authenticate(presented(request))
    if token is None:
        raise Unauthorized(
            "The token is not known here, or has expired or been revoked.",
            remedy="Set PODIUM_TOKEN to a token that 'podium token add' made.",
        )
    origin = rules.origin_for(token, _asked_origin(request))
    return Asker(token, registry.acting_with(origin, token.role, token.pattern))


def presented(request: Request) -> str:
    """The token's text in a request; a cookie counts only where the request is from our own pages."""
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, text = header.partition(" ")
        return text.strip() if scheme.lower() == "bearer" else ""
    cookie = request.cookies.get(COOKIE, "")
    if not cookie:
        raise Unauthorized(
            "This needs a token.", remedy="Set PODIUM_TOKEN, or open the link that 'podium up' prints."
        )
    if request.method not in _SAFE and not _from_own_pages(request):
        raise Forbidden("This request was made by another site's page.", remedy="Use podium's own pages.")
    return cookie


def _from_own_pages(request: Request) -> bool:
    origin = request.headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc == request.headers.get("host", "")
    return request.headers.get("sec-fetch-site") == "same-origin"


def _asked_origin(request: Request) -> Origin:
    given = request.headers
    actor = _text(given.get(headers.ACTOR, ""))
    lease = given.get(headers.LEASE)
    authority = None
    if lease is not None:
        epoch = given.get(headers.EPOCH, "")
        if not epoch.isdecimal() or len(epoch) > 18:
            raise InvalidRequest(f"The header {headers.EPOCH} is no epoch.")
        authority = Authority(_text(lease), int(epoch))
    causation, correlation = given.get(headers.CAUSATION), given.get(headers.CORRELATION)
    return Origin(
        actor, authority, _text(causation) if causation else None, _text(correlation) if correlation else None
    )


def _text(header: str) -> str:
    return check_text(unquote(header), "A header", longest=_LONGEST_ACTOR)
