"""What a server does between requests: undo what clients left open, forget what nobody asks for."""

from __future__ import annotations

import asyncio
import contextlib
import time

from registry.errors import PodiumError
from registry.http.performing import Performer

_LOOK_SECONDS = 2.0
_FORGET_SECONDS = 3600.0


async def keep_house(performer: Performer) -> None:
    """Go on until cancelled."""
    await asyncio.to_thread(_open_store, performer)
    forgotten_at = -_FORGET_SECONDS
    while True:
        await asyncio.to_thread(performer.transactions.undo_idle)
        if time.monotonic() - forgotten_at > _FORGET_SECONDS:
            forgotten_at = time.monotonic()
            with contextlib.suppress(PodiumError):
                await asyncio.to_thread(_forget, performer)
        await asyncio.sleep(_LOOK_SECONDS)


def _forget(performer: Performer) -> None:
    registry = performer.registry
    registry.answers.forget()
    registry.identity.forget(registry.settings.audit_days)


def _open_store(performer: Performer) -> None:
    """The first use of a store is a write, which would have to wait for transactions that clients hold."""
    with contextlib.suppress(PodiumError):  # it is tried again when it is needed
        _ = performer.registry.files.blobs
