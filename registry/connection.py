"""`connect()`: a `Registry` from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry.settings import Settings, load_settings

if TYPE_CHECKING:
    from registry.protocol import Registry


def connect(settings: Settings | None = None, *, actor: str | None = None) -> Registry:
    """Open the registry that the settings name.

    That is a database, or a server where ``PODIUM_URL`` is ``https://...``: the same calls work on both.
    ``actor`` is recorded with every write; it is ``PODIUM_ACTOR`` or the login name unless given.

    Raises:
        DatabaseUnavailable: the database cannot be reached, or may not lie where it lies.
        SchemaMismatch: it was made by a newer podium.
        Unauthorized: a server is named, and no token.
    """
    settings = settings or load_settings()
    if settings.server is not None:
        from registry.remote.registry import RemoteRegistry

        return RemoteRegistry.open(settings, actor=actor)
    from registry.store.stored import StoredRegistry

    return StoredRegistry.open(settings, actor=actor)
