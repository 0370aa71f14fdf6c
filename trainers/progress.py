"""How far a task has come, as lines of its log: in a file each redrawn bar would be a line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

#: Seconds between two lines that tell of the same work.
_BETWEEN = 5.0
#: What trainers call their numbers -> what a person reads, in this order.
_SHOWN = {"loss": "loss", "mean_token_accuracy": "accuracy", "grad_norm": "gradient", "learning_rate": "lr"}
_QUIET = {"entropy", "epoch", "num_tokens", "steps", "seconds_left"}

#: Numbers of a step that say where it stands and not how it went.
NOT_CURVES = frozenset({"epoch", "num_tokens", "steps", "seconds_left"})


def say(line: str) -> None:
    """Print a line at once: whoever follows the log waits for it."""
    print(line, flush=True)


def say_step(step: int, logged: Mapping[str, float]) -> None:
    """Print a step of a training as `step_line` words it."""
    say(step_line(step, logged))


def step_line(step: int, logged: Mapping[str, float]) -> str:
    """As in ``step 3/45  loss 2.31  lr 0.0002  10,420 tokens  1 min 20 s left``.

    ``logged`` is what the trainer logged; of it ``steps`` is how many there will be and ``seconds_left`` how
    long they are likely to take.
    """
    of = f"/{logged['steps']:.0f}" if "steps" in logged else ""
    known = [f"{name} {logged[key]:.4g}" for key, name in _SHOWN.items() if key in logged]
    others = sorted(logged.keys() - _SHOWN.keys() - _QUIET)
    parts = [f"step {step}{of}", *known]
    parts += [f"{name} {logged[name]:.4g}" for name in others if isinstance(logged[name], float)]
    if "num_tokens" in logged:
        parts.append(f"{logged['num_tokens']:,.0f} tokens")
    if "seconds_left" in logged:
        parts.append(f"{duration(logged['seconds_left'])} left")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """As in ``45 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Pace:
    """Tells how far work of known size has come: when it begins to, every few seconds, and at its end."""

    def __init__(
        self,
        what: str,
        total: int,
        *,
        tell: Callable[[str], None] = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._tell = tell
        self._clock = clock
        self._began = self._told = clock()

    def seconds_left(self, done: int, *, before: int = 0) -> float:
        """How long the rest will take at the pace so far; ``before`` were done when it began."""
        spent = self._clock() - self._began
        return spent / max(1, done - before) * (self._total - done)

    def at(self, done: int, said: str = "") -> None:
        """``done`` of the whole are done; ``said`` is told with it."""
        now, over = self._clock(), done >= self._total
        if now - self._told < _BETWEEN and not over:
            return
        self._told = now
        left = f"took {duration(now - self._began)}" if over else f"{duration(self.seconds_left(done))} left"
        self._tell("  ".join(part for part in (f"{self._what} {done}/{self._total}", said, left) if part))
