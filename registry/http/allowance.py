"""How much each of many may do in a time: a bucket for each, which fills again steadily."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_MOST_KNOWN = 10_000


@dataclass
class _Bucket:
    left: float
    at: float


@dataclass
class Allowance:
    """Thread-safe. Who has not been heard of for long has a full bucket, and is not remembered for ever."""

    most: float  # at once
    each: float  # seconds after which one more may be done
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allowed(self, who: str) -> bool:
        """Whether there is some left."""
        with self._lock:
            bucket = self._buckets.get(who)
            return bucket is None or self._filled(bucket) >= 1

    def add(self, who: str) -> None:
        """Note that one more was done."""
        with self._lock:
            self._take(who)

    def take(self, who: str) -> bool:
        """Note that one more is done, if there is some left; whether there was."""
        with self._lock:
            bucket = self._buckets.get(who)
            if bucket is not None and self._filled(bucket) < 1:
                return False
            self._take(who)
            return True

    def _take(self, who: str) -> None:
        if len(self._buckets) > _MOST_KNOWN:
            self._buckets.clear()  # so many that they say nothing about any one
        bucket = self._buckets.setdefault(who, _Bucket(self.most, self.clock()))
        bucket.left, bucket.at = self._filled(bucket) - 1, self.clock()

    def _filled(self, bucket: _Bucket) -> float:
        return min(self.most, bucket.left + (self.clock() - bucket.at) / self.each)
