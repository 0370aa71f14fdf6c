"""What `podium up` says of the parts that carry events."""

from __future__ import annotations

import asyncio

import pytest

from triggers import service


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([("no server", False), ("relaying", True)], ["relay: relaying"]),  # it passed by itself
        ([("no server", False)], ["relay: no server"]),  # it lasts
        ([("relaying", True), ("relaying", True)], ["relay: relaying"]),
    ],
)
def test_what_parts_wait_for_at_the_start_is_told_only_if_it_lasts(
    monkeypatch: pytest.MonkeyPatch, said: list[tuple[str, bool]], told: list[str]
) -> None:
    monkeypatch.setattr(service, "_SETTLING_SECONDS", 0.05)
    heard: list[str] = []

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + 0.05
        say = service._named("relay", lambda line, *, healthy=True: heard.append(line))
        for line, healthy in said:
            say(line, healthy=healthy)
        after = loop.create_future()
        loop.call_at(over + 0.05, after.set_result, None)
        await after

    asyncio.run(listen())
    assert heard == told
