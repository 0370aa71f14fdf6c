"""The alias middleware: the only door of a vLLM process.

It runs *inside* vLLM (``--middleware podium_middleware.AliasMiddleware``), so this one file uses the
standard library alone, imports nothing of podium, and is copied beside each replica before it starts. It

- turns a served name into the version that is live: ``ticket-router`` becomes ``ticket-router:v7``, and the
  answer says so in ``model`` and in the header ``x-podium-version``;
- takes the whole map of routes on one control path, and refuses an older one, by (incarnation, epoch,
  generation) and the id of this boot;
- counts what is being answered by each version, and refuses to unload one that is routed to or in use;
- lets clients reach the inference paths and nothing else. Load, unload and control need the token that was
  made for this start.

A request is judged when it is admitted: its whole body has arrived, and in the same step without an
``await`` its version is looked up and counted. So nothing is admitted to a version after the map that
replaced it was applied.
"""

from __future__ import annotations

import hmac
import json
import os
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AliasMiddleware", "Fence", "RouteMap", "Switchboard"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_VARIABLE = "PODIUM_ENGINE_TOKEN"
BODY_LIMIT_VARIABLE = "PODIUM_ENGINE_BODY_LIMIT"
BODY_LIMIT = 32 * 1024 * 1024  # bytes; an image in a chat fits, a body sent to fill the memory does not
CONTROL_BODY_LIMIT = 1024 * 1024
TOKEN_HEADER = b"x-podium-token"
FENCE_HEADER = b"x-podium-fence"  # "incarnation.epoch.generation" of who asks for a load or unload
VERSION_HEADER = b"x-podium-version"
STATE_PATH = "/podium/state"
MAP_PATH = "/podium/map"
DRAIN_PATH = "/podium/drain"
CONTROL_PATHS = frozenset({STATE_PATH, MAP_PATH, DRAIN_PATH})

# Paths whose body names a model.
INFERENCE_PATHS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"}
)
MODELS_PATH = "/v1/models"
HEALTH_PATH = "/health"
PLAIN_PATHS = frozenset({"/metrics", "/version"})  # passed on as they are
LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"


class Problem(Exception):
    """An answer other than 200 that this middleware gives by itself."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param

    def body(self) -> bytes:
        """The error in the shape that OpenAI clients read."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return json.dumps({"error": error}).encode()


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "open", self.open | frozenset(self.routes.values()))

    @classmethod
    def parse(cls, raw: Any) -> RouteMap:
        """Read a map from JSON; raises `Problem`."""
        if not isinstance(raw, Mapping):
            raise Problem(400, "BadRequestError", "The map must be a JSON object.")
        routes, names = raw.get("routes"), raw.get("open")
        if not isinstance(routes, Mapping) or not all(
            isinstance(key, str) and isinstance(value, str) and value for key, value in routes.items()
        ):
            raise Problem(400, "BadRequestError", "'routes' must map names to names.", "routes")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Problem(400, "BadRequestError", "'open' must be a list of names.", "open")
        return cls(Fence.parse(raw.get("fence")), dict(routes), frozenset(names))

    def to_json(self) -> dict[str, Any]:
        return {"fence": self.fence.to_json(), "routes": dict(self.routes), "open": sorted(self.open)}


@dataclass
class Switchboard:
    """Which version answers a name, and how many answers each version has under way."""

    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    map: RouteMap | None = None
    draining: bool = False
    in_flight: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)  # since boot, by version
    refused: Counter[int] = field(default_factory=Counter)  # since boot, by status

    def apply(self, new: RouteMap, boot: str) -> None:
        """Take a map, unless this boot, or what it holds, is not what the sender thinks; raises `Problem`."""
        self._check_authority(new.fence, boot)
        if self.map is not None and new.fence == self.map.fence and new != self.map:
            raise Problem(409, "ConflictError", "Another map of this generation is already applied.", "fence")
        self.map = new

    def drain(self, fence: Fence, boot: str) -> None:
        """Admit nothing more until this process ends; raises `Problem`."""
        self._check_authority(fence, boot)
        self.draining = True

    def check_change(self, fence: Fence) -> None:
        """May a controller with this fence load or unload something here? Raises `Problem`."""
        self._check_authority(fence, self.boot)

    def check_unload(self, name: str) -> None:
        """A version that clients can reach, or that still answers, is not unloaded; raises `Problem`."""
        if self.map is not None and name in self.map.open:
            raise Problem(409, "ConflictError", f"{name} is open to clients.", "lora_name")
        if self.in_flight[name]:
            raise Problem(409, "ConflictError", f"{name} is still answering.", "lora_name")

    def _check_authority(self, fence: Fence, boot: str) -> None:
        if boot != self.boot:
            raise Problem(409, "ConflictError", f"This is boot {self.boot}, not {boot}.", "boot")
        if self.map is not None and fence < self.map.fence:
            raise Problem(409, "ConflictError", f"A newer map is applied: {self.map.fence}.", "fence")

    def admit(self, name: str) -> str:
        """Choose and count the version that answers ``name``; raises `Problem`."""
        current = self._ready_map()
        version = current.routes.get(name)
        if version is None:
            if name not in current.open:
                served = ", ".join(sorted(current.routes)) or "nothing yet"
                raise Problem(
                    404, "NotFoundError", f"The model `{name}` is not served here. Served: {served}.", "model"
                )
            version = name
        self.in_flight[version] += 1
        self.admitted[version] += 1
        return version

    def finished(self, version: str) -> None:
        """One answer of the version has ended, well or not."""
        self.in_flight[version] -= 1
        if self.in_flight[version] <= 0:
            del self.in_flight[version]

    def _ready_map(self) -> RouteMap:
        if self.draining:
            raise Problem(503, "ServiceUnavailableError", "This replica is about to stop.")
        if self.map is None:
            raise Problem(503, "ServiceUnavailableError", "This replica has no routes yet.")
        return self.map

    def models(self) -> dict[str, Any]:
        """The names that clients may ask for, in the shape of OpenAI's list; raises `Problem`."""
        current = self._ready_map()
        entries = [
            {"id": name, "object": "model", "owned_by": "podium", "root": version}
            for name, version in sorted(current.routes.items())
        ]
        entries += [
            {"id": name, "object": "model", "owned_by": "podium", "root": name}
            for name in sorted(current.open - set(current.routes))
        ]
        return {"object": "list", "data": entries}

    def state(self) -> dict[str, Any]:
        """All that the controller observes."""
        return {
            "boot": self.boot,
            "map": self.map.to_json() if self.map else None,
            "draining": self.draining,
            "in_flight": dict(self.in_flight),
            "admitted": dict(self.admitted),
            "refused": {str(status): count for status, count in self.refused.items()},
        }


class AliasMiddleware:
    """ASGI middleware around vLLM's app. The token of this start comes from ``PODIUM_ENGINE_TOKEN``."""

    def __init__(self, app: App, token: str | None = None, body_limit: int | None = None) -> None:
        self._app = app
        self._token = (token or os.environ.get(TOKEN_VARIABLE, "")).encode()
        if not self._token:
            raise RuntimeError(f"{TOKEN_VARIABLE} is not set: without it the control paths cannot be closed")
        self._body_limit = body_limit or int(os.environ.get(BODY_LIMIT_VARIABLE, BODY_LIMIT))
        self.switchboard = Switchboard()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            given = _header(scope, TOKEN_HEADER)
            if given is not None:
                await self._controller(scope, receive, send, given)
            else:
                await self._client(scope, receive, send)
        except Problem as problem:
            self.switchboard.refused[problem.status] += 1
            # The body may not have been read to its end: the connection cannot be used again.
            close = problem.status == 413
            await _reply(send, problem.status, problem.body(), close=close, retry=problem.status == 503)
        except _Disconnected:
            return

    async def _controller(self, scope: Scope, receive: Receive, send: Send, given: bytes) -> None:
        """Requests that carry a token: control, load and unload, and probes of any version."""
        if not hmac.compare_digest(given, self._token):
            raise Problem(403, "PermissionDeniedError", "The token is not this replica's.")
        call = (scope["method"], scope["path"])
        if call == ("GET", STATE_PATH):
            await _reply_json(send, self.switchboard.state())
        elif call == ("PUT", MAP_PATH):
            raw = _parse_object(await _read_body(scope, receive, CONTROL_BODY_LIMIT))
            self.switchboard.apply(RouteMap.parse(raw), str(raw.get("boot")))
            await _reply_json(send, self.switchboard.state())
        elif call == ("POST", DRAIN_PATH):
            raw = _parse_object(await _read_body(scope, receive, CONTROL_BODY_LIMIT))
            self.switchboard.drain(Fence.parse(raw.get("fence")), str(raw.get("boot")))
            await _reply_json(send, self.switchboard.state())
        elif scope["path"] in CONTROL_PATHS:
            raise Problem(405, "MethodNotAllowedError", "The control path does not take this method.")
        elif scope["path"] in (LOAD_PATH, UNLOAD_PATH):
            await self._change(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _change(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Load or unload: only for the newest controller, and never a version that is in use."""
        body = await _read_body(scope, receive, CONTROL_BODY_LIMIT)
        raw = _parse_object(body)
        self.switchboard.check_change(Fence.from_header(_header(scope, FENCE_HEADER)))
        if scope["path"] == UNLOAD_PATH:
            self.switchboard.check_unload(str(raw.get("lora_name")))
        elif raw.get("load_inplace"):
            raise Problem(
                400, "BadRequestError", "A version is never loaded over another one.", "load_inplace"
            )
        await self._app(_with_length(scope, len(body)), _replay(body, receive), send)

    async def _client(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests without a token: only the paths that clients need."""
        method, path = scope["method"], scope["path"]
        if path in INFERENCE_PATHS:
            if method == "POST":
                await self._infer(scope, receive, send)
                return
            if method == "OPTIONS":  # a browser asks before it posts
                await self._app(scope, receive, send)
                return
        elif method in ("GET", "HEAD"):
            if path == MODELS_PATH:
                await _reply_json(send, self.switchboard.models())
                return
            if path == HEALTH_PATH:
                self.switchboard._ready_map()  # not ready before it knows its routes
                await self._app(scope, receive, send)
                return
            if path in PLAIN_PATHS:
                await self._app(scope, receive, send)
                return
        if path in INFERENCE_PATHS | PLAIN_PATHS | {MODELS_PATH, HEALTH_PATH}:
            raise Problem(405, "MethodNotAllowedError", f"{path} does not take {method}.")
        raise Problem(404, "NotFoundError", f"{path} is not open to clients.")

    async def _infer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(scope, receive, self._body_limit)
        request = _parse_object(body)
        name = request.get("model")
        if name is None or name == "":
            raise Problem(400, "BadRequestError", "The request names no 'model'.", "model")
        if not isinstance(name, str):
            raise Problem(400, "BadRequestError", "'model' must be a string.", "model")
        version = self.switchboard.admit(name)
        try:
            if version != name:
                request["model"] = version
                body = json.dumps(request).encode()
            await self._app(_with_length(scope, len(body)), _replay(body, receive), _naming(version, send))
        finally:
            self.switchboard.finished(version)


class _Disconnected(Exception):
    """The client went away before its request was whole."""


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key.lower() == name), None)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "BadRequestError", "The body is not JSON.") from error
    if not isinstance(parsed, dict):
        raise Problem(400, "BadRequestError", "The body must be a JSON object.")
    return parsed


async def _read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    declared = _header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise Problem(413, "RequestTooLargeError", f"The body is larger than {limit} bytes.")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise Problem(413, "RequestTooLargeError", f"The body is larger than {limit} bytes.")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _with_length(scope: Scope, length: int) -> Scope:
    """The scope for the rewritten body, which has a length of its own and arrives whole."""
    kept = [
        (key, value)
        for key, value in scope["headers"]
        if key.lower() not in (b"content-length", b"transfer-encoding")
    ]
    return {**scope, "headers": [*kept, (b"content-length", str(length).encode())]}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the app the body in one message; what comes after it (a disconnect) is the client's own."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _naming(version: str, send: Send) -> Send:
    """Add the version's name to the head of the answer; its body passes untouched, streamed or not."""

    async def naming(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (VERSION_HEADER, version.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return naming


async def _reply_json(send: Send, value: Any) -> None:
    await _reply(send, 200, json.dumps(value).encode())


async def _reply(send: Send, status: int, body: bytes, *, close: bool = False, retry: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    if retry:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
