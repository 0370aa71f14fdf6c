"""What a controller knows beyond registry and replicas. It may be lost: the next one finds it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.engine import Answer, Observation, Phase
from serving.planning import setup_key
from serving.preflight import Finding
from serving.state import Attempts

__all__ = ["Memory"]


@dataclass
class Memory:
    """Probes, findings and failures, kept while one controller leads one deployment."""

    probed: set[tuple[str, str]] = field(default_factory=set)  # (boot, version name)
    baselines: dict[str, Sequence[Answer]] = field(default_factory=dict)  # boot -> what the base answered
    checked: dict[tuple[str, str], tuple[Finding, ...]] = field(default_factory=dict)
    attempts: dict[str, Attempts] = field(default_factory=dict)
    phases: dict[int, Phase] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)

    def failed(
        self, key: str, reason: str, now: float, *, certain: bool = False, fatal: bool = False
    ) -> None:
        """Count a failure to its account."""
        before = self.attempts.get(key)
        count = (before.count if before else 0) + 1
        self.attempts[key] = Attempts(count, now, reason, certain, fatal)

    def succeeded(self, key: str) -> None:
        self.attempts.pop(key, None)

    def saw(self, index: int, seen: Observation, now: float) -> None:
        """Note a replica's phase: since when it is in it, and that it died or came up."""
        if self.phases.get(index) is seen.phase:
            return
        self.phases[index] = seen.phase
        self.since[index] = now
        key = f"replica/{index}"
        if seen.phase is Phase.DEAD:
            for account in (key, setup_key(seen.fingerprint or "")):
                self.failed(account, seen.detail or "it ended without a word", now)
        elif seen.phase is Phase.READY:
            self.succeeded(setup_key(seen.fingerprint or ""))
            for known in [k for k in self.attempts if k == key or k.startswith(f"{key}/")]:
                self.succeeded(known)

    def started(self, index: int) -> None:
        """A replica was started: if it is dead at the next look, that is another death."""
        self.phases.pop(index, None)

    def forget_rollouts(self, open_ids: Sequence[str]) -> None:
        """Drop the accounts of rollouts that have ended."""
        for key in [k for k in self.attempts if k.startswith("rollout/")]:
            if key.removeprefix("rollout/") not in open_ids:
                del self.attempts[key]
