"""Where NATS is, and whether anything answers there. The registry needs to know no more of it than that."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from registry.processes import Process
from registry.settings import Settings

_PORT = 4222


@dataclass(frozen=True, slots=True)
class Broker:
    """A NATS server's address."""

    host: str
    port: int
    embedded: bool  # a child of `podium up` on this machine

    def __str__(self) -> str:
        return f"{'embedded at ' if self.embedded else ''}{self.host}:{self.port}"

    @property
    def remedy(self) -> str:
        """What makes it answer."""
        return "Run 'podium up'." if self.embedded else "Check PODIUM_NATS and that the server runs."

    def problem(self, seconds: float) -> str | None:
        """Why nothing answers there within ``seconds``; None if something does."""
        try:
            socket.create_connection((self.host, self.port), timeout=seconds).close()
        except (OSError, OverflowError) as error:
            return str(error)
        return None


def find_broker(settings: Settings) -> Broker | None:
    """The first server of the settings, or that of the `podium up` of this home; None if none was started."""
    if settings.nats is not None:
        return _outside(settings.nats.get_secret_value().split(",")[0])
    try:
        described = json.loads((settings.home / "nats.json").read_text())
        runs = Process.from_json(described["owner"]).is_alive
        return Broker("127.0.0.1", int(described["port"]), embedded=True) if runs else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # not there, or nobody's, or damaged: the next 'podium up' writes it anew


def _outside(url: str) -> Broker:
    address = urlsplit(url if "//" in url else f"//{url}")
    return Broker(address.hostname or "127.0.0.1", address.port or _PORT, embedded=False)
