"""Aliases, versions, deletes, rollbacks and holds, against a model of a few lines.

Hypothesis draws the acts; after each, everything that can be read must be what the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from registry.errors import (
    AliasHeld,
    AliasMoved,
    AliasNotFound,
    PodiumError,
    Refused,
    VersionInUse,
    VersionNotFound,
)
from registry.events import EventType
from registry.protocol import Registry
from registry.values import Action, Origin
from tests.common import content

ALIASES = ("candidate", "production")
# What is drawn more often leads further: most acts go to one alias, and name a version that is there.
SOME_ALIAS = st.sampled_from(("candidate", "production", "production"))
SOME_VERSION = st.integers(-2, 11)  # -2: where the alias is; -1: one that never was; else another one
Move = tuple[Action, int | None, int]  # what, from, to


@dataclass
class ModelAlias:
    """What one alias should be."""

    moves: list[Move] = field(default_factory=list)
    trail: list[int] = field(default_factory=list)  # versions that a rollback walks back along
    held: bool = False

    @property
    def at(self) -> int | None:
        return self.moves[-1][2] if self.moves else None

    def move(self, action: Action, to: int) -> None:
        self.moves.append((action, self.at, to))
        if action is Action.PROMOTE:
            self.trail.append(to)
            return
        while self.trail and self.trail[-1] != to:
            self.trail.pop()
        self.trail = self.trail or [to]

    def before(self, there: set[int]) -> int | None:
        """The version that a rollback goes to."""
        return next((v for v in reversed(self.trail) if v != self.at and v in there), None)


class AliasMachine(RuleBasedStateMachine):
    """One artifact named ``bot`` with two aliases."""

    def __init__(self, opened: Callable[[int], Registry], scratch: Path) -> None:
        super().__init__()
        self._opened = opened
        self._scratch = scratch

    @initialize(window=st.sampled_from([0, 0, 30]), first=st.permutations(range(4)), back=st.booleans())
    def begin(self, window: int, first: list[int], back: bool) -> None:
        self.window = window
        self.registry = self._opened(window)
        self.trigger = self.registry.acting(Origin("trigger:support/roll"))
        self.contents: dict[int, int] = {}  # live version number -> which content
        self.numbers = 0
        self.aliases = {alias: ModelAlias() for alias in ALIASES}
        self.facts = 0  # events so far
        for which in range(4):
            self.publish(which)
        for drawn in first:  # a past that there is something to go back to
            self.promote("production", drawn, "anything", by_trigger=False)
        if back:
            self.rollback("production", None)

    def version(self, drawn: int, at: int | None = None) -> int:
        if drawn == -2 and at is not None:
            return at
        there = sorted(self.contents.keys() - {at})
        return there[drawn % len(there)] if drawn >= 0 and there else self.numbers + 1

    def expect(self, error: type[PodiumError] | None, act: Callable[[], object]) -> bool:
        """Do something that must succeed, or fail in that way; whether it succeeded."""
        try:
            act()
        except PodiumError as raised:
            assert error is not None, f"unexpected: {raised!r}"
            assert type(raised) is error, f"{raised!r} instead of {error.__name__}"
            return False
        assert error is None, f"it succeeded instead of {error}"
        return True

    @rule(which=st.integers(0, 7))
    def publish(self, which: int) -> None:
        folder = self._scratch / f"content-{which}"
        if not folder.exists():
            content.write_dataset(folder, {"data.txt": b"%d" % which})
        published = self.registry.catalog.publish("bot", folder, "dataset")
        known = next((number for number, of in self.contents.items() if of == which), None)
        assert published.created is (known is None)
        if known is None:
            self.numbers += 1
            self.facts += 1
            self.contents[self.numbers] = which
        assert published.version.number == (known or self.numbers)

    @rule(
        alias=SOME_ALIAS,
        drawn=SOME_VERSION,
        expected=st.sampled_from(["anything", "anything", "right", "wrong"]),
        by_trigger=st.booleans(),
    )
    def promote(self, alias: str, drawn: int, expected: str, by_trigger: bool) -> None:
        model = self.aliases[alias]
        number = self.version(drawn, model.at)
        registry = self.trigger if by_trigger else self.registry
        expect = {"anything": ..., "right": model.at, "wrong": (model.at or 0) + 1}[expected]
        error = self._why_not_promote(model, number, expected, by_trigger)
        done = self.expect(error, lambda: registry.promotions.promote(f"bot:v{number}", alias, expect=expect))
        if error is AliasHeld or (done and model.at != number):
            self.facts += 1  # a refusal is an event as well
        if done and model.at != number:
            model.move(Action.PROMOTE, number)

    def _why_not_promote(
        self, model: ModelAlias, number: int, expected: str, by_trigger: bool
    ) -> type[PodiumError] | None:
        if number not in self.contents:
            return VersionNotFound
        if expected == "wrong":
            return AliasMoved
        if by_trigger and model.held and model.at != number:
            return AliasHeld
        return None

    @rule(alias=SOME_ALIAS, drawn=st.none() | SOME_VERSION)
    def rollback(self, alias: str, drawn: int | None) -> None:
        model = self.aliases[alias]
        to = None if drawn is None else self.version(drawn, model.at)
        target = model.before(set(self.contents)) if to is None else to
        error: type[PodiumError] | None = None
        if not model.moves:
            error = AliasNotFound
        elif to is not None and to not in self.contents:
            error = VersionNotFound
        elif target is None or target == model.at or target not in {move[2] for move in model.moves}:
            error = Refused
        if self.expect(error, lambda: self.registry.promotions.rollback("bot", alias, to=to)):
            assert target is not None
            model.move(Action.ROLLBACK, target)
            model.held = True
            self.facts += 1

    @rule(alias=SOME_ALIAS, stale=st.booleans())
    def revert(self, alias: str, stale: bool) -> None:
        model = self.aliases[alias]
        if not model.moves:
            return
        target = None if stale else model.before(set(self.contents))
        generation = len(model.moves) - stale
        moved = self.registry.promotions.revert("bot", alias, failed_generation=generation, reason="test")
        assert (moved.to_version if moved else None) == target
        if target is not None:
            model.move(Action.REVERT, target)
            self.facts += 1

    @rule(alias=SOME_ALIAS)
    def release(self, alias: str) -> None:
        model = self.aliases[alias]
        error = None if model.moves else AliasNotFound
        if self.expect(error, lambda: self.registry.promotions.release("bot", alias)):
            self.facts += model.held
            model.held = False

    @rule(drawn=SOME_VERSION)
    def delete(self, drawn: int) -> None:
        number = self.version(drawn)
        held_now = any(model.at == number for model in self.aliases.values())
        held_once = any(number in move[1:] for model in self.aliases.values() for move in model.moves)
        error: type[PodiumError] | None = None
        if number not in self.contents:
            error = VersionNotFound
        elif held_now or (held_once and self.window):
            error = VersionInUse
        if self.expect(error, lambda: self.registry.catalog.delete(f"bot:v{number}")):
            del self.contents[number]

    @invariant()
    def everything_reads_as_the_model_says(self) -> None:
        if not getattr(self, "numbers", 0):
            return
        versions = self.registry.catalog.versions("bot")
        assert {version.number for version in versions} == set(self.contents)
        (artifact,) = self.registry.catalog.artifacts()
        assert (artifact.versions, artifact.newest) == (len(versions), max(self.contents, default=None))
        assert artifact.bytes_total == sum(version.size for version in versions)
        for version in versions:
            assert set(version.aliases) == {a for a in ALIASES if self.aliases[a].at == version.number}
        for alias, model in self.aliases.items():
            self._check_alias(alias, model)
        events = self.registry.events.after(0, limit=1000)
        assert [event.sequence for event in events] == list(range(1, self.facts + 1))

    def _check_alias(self, alias: str, model: ModelAlias) -> None:
        if not model.moves:
            self.expect(AliasNotFound, lambda: self.registry.promotions.get("bot", alias))
            return
        found = self.registry.promotions.get("bot", alias)
        assert (found.version, found.generation) == (model.at, len(model.moves))
        assert (found.held_by is not None) is model.held
        assert self.registry.catalog.resolve(f"bot:{alias}").number == model.at
        history = self.registry.promotions.history("bot", alias)[::-1]
        assert [(p.action, p.from_version, p.to_version) for p in history] == model.moves
        moves = (EventType.ALIAS_PROMOTED, EventType.ALIAS_ROLLED_BACK)
        events = [e for e in self.registry.events.after(0, limit=1000) if e.type in moves]
        assert [p.event for p in history] == [e.id for e in events if e.data["alias"] == alias]
