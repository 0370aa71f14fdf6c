"""Waiting until serving has made a promotion so."""

from __future__ import annotations

import time
from typing import Any

from registry.cli.output import Output
from registry.deployments import BASE, TERMINAL, Rollout, RolloutState
from registry.errors import Refused, Unavailable
from registry.protocol import Registry
from registry.values import Promotion

_LOOK_SECONDS = 0.5  # a wake-up may be lost, so look this often anyway


class RolloutFailed(Refused):
    """A deployment could not bring the promoted version live; it goes on serving what it served."""


class RolloutPending(Unavailable):
    """No deployment has said within the time given whether the version is live."""


def wait_until_live(out: Output, promotion: Promotion, timeout: float) -> list[dict[str, Any]]:
    """Block until every deployment that follows the alias answers with the version.

    Raises:
        RolloutFailed: one of them could not, or something newer took its place.
        RolloutPending: they did not say within ``timeout`` seconds.
    """
    registry = out.registry
    deadline = time.monotonic() + timeout
    followers = _followers(registry, promotion)
    while True:
        seen = registry.events.position().newest
        rollouts = registry.deployments.of_promotion(
            promotion.artifact, promotion.alias, promotion.generation
        )
        begun = {(r.target.deployment, r.target.served) for r in rollouts}
        if rollouts and followers <= begun and all(r.state in TERMINAL for r in rollouts):
            return _ended(out, promotion, rollouts)
        left = deadline - time.monotonic()
        if left <= 0:
            raise _pending(promotion, rollouts, timeout)
        registry.events.wait(seen, min(left, _LOOK_SECONDS))


def _followers(registry: Registry, promotion: Promotion) -> set[tuple[str, str]]:
    """(deployment, served name) of all that is declared to follow the alias, begun or not."""
    reference = f"{promotion.artifact}:{promotion.alias}"
    found = set()
    for declared in registry.apps.objects("deployment"):
        names = {BASE: declared.body["base"], **declared.body["serves"]}
        found |= {(declared.name, served) for served, follows in names.items() if follows == reference}
    return found


def _ended(out: Output, promotion: Promotion, rollouts: list[Rollout]) -> list[dict[str, Any]]:
    for rollout in rollouts:
        if rollout.state is not RolloutState.LIVE:
            raise RolloutFailed(
                f"{rollout.target.ref} did not become live in '{rollout.target.deployment}': "
                f"{rollout.state.value}: {rollout.reason or 'no reason was given'}.",
                remedy="What was live before still is. "
                f"See 'podium history {promotion.artifact} {promotion.alias}'.",
            )
    for rollout in rollouts:
        out.note(
            f"{rollout.target.ref} is live in '{rollout.target.deployment}' "
            f"after {_seconds(promotion, rollout):.1f} s."
        )
    return [
        {
            "deployment": r.target.deployment,
            "served": r.target.served,
            "state": r.state.value,
            "seconds": round(_seconds(promotion, r), 3),
        }
        for r in rollouts
    ]


def _seconds(promotion: Promotion, rollout: Rollout) -> float:
    return ((rollout.ended_at or promotion.at) - promotion.at).total_seconds()


def _pending(promotion: Promotion, rollouts: list[Rollout], timeout: float) -> RolloutPending:
    name = f"{promotion.artifact}:{promotion.alias}"
    if not rollouts:
        return RolloutPending(
            f"{name} was moved, but no deployment took it up within {timeout:g} s.",
            remedy="Check that 'podium up' runs and that a deployment follows the alias.",
        )
    waiting = ", ".join(r.target.deployment for r in rollouts if r.state is not RolloutState.LIVE)
    return RolloutPending(
        f"{name} was moved, but is not live in {waiting} after {timeout:g} s; the rollout goes on.",
        remedy="Follow it with 'podium events tail'.",
    )
