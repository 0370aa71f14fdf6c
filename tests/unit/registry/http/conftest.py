"""A real server over SQLite, and clients of it with tokens of every sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from registry.identity.roles import TeamRole
from registry.remote.registry import RemoteRegistry
from registry.store.stored import StoredRegistry
from registry.wire.headers import PREFIX
from tests.common.registries import Maker, ServedPlace

Api = Callable[..., httpx.Client]
Client = Callable[..., RemoteRegistry]


@pytest.fixture
def place(http_place: ServedPlace) -> ServedPlace:
    return http_place


@pytest.fixture
def beneath(place: ServedPlace) -> StoredRegistry:
    """The registry that the server serves."""
    return place.beneath()


@pytest.fixture
def bot(beneath: StoredRegistry, make: Maker) -> Maker:
    """Two versions of the adapter ``bot``."""
    make.adapter("bot")
    make.adapter("bot")
    return make


@pytest.fixture
def api(place: ServedPlace, beneath: StoredRegistry) -> Iterator[Api]:
    """Bare HTTP clients: ``api()`` has an admin's token, ``api(role=..., pattern=...)`` another."""
    opened: list[httpx.Client] = []

    def api(role: str | None = None, *, token: str | None = None, **options: Any) -> httpx.Client:
        if role is not None:
            token = beneath.identity.issue("bob", TeamRole(role), **options).secret
        text = place.token if token is None else token
        given = {"authorization": f"Bearer {text}"} if text else {}
        opened.append(httpx.Client(base_url=place.url + PREFIX, headers=given, timeout=30))
        return opened[-1]

    yield api
    for each in opened:
        each.close()


@pytest.fixture
def client(place: ServedPlace, beneath: StoredRegistry) -> Iterator[Client]:
    """Registries over HTTP with tokens of a role."""
    opened: list[RemoteRegistry] = []

    def client(role: str, **options: Any) -> RemoteRegistry:
        secret = beneath.identity.issue("bob", TeamRole(role), **options).secret
        settings = place.settings.model_copy(
            update={"url": SecretStr(place.url), "token": SecretStr(secret), "actor": None}
        )
        opened.append(RemoteRegistry.open(settings))
        return opened[-1]

    yield client
    for each in opened:
        each.close()
