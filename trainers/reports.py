"""Live reports: numbers that a task reports while it runs, recorded from a thread beside it.

    from trainers import report

    report.log({"loss": 2.31, "learning_rate": 2e-4}, step=3)

A call puts them into a buffer and returns; what lies there is sent once a second. While the registry cannot
be reached the buffer grows up to `MOST`; what comes then pushes out the oldest, and the log says how many.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from registry.errors import DatabaseUnavailable, InvalidInput, PodiumError
from registry.measures import MOST_AT_ONCE, Measure, check_measures, measured
from registry.protocol import Registry
from trainers.progress import say

#: Measures that wait to be sent, at most.
MOST = 20_000
_BETWEEN = 1.0  # seconds

Send = Callable[[Sequence[Measure]], None]


class Report:
    """What one process reports. Outside of a run it takes everything and keeps nothing."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._send: Send | None = None
        self._waiting: deque[Measure] = deque()
        self._lost = 0
        self._next_step = 0
        self._lock = threading.Lock()  # over the four above
        self._sending = threading.Lock()  # one batch after the other, so that their order stays
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, registry: Registry, run: str) -> None:
        """From now on record what is reported, as ``run``'s; for the process that carries it out."""
        self._send = lambda measures: registry.measures.add(run, measures)

    def log(self, numbers: Mapping[str, float], *, step: int | None = None) -> None:
        """Report numbers: a point on the curve of each name. Without ``step`` it is the one after the last.

        Raises:
            InvalidInput: a name or step that cannot be kept.
        """
        with self._lock:
            measure = _measure(self._next_step if step is None else step, numbers)
            self._next_step = measure.step + 1
            if self._send is None:
                return
            self._waiting.append(measure)
            if len(self._waiting) > self._most:
                self._waiting.popleft()
                self._lost += 1
            self._start()

    def flush(self) -> None:
        """Send what was reported so far, and wait until it is recorded.

        Raises:
            DatabaseUnavailable: the registry cannot be reached. It stays in the buffer.
            StaleAuthority: another attempt, or nobody, carries the run out now.
        """
        with self._sending:
            while self._send is not None and (batch := self._batch()):
                self._send(batch)
                self._take_out(batch)

    def close(self) -> None:
        """Send the rest; what cannot be sent is counted in the log. Nothing is recorded after it."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.flush()
        except PodiumError as error:
            self._lost += len(self._waiting)
            say(f"a part of the report could not be recorded: {error}")
        self._send = None
        if self._lost:
            say(f"{self._lost:,} reported measures were not recorded")

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="podium-report", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(_BETWEEN):
            try:
                self.flush()
            except DatabaseUnavailable:
                continue  # the guard ends this process when its lease cannot be confirmed
            except PodiumError as error:
                say(f"a part of the report was refused: {error}")
                self._forget()

    def _batch(self) -> list[Measure]:
        with self._lock:
            return [self._waiting[at] for at in range(min(len(self._waiting), MOST_AT_ONCE))]

    def _take_out(self, batch: list[Measure]) -> None:
        """Take what was sent out of the buffer, which may have lost some of it meanwhile."""
        sent = {id(each) for each in batch}
        with self._lock:
            while self._waiting and id(self._waiting[0]) in sent:
                self._waiting.popleft()

    def _forget(self) -> None:
        with self._lock:
            self._lost += len(self._waiting)
            self._waiting.clear()


def _measure(step: int, numbers: Mapping[str, float]) -> Measure:
    try:
        measure = measured(int(step), numbers)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"What was reported at step {step} are not all numbers: {error}.",
            remedy="Report numbers by name: report.log({'loss': 2.31}, step=3).",
        ) from error
    check_measures([measure])
    return measure


#: What the task of this process reports.
report = Report()
