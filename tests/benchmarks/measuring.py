"""Side-by-side measuring: ours and the peer's in one run, in turns, compared by their medians.

Two things measured one after the other differ by what the machine did meanwhile; in turns they do not.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Aim(StrEnum):
    """What a row's ratio has to be."""

    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True)
class Row:
    """One line of the table: how podium does beside a peer at the same work.

    ``ratio`` is what ``aim`` speaks of: the peer's figure divided by ours where we want to be so many times
    faster (`Aim.AT_LEAST`), ours divided by the peer's where we want to stay within a factor (`Aim.AT_MOST`).
    """

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    aim: str
    met: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


#: What a file of benchmarks offers: each function measures and gives its rows, best as it has them.
Benchmark = Callable[[], Iterable[Row | dict[str, Any]]]


def compare(name: str, ours: float, peer: float, unit: str, aim: Aim, factor: float) -> Row:
    """The row for two figures of which less is better, such as seconds or bytes."""
    ratio = peer / ours if aim is Aim.AT_LEAST else ours / peer
    met = ratio >= factor if aim is Aim.AT_LEAST else ratio <= factor
    said = f"{factor:g} x faster" if aim is Aim.AT_LEAST else f"within {factor:g} x"
    return Row(name, ours, peer, unit, round(ratio, 3), said, met)


def interleaved(
    work: Mapping[str, Callable[[], object]], *, rounds: int, warmups: int = 3
) -> dict[str, list[float]]:
    """Seconds of each call, by name. In each round every function is called once, the order turning.

    Garbage is collected between rounds and not during them, so that no one pays for another's.
    """
    for _ in range(warmups):
        for call in work.values():
            call()
    names = list(work)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is loaded already is not looked through again at each collection
    try:
        for turn in range(rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                seconds[name].append(_timed(work[name]))
            gc.collect()
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
    return seconds


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def median_ms(seconds: list[float]) -> float:
    """The median in milliseconds, to four digits that mean something."""
    return round(statistics.median(seconds) * 1000, 4)


def percentile_ms(seconds: list[float], percent: int) -> float:
    """A percentile (1-99) in milliseconds."""
    return round(statistics.quantiles(seconds, n=100)[percent - 1] * 1000, 4)


def side_by_side(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    rounds: int,
    aim: Aim,
    factor: float,
) -> Row:
    """Measure two calls in turns and compare their medians, in milliseconds."""
    seconds = interleaved({"ours": ours, "peer": peer}, rounds=rounds)
    return compare(name, median_ms(seconds["ours"]), median_ms(seconds["peer"]), "ms", aim, factor)
