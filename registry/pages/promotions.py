"""How an alias moved, and one move of it on its way to be live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from registry.deployments import TERMINAL, Rollout, RolloutState
from registry.followers import Follower, followers
from registry.http.authorising import Asker
from registry.pages.plan import why_not
from registry.pages.rendering import Pages
from registry.pages.routed import routed
from registry.pages.visiting import visitor
from registry.protocol import Registry
from registry.values import Promotion

_SHOWN = 30
_MOST_SHOWN = 10_000
_CHOICE = 30  # versions to promote
_Visitor = Annotated[Asker, Depends(visitor)]

#: What a rollout has passed, in order, with the words for it.
_STAGES = (
    (RolloutState.STARTED, "staged, loaded and probed"),
    (RolloutState.FLIPPED, "route decided, replicas take it"),
    (RolloutState.LIVE, "live"),
)


@dataclass(frozen=True, slots=True)
class Journey:
    """A promotion on its way at one served name."""

    deployment: str
    served: str
    rollout: Rollout | None  # None: nobody has begun
    note: str = ""  # what it waits for

    @property
    def state(self) -> str:
        return self.rollout.state.value if self.rollout else "waiting"

    @property
    def has_ended(self) -> bool:
        return self.rollout is not None and self.rollout.state in TERMINAL

    @property
    def stages(self) -> list[tuple[str, str]]:
        """Each stage in words, with ``done``, ``now``, ``next`` or how it failed."""
        if self.rollout is None:
            return [(words, "next") for _, words in _STAGES]
        states = [state for state, _ in _STAGES]
        if self.rollout.state not in states:
            return [(_STAGES[0][1], self.state)] + [(words, "next") for _, words in _STAGES[1:]]
        at = states.index(self.rollout.state)
        passed = at + 1 if self.has_ended else at
        return [
            (words, "done" if i < passed else "now" if i == at else "next")
            for i, (_, words) in enumerate(_STAGES)
        ]


def add_promotions(router: APIRouter, pages: Pages) -> None:
    @router.get("/artifacts/{name}/aliases/{alias}")
    def timeline(
        request: Request,
        who: _Visitor,
        name: str,
        alias: str,
        shown: Annotated[int, Query(ge=1, le=_MOST_SHOWN)] = _SHOWN,
    ) -> Response:
        registry = who.registry
        history = registry.promotions.history(name, alias, limit=shown + 1)
        return pages.show(
            request,
            "alias.html",
            who,
            held=registry.promotions.get(name, alias),
            history=history[:shown],
            more=min(_MOST_SHOWN, 2 * shown) if len(history) > shown else None,
            shown=shown,
            following=followers(registry, name, alias),
            live=routed(registry, name),
            versions=registry.catalog.versions(name, limit=_CHOICE),
            forbidden=why_not(who, name, alias),
        )

    @router.get("/artifacts/{name}/aliases/{alias}/{generation}")
    def promotion(
        request: Request,
        who: _Visitor,
        name: str,
        alias: str,
        generation: Annotated[int, Path(ge=1, le=2**62)],
    ) -> Response:
        registry = who.registry
        moved = registry.promotions.promotion(name, alias, generation)
        held = registry.promotions.get(name, alias)
        return pages.show(
            request,
            "promotion.html",
            who,
            moved=moved,
            held=held,
            is_newest=held.generation == generation,
            journeys=journeys(registry, moved, held.generation == generation),
            forbidden=why_not(who, name, alias),
        )


def journeys(registry: Registry, moved: Promotion, is_newest: bool) -> list[Journey]:
    """What became of a promotion at each served name that follows the alias."""
    newest: dict[tuple[str, str], Rollout] = {}
    for rollout in registry.deployments.of_promotion(moved.artifact, moved.alias, moved.generation):
        newest[rollout.target.deployment, rollout.target.served] = rollout
    following = followers(registry, moved.artifact, moved.alias) if is_newest else []
    notes = {(each.deployment, each.served): _note(each) for each in following}
    return [
        Journey(*where, newest.get(where), notes.get(where, ""))
        for where in sorted(newest.keys() | notes.keys())
    ]


def _note(follower: Follower) -> str:
    if follower.paused:
        return f"The deployment is paused. {follower.paused}"
    if not follower.is_led:
        return "No controller is at work on the deployment: start 'podium up'."
    return ""
