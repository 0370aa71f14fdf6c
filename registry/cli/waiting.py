"""Waiting until serving has made a promotion so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from registry.cli.output import Output
from registry.deployments import TERMINAL, Rollout, RolloutState
from registry.errors import Refused, Unavailable
from registry.followers import Follower, followers
from registry.protocol import Registry
from registry.values import Promotion

_LOOK_SECONDS = 0.5  # a wake-up may be lost, so look this often anyway
MOST_SECONDS = 600.0  # to wait, unless told otherwise
UNLED_SECONDS = 60.0  # ... for what nobody serves: time to start 'podium up', and no more


class RolloutFailed(Refused):
    """A deployment could not bring the promoted version live; it goes on serving what it served."""


class RolloutPending(Unavailable):
    """No deployment has said within the time given whether the version is live, or none will for now."""


def wait_until_live(out: Output, promotion: Promotion, timeout: float | None) -> list[dict[str, Any]]:
    """Block until every deployment that follows the alias answers with the version.

    Where nothing follows it there is nothing to wait for, and that is said; so is that nobody serves what
    follows it. ``timeout`` is in seconds; without one it is short where nobody serves it.

    Raises:
        RolloutFailed: one of them could not, or something newer took its place.
        RolloutPending: they did not say in time, or are paused.
    """
    with out.waiting() as say:
        rollouts = _wait(out, promotion, _Patience(timeout), say)
    return _ended(out, promotion, rollouts)


def _wait(
    out: Output, promotion: Promotion, patience: _Patience, say: Callable[[str, str], None]
) -> list[Rollout]:
    """The rollouts of a promotion, when all that follow the alias have ended theirs."""
    registry = out.registry
    said_so = False
    while True:
        seen = registry.events.position().newest
        rollouts = _newest_rollouts(registry, promotion)
        following = followers(registry, promotion.artifact, promotion.alias)
        left = [f for f in following if not _has_ended(rollouts, f)]
        if not left and all(r.state in TERMINAL for r in rollouts.values()):
            return list(rollouts.values())
        if left and all(_is_stuck(rollouts, follower) for follower in left):
            raise _paused(promotion, left)
        unled = _names([follower for follower in left if not follower.is_led])
        if unled and not said_so:
            out.note(_unled(unled, patience.most(bool(unled))))
            said_so = True
        wait = patience.left(bool(unled))
        if wait <= 0:
            raise _pending(promotion, rollouts, left, patience.most(bool(unled)))
        if not unled:
            say(*_waited_for(promotion, rollouts, left))
        registry.events.wait(seen, min(wait, _LOOK_SECONDS))


class _Patience:
    """How many seconds are waited: ``timeout`` if one was given, else few for what nobody serves.

    These are counted anew each time: a controller that is started again leads nothing for a moment.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + self.most(unled=False)
        self._unled_since: float | None = None

    def most(self, unled: bool) -> float:
        if self._timeout is not None:
            return self._timeout
        return UNLED_SECONDS if unled else MOST_SECONDS

    def left(self, unled: bool) -> float:
        now = time.monotonic()
        self._unled_since = (self._unled_since or now) if unled else None
        if self._unled_since is None or self._timeout is not None:
            return self._deadline - now
        return min(self._deadline, self._unled_since + UNLED_SECONDS) - now


def _newest_rollouts(registry: Registry, promotion: Promotion) -> dict[tuple[str, str], Rollout]:
    """By (deployment, served name); a name has several where the deployment was changed since."""
    found = registry.deployments.of_promotion(promotion.artifact, promotion.alias, promotion.generation)
    return {(rollout.target.deployment, rollout.target.served): rollout for rollout in found}


def _has_ended(rollouts: Mapping[tuple[str, str], Rollout], follower: Follower) -> bool:
    rollout = rollouts.get((follower.deployment, follower.served))
    return rollout is not None and rollout.state in TERMINAL


def _is_stuck(rollouts: Mapping[tuple[str, str], Rollout], follower: Follower) -> bool:
    """A paused deployment carries a decided route to its end, and begins nothing else."""
    rollout = rollouts.get((follower.deployment, follower.served))
    return bool(follower.paused) and (rollout is None or rollout.state is RolloutState.STARTED)


def _ended(out: Output, promotion: Promotion, rollouts: list[Rollout]) -> list[dict[str, Any]]:
    for rollout in rollouts:
        if rollout.state is not RolloutState.LIVE:
            raise RolloutFailed(
                f"{rollout.target.ref} did not become live in '{rollout.target.deployment}': "
                f"{rollout.state.value}: {rollout.reason or 'no reason was given'}.",
                remedy="What was live before still is. "
                f"See 'podium history {promotion.artifact} {promotion.alias}'.",
            )
    if not rollouts:
        out.note(
            f"No deployment follows {promotion.artifact}:{promotion.alias}, so nothing has to become live."
        )
    for rollout in rollouts:
        out.note(_live_sentence(promotion, rollout))
    return [
        {
            "deployment": r.target.deployment,
            "served": r.target.served,
            "state": r.state.value,
            "seconds": round(_seconds(promotion, r), 3),
        }
        for r in rollouts
    ]


def _live_sentence(promotion: Promotion, rollout: Rollout) -> str:
    where = f"{rollout.target.ref} is live in '{rollout.target.deployment}'"
    return (
        f"{where} after {_seconds(promotion, rollout):.1f} s." if promotion.changed else f"{where} already."
    )


def _seconds(promotion: Promotion, rollout: Rollout) -> float:
    return ((rollout.ended_at or promotion.at) - promotion.at).total_seconds()


def _waited_for(
    promotion: Promotion, rollouts: Mapping[tuple[str, str], Rollout], left: list[Follower]
) -> tuple[str, str]:
    """What is waited for, and how far the rollouts are."""
    where = ", ".join(_names(left)) or "the rollout"
    ref = f"{promotion.artifact}:v{promotion.to_version}"
    far = ", ".join(f"{r.target.deployment}: {r.state.value}" for r in rollouts.values())
    return f"Waiting for {where} to answer with {ref}.", far


def _names(followers: list[Follower]) -> list[str]:
    return sorted({follower.deployment for follower in followers})


def _unled(names: list[str], most: float) -> str:
    return f"Nobody serves {', '.join(names)} now. Start 'podium up': it is waited for, {most:g} s at most."


def _paused(promotion: Promotion, left: list[Follower]) -> RolloutPending:
    names = _names(left)
    return RolloutPending(
        f"{promotion.artifact}:{promotion.alias} was moved, but {', '.join(names)} "
        f"{'is' if len(names) == 1 else 'are'} paused, so it does not become live there.",
        remedy=left[0].paused,
    )


def _pending(
    promotion: Promotion,
    rollouts: Mapping[tuple[str, str], Rollout],
    left: list[Follower],
    timeout: float,
) -> RolloutPending:
    name = f"{promotion.artifact}:{promotion.alias}"
    if unled := _names([follower for follower in left if not follower.is_led]):
        return RolloutPending(
            f"{name} was moved, but nobody serves {', '.join(unled)}, so it is not live there "
            f"after {timeout:g} s.",
            remedy="Start 'podium up': it brings live what the alias holds by then. "
            f"See 'podium deployments show {unled[0]}'.",
        )
    if not rollouts:
        return RolloutPending(
            f"{name} was moved, but no deployment took it up within {timeout:g} s.",
            remedy="Check that 'podium up' runs; 'podium deployments list' shows who follows the alias.",
        )
    begun = {r.target.deployment for r in rollouts.values() if r.state not in TERMINAL}
    waiting = sorted(begun | set(_names(left)))
    return RolloutPending(
        f"{name} was moved, but is not live in {', '.join(waiting)} after {timeout:g} s; "
        "the rollout goes on.",
        remedy=f"See 'podium deployments show {waiting[0]}'.",
    )
