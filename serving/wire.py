"""How the controller speaks to one replica: vLLM's HTTP paths and the middleware's control paths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from registry.errors import PodiumError
from serving.engine import Answer, Fence, Observation, Phase, RouteMap
from serving.errors import AdapterRefused, EngineUnavailable, StaleController
from serving.middleware import (
    DRAIN_PATH,
    FENCE_HEADER,
    LOAD_PATH,
    MAP_PATH,
    MODELS_PATH,
    STATE_PATH,
    TOKEN_HEADER,
    UNLOAD_PATH,
)

__all__ = ["ReplicaClient", "read_metrics"]

_OBSERVE_SECONDS = 5.0
_CHANGE_SECONDS = 120.0  # a load reads the adapter's files and waits for a step of the engine
_TOP_LOGPROBS = 5
_METRICS_PATH = "/metrics"


class ReplicaClient:
    """HTTP calls to a replica, with its token, translated into this room's errors."""

    def __init__(self, endpoint: str, token: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.endpoint = endpoint
        self._http = httpx.AsyncClient(
            base_url=endpoint,
            headers={TOKEN_HEADER.decode(): token},
            transport=transport,
            timeout=_CHANGE_SECONDS,
            trust_env=False,  # a proxy from the environment must not see the token
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def state(self) -> dict[str, Any]:
        """The middleware's state as JSON; raises `EngineUnavailable`."""
        answered = self._checked(await self._send("GET", STATE_PATH, timeout=_OBSERVE_SECONDS))
        state: dict[str, Any] = answered.json()
        return state

    async def observe(self) -> Observation:
        """State and loaded models of a replica that answers; raises `EngineUnavailable`."""
        state = await self.state()
        listed = self._checked(await self._send("GET", MODELS_PATH, timeout=_OBSERVE_SECONDS)).json()["data"]
        base = next((card["id"] for card in listed if not card.get("parent")), None)
        return Observation(
            phase=Phase.DRAINING if state["draining"] else Phase.READY,
            boot=state["boot"],
            endpoint=self.endpoint,
            base=base,
            models={card["id"]: card["root"] for card in listed if card.get("parent")},
            map=RouteMap.parse(state["map"]) if state["map"] else None,
            in_flight=state["in_flight"],
            arriving=state.get("arriving", 0),  # a replica that an older podium has started says nothing
            admitted=state["admitted"],
            refused=state["refused"],
            ended=tuple(tuple(each) for each in state.get("ended", ())),
        )

    async def load(self, name: str, path: Path, fence: Fence) -> None:
        response = await self._change(LOAD_PATH, {"lora_name": name, "lora_path": str(path)}, fence)
        if response.status_code == 400 and "already been loaded" in _message(response):
            return
        if response.status_code >= 400 and response.status_code != 409:
            raise AdapterRefused(
                f"The engine did not load {name}: {_message(response)}",
                remedy="Train or convert the adapter so that this engine can serve it.",
                status=response.status_code,
            )
        self._checked(response)

    async def unload(self, name: str, fence: Fence) -> None:
        response = await self._change(UNLOAD_PATH, {"lora_name": name}, fence)
        if response.status_code != 404:
            self._checked(response)

    async def apply(self, routes: RouteMap, boot: str) -> None:
        self._checked(
            await self._send("PUT", MAP_PATH, json={**routes.to_json(), "boot": boot}, timeout=10.0)
        )

    async def drain(self, fence: Fence, boot: str) -> None:
        body = {"fence": fence.to_json(), "boot": boot}
        self._checked(await self._send("POST", DRAIN_PATH, json=body, timeout=10.0))

    async def complete(self, model: str, prompts: Sequence[str], max_tokens: int = 1) -> list[Answer]:
        """Greedy completions of all prompts in one request, with the most likely tokens."""
        body = {
            "model": model,
            "prompt": list(prompts),
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": _TOP_LOGPROBS,
        }
        answered = self._checked(await self._send("POST", "/v1/completions", json=body)).json()
        choices = sorted(answered["choices"], key=lambda choice: choice["index"])
        return [_answer(answered["model"], choice) for choice in choices]

    async def _change(self, path: str, body: Mapping[str, Any], fence: Fence) -> httpx.Response:
        value = f"{fence.incarnation}.{fence.epoch}.{fence.generation}"
        return await self._send("POST", path, json=body, headers={FENCE_HEADER.decode(): value})

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise EngineUnavailable(
                f"The replica at {self.endpoint} does not answer {method} {path}: "
                f"{error or type(error).__name__}.",
                remedy="The controller starts it again; its log says why it failed.",
            ) from error

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.status_code < 400:
            return response
        error: type[PodiumError] = StaleController if response.status_code == 409 else EngineUnavailable
        raise error(
            f"The replica at {self.endpoint} answered {response.status_code} to {response.request.url.path}: "
            f"{_message(response)}",
            remedy="",
            status=response.status_code,
        )


def read_metrics(endpoint: str, token: str) -> str:
    """The engine's own metrics, for a thread that is not the controller's; raises `EngineUnavailable`."""
    headers = {TOKEN_HEADER.decode(): token}
    try:
        with httpx.Client(trust_env=False, timeout=_OBSERVE_SECONDS) as http:
            return http.get(f"{endpoint}{_METRICS_PATH}", headers=headers).raise_for_status().text
    except httpx.HTTPError as error:
        raise EngineUnavailable(
            f"The replica at {endpoint} tells no metrics: {error or type(error).__name__}.",
            remedy="The controller starts it again; its log says why it failed.",
        ) from error


def _message(response: httpx.Response) -> str:
    """The error's words, in OpenAI's shape or vLLM's, else the beginning of the body."""
    try:
        raw = response.json()
        return str(raw.get("error", raw)["message"])
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        return response.text[:300]


def _answer(model: str, choice: Mapping[str, Any]) -> Answer:
    tops = (choice.get("logprobs") or {}).get("top_logprobs") or []
    return Answer(
        model=model,
        text=choice["text"],
        logprobs=tuple(dict(top) for top in tops if top),
        finish=choice.get("finish_reason") or "",
    )
