"""The ASGI middleware itself: who may do what on which path."""

from __future__ import annotations

import hmac
import json
import os
import time
from typing import Any

from .asgi import App, Disconnected, Message, Receive, Scope, Send, header, replay, reply, reply_json, without
from .bounds import Bounds, Unread, read_body, send_in_time
from .problem import Problem
from .routes import Fence, RouteMap
from .switchboard import Switchboard

TOKEN_VARIABLE = "PODIUM_ENGINE_TOKEN"
TOKEN_HEADER = b"x-podium-token"
FENCE_HEADER = b"x-podium-fence"  # "incarnation.epoch.generation" of who asks for a load or unload
VERSION_HEADER = b"x-podium-version"
_AUTHORIZATION = b"authorization"

STATE_PATH = "/podium/state"
MAP_PATH = "/podium/map"
DRAIN_PATH = "/podium/drain"
CONTROL_PATHS = frozenset({STATE_PATH, MAP_PATH, DRAIN_PATH})

# Paths whose body names a model.
INFERENCE_PATHS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"}
)
MODELS_PATH = "/v1/models"
HEALTH_PATH = "/health"  # the one path that needs no key: a proxy asks it
VERSION_PATH = "/version"
_READ_PATHS = frozenset({MODELS_PATH, HEALTH_PATH, VERSION_PATH})
LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"

# After these the body may not have been read to its end: the connection cannot be used again.
_CLOSING = frozenset({401, 408, 413, 431, 503})
LEFT = 499  # as the status of an answer whose client left before it began


class AliasMiddleware:
    """ASGI middleware around vLLM's app. The token of this start comes from ``PODIUM_ENGINE_TOKEN``."""

    def __init__(self, app: App, token: str | None = None, bounds: Bounds | None = None) -> None:
        self._app = app
        self._token = (token or os.environ.get(TOKEN_VARIABLE, "")).encode()
        if not self._token:
            raise RuntimeError(f"{TOKEN_VARIABLE} is not set: without it the control paths cannot be closed")
        self._bounds = bounds or Bounds.from_environment()
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
            self._bounds.check_headers(scope)
            given = header(scope, TOKEN_HEADER)
            if given is not None:
                await self._controller(scope, receive, send, given)
            else:
                await self._client(scope, receive, send)
        except Problem as problem:
            self.switchboard.refused[problem.status] += 1
            await reply(send, problem.status, problem.body(), *_remarks(problem))
        except Disconnected:
            return

    async def _controller(self, scope: Scope, receive: Receive, send: Send, given: bytes) -> None:
        """Requests that carry a token: control, load and unload, metrics, and probes of any version."""
        if not hmac.compare_digest(given, self._token):
            raise Problem(403, "PermissionDeniedError", "The token is not this replica's.")
        call = (scope["method"], scope["path"])
        if call == ("GET", STATE_PATH):
            await reply_json(send, self.switchboard.state())
        elif call == ("PUT", MAP_PATH):
            raw = parse_object(await self._control_body(scope, receive))
            self.switchboard.apply(RouteMap.parse(raw), str(raw.get("boot")))
            await reply_json(send, self.switchboard.state())
        elif call == ("POST", DRAIN_PATH):
            raw = parse_object(await self._control_body(scope, receive))
            self.switchboard.drain(Fence.parse(raw.get("fence")), str(raw.get("boot")))
            await reply_json(send, self.switchboard.state())
        elif scope["path"] in CONTROL_PATHS:
            raise Problem(405, "MethodNotAllowedError", "The control path does not take this method.")
        elif scope["path"] in (LOAD_PATH, UNLOAD_PATH):
            await self._change(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _control_body(self, scope: Scope, receive: Receive) -> bytes:
        return await read_body(scope, receive, self._bounds.control_body, self._bounds, self.switchboard)

    async def _change(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Load or unload: only for the newest controller, and never a version that is in use."""
        body = await self._control_body(scope, receive)
        raw = parse_object(body)
        self.switchboard.check_change(Fence.from_header(header(scope, FENCE_HEADER)))
        if scope["path"] == UNLOAD_PATH:
            self.switchboard.check_unload(str(raw.get("lora_name")))
        elif raw.get("load_inplace"):
            raise Problem(
                400, "BadRequestError", "A version is never loaded over another one.", "load_inplace"
            )
        await self._app(_with_length(scope, len(body)), replay(body, receive), send)

    async def _client(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests without a token: only the paths that clients need."""
        method, path = scope["method"], scope["path"]
        if path in INFERENCE_PATHS:
            if method == "POST":
                await self._infer(scope, receive, send)
                return
            if method == "OPTIONS":  # a browser asks before it posts, and shows no key
                await self._app(without(scope, _AUTHORIZATION), receive, send)
                return
        elif path in _READ_PATHS and method in ("GET", "HEAD"):
            await self._read(scope, receive, send)
            return
        if path in INFERENCE_PATHS | _READ_PATHS:
            raise Problem(405, "MethodNotAllowedError", f"{path} does not take {method}.")
        raise Problem(404, "NotFoundError", f"{path} is not open to clients.")

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        current = self.switchboard.ready_map()  # not ready before it knows its routes, and who may ask
        if scope["path"] != HEALTH_PATH:
            current.check_key(header(scope, _AUTHORIZATION))
        if scope["path"] == MODELS_PATH:
            await reply_json(send, self.switchboard.models())
        else:
            await self._app(without(scope, _AUTHORIZATION), receive, send)

    async def _infer(self, scope: Scope, receive: Receive, send: Send) -> None:
        board, shown = self.switchboard, header(scope, _AUTHORIZATION)
        board.ready_map().check_key(shown)  # before memory is given to its body
        request = parse_object(await read_body(scope, receive, self._bounds.body, self._bounds, board))
        name = _model_of(request)
        board.ready_map().check_key(shown)  # the key may have been revoked while the body was on its way
        version = board.admit(name)
        # The body is always written anew: read twice, what names two models may be read in two ways.
        body = json.dumps({**request, "model": version}).encode()
        answer = _Answer(version, send, self._bounds.unread)
        try:
            await self._app(_with_length(scope, len(body)), replay(body, receive), answer.send)
        except Exception:
            if not answer.is_unread:
                raise
            # Whatever the app made of it: nobody is there to be told.
        finally:
            board.finished(version)
            board.count(name, version, answer.status, time.monotonic() - answer.begun)


class _Answer:
    """Adds the version's name to the head of an answer, and remembers its status."""

    def __init__(self, version: str, send: Send, patience: float) -> None:
        self._version = version.encode()
        self._send = send
        self._patience = patience
        self.is_unread = False
        self.status = LEFT
        self.begun = time.monotonic()

    async def send(self, message: Message) -> None:
        """Pass a message on; the body's untouched, streamed or not."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (VERSION_HEADER, self._version)]
            message = {**message, "headers": headers}
        try:
            await send_in_time(self._send, message, self._patience)
        except Unread:
            self.is_unread = True
            raise


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is; raises `Problem`."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "BadRequestError", "The body is not JSON.") from error
    if not isinstance(parsed, dict):
        raise Problem(400, "BadRequestError", "The body must be a JSON object.")
    return parsed


def _model_of(request: dict[str, Any]) -> str:
    name = request.get("model")
    if name is None or name == "":
        raise Problem(400, "BadRequestError", "The request names no 'model'.", "model")
    if not isinstance(name, str):
        raise Problem(400, "BadRequestError", "'model' must be a string.", "model")
    return name


def _with_length(scope: Scope, length: int) -> Scope:
    """The scope for the rewritten body, which has a length of its own and arrives whole; without the key."""
    told = [(b"content-length", str(length).encode())]
    return without(scope, b"content-length", b"transfer-encoding", _AUTHORIZATION, adding=told)


def _remarks(problem: Problem) -> list[tuple[bytes, bytes]]:
    remarks = []
    if problem.status in _CLOSING:
        remarks.append((b"connection", b"close"))
    if problem.status == 503:
        remarks.append((b"retry-after", b"1"))
    if problem.status == 401:
        remarks.append((b"www-authenticate", b"Bearer"))
    return remarks
