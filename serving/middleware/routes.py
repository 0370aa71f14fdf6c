"""What the controller tells a replica: all routes at once, who may use them, and how new that is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .problem import Problem

_KEY_PREFIX = "podium"
_NOBODY = "0" * 64  # the hash of no key, so that an unknown id takes as long as a known one


@dataclass(frozen=True, order=True)
class Fence:
    """How new a map is. Fields are compared from left to right."""

    incarnation: int = 0  # of the database: raised when it was restored
    epoch: int = 0  # of the controller's lease
    generation: int = 0  # of the deployment's map

    @classmethod
    def parse(cls, raw: Any) -> Fence:
        """Read a fence from JSON; raises `Problem`."""
        if not isinstance(raw, Mapping):
            raise Problem(400, "BadRequestError", "The map needs a 'fence' object.", "fence")
        parts = [raw.get(name) for name in ("incarnation", "epoch", "generation")]
        if not all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in parts):
            raise Problem(
                400, "BadRequestError", "A fence has three numbers: incarnation, epoch, generation.", "fence"
            )
        return cls(*parts)  # type: ignore[arg-type]

    @classmethod
    def from_header(cls, raw: bytes | None) -> Fence:
        """Read ``incarnation.epoch.generation``; raises `Problem`."""
        parts = (raw or b"").split(b".")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise Problem(400, "BadRequestError", "A load or unload says its fence in a header.")
        return cls(*(int(part) for part in parts))

    def to_json(self) -> dict[str, int]:
        return {"incarnation": self.incarnation, "epoch": self.epoch, "generation": self.generation}


@dataclass(frozen=True)
class RouteMap:
    """All routes of a replica at once."""

    fence: Fence
    routes: Mapping[str, str]  # served name -> name of the version that answers
    open: frozenset[
        str
    ]  # names of versions that clients may ask for directly; those routed to are among them
    keys: Mapping[str, str] | None = None  # id of a client's key -> its sha256; None: nobody needs a key

    def __post_init__(self) -> None:
        object.__setattr__(self, "open", self.open | frozenset(self.routes.values()))

    @classmethod
    def parse(cls, raw: Any) -> RouteMap:
        """Read a map from JSON; raises `Problem`."""
        if not isinstance(raw, Mapping):
            raise Problem(400, "BadRequestError", "The map must be a JSON object.")
        routes, names, keys = raw.get("routes"), raw.get("open"), raw.get("keys")
        if not _maps_names(routes):
            raise Problem(400, "BadRequestError", "'routes' must map names to names.", "routes")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Problem(400, "BadRequestError", "'open' must be a list of names.", "open")
        if keys is not None and not _maps_names(keys):
            raise Problem(400, "BadRequestError", "'keys' must map ids to hashes.", "keys")
        fence = Fence.parse(raw.get("fence"))
        return cls(fence, dict(routes), frozenset(names), None if keys is None else dict(keys))

    def to_json(self) -> dict[str, Any]:
        return {
            "fence": self.fence.to_json(),
            "routes": dict(self.routes),
            "open": sorted(self.open),
            "keys": None if self.keys is None else dict(self.keys),
        }

    def check_key(self, authorization: bytes | None) -> None:
        """Raise `Problem` unless the ``Authorization`` header shows a good key, or none is needed."""
        if self.keys is None:
            return
        scheme, _, given = (authorization or b"").strip().partition(b" ")
        if scheme.lower() != b"bearer" or not given:
            raise _unauthorized("This deployment needs an API key: send 'Authorization: Bearer KEY'.")
        key = given.strip()
        parts = key.split(b"-", 2)
        id = (
            parts[1].decode("latin-1")
            if len(parts) == 3 and parts[0].decode("latin-1") == _KEY_PREFIX
            else ""
        )
        expected = self.keys.get(id, _NOBODY)
        if not hmac.compare_digest(hashlib.sha256(key).hexdigest(), expected):
            raise _unauthorized("The API key is not one of this deployment's.")


def _maps_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(name, str) and name for key, name in value.items()
    )


def _unauthorized(message: str) -> Problem:
    return Problem(401, "invalid_request_error", message, code="invalid_api_key")
