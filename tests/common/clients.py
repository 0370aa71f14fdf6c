"""Clients that ask a served name without pause, and remember everything that they were answered."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import httpx


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and what came of it. Times are of `time.monotonic`, in seconds."""

    sent: float
    ended: float
    status: int
    version: str | None  # from the header
    models: frozenset[str]  # every name that the body gives
    text: str
    finish: str | None
    error: str = ""


@dataclass
class Clients:
    """Half of them stream; each keeps its connection and asks again as soon as it is answered."""

    endpoint: str
    model: str
    count: int = 4
    prompt: str = "Once upon a time"
    max_tokens: int = 8
    streams: bool = True  # False: nobody streams
    asked: list[Asked] = field(default_factory=list)

    async def __aenter__(self) -> Clients:
        self._stop = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._ask_on(self.streams and i % 2 == 0)) for i in range(self.count)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _ask_on(self, stream: bool) -> None:
        async with httpx.AsyncClient(base_url=self.endpoint, timeout=120, trust_env=False) as http:
            while not self._stop.is_set():
                self.asked.append(await ask(http, self.model, self.prompt, self.max_tokens, stream=stream))


async def ask(
    http: httpx.AsyncClient, model: str, prompt: str, max_tokens: int = 8, *, stream: bool = False
) -> Asked:
    """One completion; an error of the connection is an answer with status 0."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": stream}
    sent = time.monotonic()
    try:
        async with http.stream("POST", "/v1/completions", json=body) as response:
            raw = (await response.aread()).decode()
    except httpx.HTTPError as error:
        return Asked(sent, time.monotonic(), 0, None, frozenset(), "", None, repr(error))
    version = response.headers.get("x-podium-version")
    if response.status_code != 200:
        return Asked(sent, time.monotonic(), response.status_code, version, frozenset(), "", None, raw)
    chunks = _chunks(raw) if stream else [json.loads(raw)]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    finish = [c["finish_reason"] for c in choices if c.get("finish_reason")]
    return Asked(
        sent=sent,
        ended=time.monotonic(),
        status=200,
        version=version,
        models=frozenset(chunk["model"] for chunk in chunks),
        text="".join(choice["text"] for choice in choices),
        finish=finish[-1] if finish else None,
        error="" if not stream or raw.rstrip().endswith("[DONE]") else "the stream was cut",
    )


def _chunks(raw: str) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in raw.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
