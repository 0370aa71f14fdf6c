"""Events for tests of what lies behind the outbox, without the acts that lead to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr

from registry.events import AliasMoved, Data, EventType, VersionPublished
from registry.settings import Settings
from registry.store.session import Session
from registry.store.stored import StoredRegistry
from registry.values import Event, Origin


def open_registry(home: Path, url: str | None = None) -> StoredRegistry:
    """A registry in the folder ``home``, over SQLite unless ``url`` names another database."""
    settings = Settings(home=home, url=SecretStr(url) if url else None, actor="ada")
    return StoredRegistry.open(settings)


def emit(
    registry: StoredRegistry,
    type: EventType,
    data: Data,
    *,
    key: str = "support-bot",
    origin: Origin | None = None,
) -> Event:
    """Commit one event and return it as the outbox has it."""
    return registry.events.get(write(registry, type, data, key=key, origin=origin))


def write(
    registry: Any, type: EventType, data: Data, *, key: str = "support-bot", origin: Origin | None = None
) -> str:
    """Write one event, as part of the transaction that is open; its id."""
    session: Session = registry._session if origin is None else registry._session.acting(origin)
    with session.writing() as transaction:
        return session.emit(transaction, type, data, subject=key, key=key)


def promoted(
    name: str = "support-bot", version: int = 1, *, alias: str = "production", generation: int = 1
) -> AliasMoved:
    """The data of a promotion's event."""
    return AliasMoved(
        artifact=name,
        kind="adapter",
        alias=alias,
        from_version=None,
        to_version=version,
        to_digest=f"sha256:{version:064x}",
        generation=generation,
        action="promote",
    )


def published(name: str = "support-bot", version: int = 1, *, kind: str = "adapter") -> VersionPublished:
    """The data of a published version's event."""
    return VersionPublished(
        artifact=name, version=version, kind=kind, digest=f"sha256:{version:064x}", size=100
    )


def emit_promotion(registry: StoredRegistry, name: str = "support-bot", version: int = 1) -> Event:
    """Commit the event of a promotion without the promotion."""
    return emit(registry, EventType.ALIAS_PROMOTED, promoted(name, version), key=name)
