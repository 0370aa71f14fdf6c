"""A stand-in for vLLM's HTTP server that ships for tests: the same paths, the same flags, no model.

`FakeVLLM` is an ASGI app that behaves as vLLM 0.32 does where serving depends on it: names are taken and
forgotten, a load reads the adapter's files, running answers outlive an unload, a missing ``model`` is
answered by the base, SIGTERM aborts what is running. What a model answers follows from its safetensors,
so two versions differ and the same version always answers the same.

An adapter folder may hold ``fake.json`` to misbehave: ``{"load": "refuse" | "die" | "hang"}``,
``{"answer": "as-base" | "nothing"}``, ``{"delay": seconds}``.

``python -m serving.fake_vllm`` takes vLLM's flags and runs it as a process of its own (needs uvicorn).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.middleware import App, Receive, Scope, Send

__all__ = ["FakeVLLM"]

_WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "hazel", "indigo", "juniper")


class _HttpError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class FakeVLLM:
    """The app inside the middleware. Delays are in seconds."""

    base_name: str
    base_path: str
    max_lora_rank: int = 16
    token_delay: float = 0.0
    load_delay: float = 0.0
    die: Callable[[], None] = lambda: os._exit(1)
    adapters: dict[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except _HttpError as error:
            await _json(send, error.status, {"error": {"message": error.message, "code": error.status}})

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        body = json.loads(await _body(receive) or b"{}") if scope["method"] == "POST" else {}
        if path == "/health":
            await _json(send, 200, {})
        elif path == "/metrics":
            await _json(send, 200, {"vllm:num_requests_running": 0})
        elif path == "/v1/models":
            await _json(send, 200, {"object": "list", "data": self._cards()})
        elif path == "/v1/load_lora_adapter":
            await self._load(body["lora_name"], body["lora_path"])
            await _json(send, 200, "ok")
        elif path == "/v1/unload_lora_adapter":
            self._unload(body["lora_name"])
            await _json(send, 200, "ok")
        elif path in ("/v1/completions", "/v1/chat/completions"):
            await self._complete(body, path, send)
        else:
            raise _HttpError(404, "Not Found")

    def _cards(self) -> list[dict[str, Any]]:
        cards = [{"id": self.base_name, "root": self.base_path, "parent": None}]
        return cards + [
            {"id": name, "root": path, "parent": self.base_name} for name, path in self.adapters.items()
        ]

    async def _load(self, name: str, path: str) -> None:
        if name in self.adapters:
            raise _HttpError(400, f"The lora adapter '{name}' has already been loaded.")
        behaviour = _behaviour(path)
        await asyncio.sleep(self.load_delay)
        match behaviour.get("load"):
            case "refuse":
                raise _HttpError(500, "LoRA rank 64 is greater than max_lora_rank 16.")
            case "die":
                self.die()
                raise _HttpError(500, "The engine is dead.")
            case "hang":
                await asyncio.Event().wait()
        if not Path(path).is_dir():
            raise _HttpError(404, f"Loading lora {name} failed: No adapter found for {path}")
        self.adapters[name] = path

    def _unload(self, name: str) -> None:
        if name not in self.adapters:
            raise _HttpError(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]

    async def _complete(self, body: dict[str, Any], path: str, send: Send) -> None:
        model = body.get("model") or self.base_name
        folder = self.base_path if model == self.base_name else self.adapters.get(model)
        if folder is None:
            raise _HttpError(404, f"The model `{model}` does not exist.")
        behaviour = _behaviour(folder)
        source = self.base_path if behaviour.get("answer") == "as-base" else folder
        prompts = body.get("prompt", [""])
        prompts = prompts if isinstance(prompts, list) else [prompts]
        await asyncio.sleep(float(behaviour.get("delay", 0.0)))
        answers = [_answer(source, prompt, int(body.get("max_tokens") or 4)) for prompt in prompts]
        if behaviour.get("answer") == "nothing":
            answers = [[] for _ in prompts]
        chat = path.endswith("chat/completions")
        if body.get("stream"):
            await self._stream(model, answers[0], chat, send)
        else:
            await asyncio.sleep(self.token_delay * max(len(words) for words in answers))
            await _json(send, 200, _whole(model, answers, chat))

    async def _stream(self, model: str, words: list[str], chat: bool, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in _chunks(model, words, chat, self.token_delay):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


def _behaviour(folder: str) -> dict[str, Any]:
    try:
        return dict(json.loads((Path(folder) / "fake.json").read_text()))
    except OSError:
        return {}


def _answer(folder: str, prompt: str, count: int) -> list[str]:
    """Words that follow from the prompt and the weights' bytes, read anew as vLLM does after an eviction."""
    weights = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")):
        weights.update(file.read_bytes())
    drawn = hashlib.sha256(weights.digest() + prompt.encode()).digest()
    return [_WORDS[byte % len(_WORDS)] for byte in drawn[: min(count, 32)]]


def _whole(model: str, answers: list[list[str]], chat: bool) -> dict[str, Any]:
    choices = []
    for index, words in enumerate(answers):
        text = " ".join(words)
        shape = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        tops = [{word: -0.1 * (1 + len(word))} for word in words]
        choices.append(
            {"index": index, "finish_reason": "length", "logprobs": {"top_logprobs": tops}, **shape}
        )
    return {"id": "fake", "object": "text_completion", "model": model, "choices": choices}


async def _chunks(model: str, words: list[str], chat: bool, delay: float) -> AsyncIterator[bytes]:
    for index, word in enumerate(words):
        await asyncio.sleep(delay)
        text = word if index == 0 else f" {word}"
        shape = {"delta": {"content": text}} if chat else {"text": text}
        finish = "length" if index == len(words) - 1 else None
        chunk = {"model": model, "choices": [{"index": 0, "finish_reason": finish, **shape}]}
        yield f"data: {json.dumps(chunk)}\n\n".encode()


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _json(send: Send, status: int, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode(), "more_body": False})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _wrapped(app: App, names: list[str]) -> App:
    """The app behind the middleware classes that are named as vLLM's ``--middleware`` names them."""
    for name in names:
        module, _, attribute = name.rpartition(".")
        app = getattr(importlib.import_module(module), attribute)(app)
    return app


def main() -> None:
    """Serve as vLLM's ``api_server`` module would; flags that mean nothing here are passed over."""
    import uvicorn

    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--middleware", action="append", default=[])
    parser.add_argument("--max-lora-rank", type=int, default=16)
    parser.add_argument("--fake-start-delay", type=float, default=0.0)
    parser.add_argument("--fake-token-delay", type=float, default=0.0)
    given, _ = parser.parse_known_args()
    app = FakeVLLM(
        given.served_model_name, given.model, given.max_lora_rank, token_delay=given.fake_token_delay
    )
    config = uvicorn.Config(
        _wrapped(app, given.middleware),
        host=given.host,
        port=given.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=0,  # as vLLM: what runs at SIGTERM is cut off
    )

    async def serve() -> None:
        await asyncio.sleep(given.fake_start_delay)
        await uvicorn.Server(config).serve()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
