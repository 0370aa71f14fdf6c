"""What people tell deployments, and who may be answered by them."""

from __future__ import annotations

from typing import Protocol

from registry.deployments import Block
from registry.operations import ClientKey, Intent, NewKey


class Operations(Protocol):
    """Orders to deployments. Each is stored with its event; the controller makes it so.

    Orders raise `NotFound` for a deployment that nobody has declared or is running.
    """

    def intent(self, deployment: str) -> Intent:
        """What it was told until now; nothing, for one that nobody knows."""

    def pause(self, deployment: str, reason: str = "") -> Intent:
        """Let what serves go on, and roll nothing new out."""

    def resume(self, deployment: str) -> Intent: ...

    def restart(self, deployment: str) -> Intent:
        """Have every replica replaced, and what failed last without being blocked tried again."""

    def unblock(self, deployment: str, digest: str) -> list[Block]:
        """Let a content be tried again, and begin with it where it is still asked for; what blocked it.

        Raises:
            NotFound: nothing blocks it.
        """


class ClientKeys(Protocol):
    """Keys that the clients of a deployment show. Without any, whoever reaches it is answered.

    Once a deployment has had a key it answers nobody without one, also after the last was revoked.
    """

    def add(self, deployment: str, label: str = "") -> NewKey:
        """Make a key. Its secret is given back this once and is stored nowhere."""

    def list(self, deployment: str) -> list[ClientKey]:
        """All keys, revoked ones too, oldest first."""

    def revoke(self, deployment: str, key: str) -> ClientKey:
        """Answer nobody any more who shows the key with that id. Raises `NotFound`."""

    def open(self, deployment: str) -> None:
        """Forget all keys: whoever reaches the deployment is answered again."""
