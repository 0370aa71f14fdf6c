"""What a promotion or a rollback would do, gathered before a person is asked once."""

from __future__ import annotations

from dataclasses import dataclass

from registry.content.diff import ContentDiff
from registry.errors import AliasNotFound, Forbidden, NotFound, PodiumError, Refused
from registry.followers import Follower, followers
from registry.http.authorising import Asker
from registry.identity.roles import TeamRole
from registry.protocol import Registry
from registry.references import check_alias
from registry.rollback import Move, rollback_target
from registry.values import Action, Alias, Promotion, Verdict, Version

_HISTORY = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """A move of an alias that has not been made."""

    action: Action
    alias: str
    held: Alias | None  # where the alias is now
    target: Version
    verdicts: tuple[Verdict, ...]
    followers: tuple[Follower, ...]
    diff: ContentDiff | None  # against what the alias holds now
    forbidden: str  # why this person may not, "" if they may

    @property
    def generation(self) -> int:
        return self.held.generation if self.held else 0

    @property
    def is_there(self) -> bool:
        """Whether the alias holds the version already."""
        return self.held is not None and self.held.version == self.target.number

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The gates that would refuse it. A rollback asks none."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    @property
    def may_be_made(self) -> bool:
        return not (self.forbidden or self.is_there or self.refused)


def to_promote(who: Asker, name: str, alias: str, version: int) -> Plan:
    """What moving the alias to the version would do. Nothing is written."""
    registry = who.registry
    target = registry.catalog.resolve(f"{name}:v{version}")
    verdicts = tuple(registry.promotions.judge(target.ref, alias))
    return _plan(who, Action.PROMOTE, alias, _held(registry, name, alias), target, verdicts)


def to_roll_back(who: Asker, name: str, alias: str, version: int | None) -> Plan:
    """What a rollback would do: to ``version``, or to the last earlier one that was live.

    Raises:
        Refused: there is nothing to go back to.
    """
    registry = who.registry
    held = registry.promotions.get(name, alias)
    number = version if version is not None else earlier(registry, name, alias)
    if number is None:
        raise Refused(
            f"'{name}:{alias}' has no earlier version that was live.", remedy="Promote another version."
        )
    target = registry.catalog.resolve(f"{name}:v{number}")
    return _plan(who, Action.ROLLBACK, alias, held, target, ())


def earlier(registry: Registry, name: str, alias: str) -> int | None:
    """The version that `podium rollback` would go to, read from the history."""
    history = registry.promotions.history(name, alias, limit=_HISTORY)
    following = followers(registry, name, alias)
    rollouts = registry.deployments.were_live(name, alias, limit=_HISTORY)
    lived = {rollout.target.generation for rollout in rollouts} if following or rollouts else None
    deleted = {number for number in {row.to_version for row in history} if _is_gone(registry, name, number)}
    return rollback_target([_move(row) for row in reversed(history)], lived, deleted)


def _move(row: Promotion) -> Move:
    return Move(row.generation, row.action, row.to_version)


def _is_gone(registry: Registry, name: str, number: int) -> bool:
    try:
        registry.catalog.resolve(f"{name}:v{number}")
    except NotFound:
        return True
    return False


def _held(registry: Registry, name: str, alias: str) -> Alias | None:
    try:
        return registry.promotions.get(name, check_alias(alias))
    except AliasNotFound:
        return None


def _plan(
    who: Asker, action: Action, alias: str, held: Alias | None, target: Version, verdicts: tuple[Verdict, ...]
) -> Plan:
    registry, name = who.registry, target.artifact
    return Plan(
        action=action,
        alias=alias,
        held=held,
        target=target,
        verdicts=verdicts,
        followers=tuple(followers(registry, name, alias)),
        diff=_difference(registry, held, target),
        forbidden=why_not(who, name, alias),
    )


def _difference(registry: Registry, held: Alias | None, target: Version) -> ContentDiff | None:
    if held is None or held.version == target.number:
        return None
    try:
        return registry.catalog.diff(f"{held.artifact}:v{held.version}", target.ref)
    except PodiumError:  # a store that does not answer is no reason to keep a rollback from anybody
        return None


def why_not(who: Asker, name: str, alias: str) -> str:
    """Why this person may not move the alias; "" if they may."""
    arguments = {"name": name, "alias": alias}
    try:
        who.require("promotions.rollback", TeamRole.PROMOTER)
        who.require_for("promotions.rollback", arguments, "name")
    except Forbidden as error:
        return f"{error.message} {error.remedy}"
    return ""
