"""The stream in memory keeps the rules of the port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.triggers.bus_suite import BusSuite
from triggers.bus import Bus
from triggers.memory import MemoryBus


class TestMemoryBus(BusSuite):
    @pytest.fixture
    def bus(self) -> Callable[[Callable[[Bus], Awaitable[None]]], None]:
        def run(scenario: Callable[[Bus], Awaitable[None]]) -> None:
            asyncio.run(scenario(MemoryBus()))

        return run
