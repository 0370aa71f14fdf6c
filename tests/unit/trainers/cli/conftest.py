"""Running `podium` in this process, as the registry's own commands are tested."""

from __future__ import annotations

from tests.unit.registry.cli.conftest import Podium, bot, place, podium, registry

__all__ = ["Podium", "bot", "place", "podium", "registry"]
