"""Moving aliases: each move is one transaction that also writes its history and its event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import EllipsisType

from registry.crashpoints import reached
from registry.database.engine import Row, Transaction, UniqueViolation, to_time
from registry.database.statements import sql
from registry.errors import (
    AliasHeld,
    AliasMoved,
    AliasNotFound,
    GateFailed,
    PodiumError,
    Refused,
)
from registry.events import AliasMoved as AliasMovedData
from registry.events import AliasReleased, EventType, PromotionRefused
from registry.gates.wording import advice, summary, verdict_lines
from registry.references import Reference, check_alias, check_name
from registry.rollback import Move, rollback_target
from registry.store import evidence, rows
from registry.store.evidence import Basis, Subject
from registry.store.session import Session, check_text, to_json
from registry.store.usage import lived_generations
from registry.suggesting import did_you_mean
from registry.values import Action, Alias, Promotion, Verdict

_JUDGE_ATTEMPTS = 5

_ALIAS = sql("""
    SELECT alias.version_id, version.number, version.digest, alias.generation, alias.moved_at,
           alias.held_by, alias.hold_reason
    FROM alias JOIN artifact ON artifact.id = alias.artifact_id JOIN version ON version.id = alias.version_id
    WHERE artifact.name = :artifact AND alias.name = :alias
""")
_CREATE = sql("""
    INSERT INTO alias (artifact_id, name, version_id, generation, moved_at)
    VALUES (:artifact, :alias, :version, 1, :now)
""")
_MOVE = sql("""
    UPDATE alias SET version_id = :version, generation = generation + 1, moved_at = :now
    WHERE artifact_id = :artifact AND name = :alias AND generation = :generation
""")
_HOLD = sql("""
    UPDATE alias SET held_by = :actor, held_at = :now, hold_reason = :reason
    WHERE artifact_id = :artifact AND name = :alias
""")
_RELEASE = sql("""
    UPDATE alias SET held_by = NULL, held_at = NULL, hold_reason = NULL
    WHERE artifact_id = :artifact AND name = :alias AND held_by IS NOT NULL
""")
_RECORD = sql("""
    INSERT INTO promotion (artifact_id, alias, generation, action, from_version_id, to_version_id, actor,
                           reason, verdicts, event, at)
    VALUES (:artifact, :alias, :generation, :action, :from_version, :to_version, :actor,
            :reason, :verdicts, :event, :now)
""")
_HISTORY = sql("""
    SELECT promotion.alias, promotion.generation, promotion.action, earlier.number, later.number,
           later.digest, promotion.actor, promotion.reason, promotion.at, promotion.event, promotion.verdicts
    FROM promotion JOIN artifact ON artifact.id = promotion.artifact_id
    JOIN version later ON later.id = promotion.to_version_id
    LEFT JOIN version earlier ON earlier.id = promotion.from_version_id
    WHERE artifact.name = :artifact AND (CAST(:alias AS TEXT) IS NULL OR promotion.alias = :alias)
      AND (CAST(:generation AS INTEGER) IS NULL OR promotion.generation = :generation)
      AND (CAST(:before AS TEXT) IS NULL OR promotion.id < (
          SELECT last.id FROM promotion last WHERE last.artifact_id = artifact.id AND last.event = :before
      ))
    ORDER BY promotion.id DESC LIMIT :limit
""")
_MOVES = sql("""
    SELECT promotion.generation, promotion.action, promotion.to_version_id, version.deleted_at IS NOT NULL
    FROM promotion JOIN version ON version.id = promotion.to_version_id
    WHERE promotion.artifact_id = :artifact AND promotion.alias = :alias ORDER BY promotion.generation
""")


@dataclass(frozen=True, slots=True)
class _Held:
    """Where an alias is now."""

    version_id: int
    number: int
    digest: str
    generation: int
    held_by: str | None
    hold_reason: str | None


@dataclass(frozen=True, slots=True)
class _Target:
    """The version that an alias shall move to."""

    version_id: int
    artifact_id: int
    artifact: str
    number: int
    kind: str
    digest: str

    @property
    def subject(self) -> Subject:
        return Subject(f"{self.artifact}:v{self.number}", self.digest)


@dataclass(frozen=True, slots=True)
class _Expectation:
    version: int | EllipsisType | None
    generation: int | None

    def check(self, artifact: str, alias: str, held: _Held | None) -> None:
        version = held.number if held else None
        generation = held.generation if held else 0
        if self.version is not ... and self.version != version:
            self._refuse(artifact, alias, held, "none" if self.version is None else f"v{self.version}")
        if self.generation is not None and self.generation != generation:
            self._refuse(artifact, alias, held, f"generation {self.generation}")

    @staticmethod
    def _refuse(artifact: str, alias: str, held: _Held | None, expected: str) -> None:
        name = f"'{artifact}:{alias}'"
        said = f"{name} does not exist, and was expected to be at {expected}."
        if held:
            said = (
                f"{name} is at v{held.number} (generation {held.generation}), not at {expected} as expected."
            )
        where = f"history {artifact} {alias}" if held else f"show {artifact}"
        raise AliasMoved(
            said,
            remedy=f"Look at 'podium {where}' and decide again.",
            version=held.number if held else None,
            generation=held.generation if held else 0,
        )


class StoredPromotions:
    def __init__(self, session: Session) -> None:
        self._session = session

    def promote(
        self,
        reference: str,
        alias: str,
        *,
        expect: int | EllipsisType | None = ...,
        expect_generation: int | None = None,
        reason: str = "",
    ) -> Promotion:
        check_alias(alias)
        check_text(reason, "The reason")
        parsed = Reference.parse(reference).require_explicit("promote")
        expectation = _Expectation(expect, expect_generation)
        for _ in range(_JUDGE_ATTEMPTS):
            target, basis, verdicts = self._judge(parsed, alias)
            reached("promotion.judged")
            try:
                with self._session.writing() as transaction:
                    moved = self._promote(transaction, target, alias, expectation, basis, verdicts, reason)
                    if moved is not None and self._session.seal is not None:
                        self._session.seal(moved)
            except (GateFailed, AliasHeld) as refusal:
                self._record_refusal(target, alias, refusal, verdicts)
                raise
            reached("promotion.committed")
            if moved is not None:
                return moved
        raise AliasMoved(
            f"'{parsed.name}:{alias}' or its evidence changed each time that it was judged.",
            remedy="Try again.",
        )

    def judge(self, reference: str, alias: str) -> list[Verdict]:
        return self._judge(Reference.parse(reference), check_alias(alias))[2]

    def rollback(self, name: str, alias: str, *, to: int | None = None, reason: str = "") -> Promotion:
        check_text(reason, "The reason")
        with self._session.writing() as transaction:
            artifact, held = self._locked(transaction, check_name(name), check_alias(alias))
            target = _rollback_version(transaction, artifact, name, alias, to)
            if target.version_id == held.version_id:
                raise Refused(
                    f"'{name}:{alias}' is at v{target.number} already.",
                    remedy="Name an earlier version with --to, or leave --to out.",
                )
            moved = self._move(transaction, target, alias, held, Action.ROLLBACK, reason, ())
            transaction.execute(
                _HOLD,
                artifact=artifact,
                alias=alias,
                actor=self._session.origin.actor,
                now=self._session.now(),
                reason=reason or f"rolled back to v{target.number}",
            )
        reached("promotion.committed")
        return moved

    def revert(self, name: str, alias: str, *, failed_generation: int, reason: str) -> Promotion | None:
        with self._session.writing() as transaction:
            artifact, held = self._locked(transaction, name, alias)
            if held.generation != failed_generation:
                return None
            target_id = _earlier_version(transaction, artifact, name, alias)
            if target_id is None:
                return None
            target = _target(rows.require_id(transaction, target_id))
            return self._move(transaction, target, alias, held, Action.REVERT, reason, ())

    def release(self, name: str, alias: str) -> Alias:
        with self._session.writing() as transaction:
            artifact, _ = self._locked(transaction, check_name(name), check_alias(alias))
            if transaction.execute(_RELEASE, artifact=artifact, alias=alias):
                released = AliasReleased(artifact=name, alias=alias)
                subject = f"{name}:{alias}"
                self._session.emit(transaction, EventType.ALIAS_RELEASED, released, subject=subject, key=name)
        return self.get(name, alias)

    def get(self, name: str, alias: str) -> Alias:
        with self._session.reading() as reader:
            row = reader.first(_ALIAS, artifact=check_name(name), alias=check_alias(alias))
            if row is None:
                rows.require_artifact(reader, name)
                raise _no_alias(reader, name, alias)
        (_, number, digest, generation, moved_at, held_by, hold_reason) = row
        return Alias(name, alias, number, digest, generation, to_time(moved_at), held_by, hold_reason)

    def aliases(self, name: str) -> list[Alias]:
        with self._session.reading() as reader:
            rows.require_artifact(reader, check_name(name))
            return [self.get(name, alias) for alias in rows.aliases_of(reader, name)]

    def history(
        self, name: str, alias: str | None = None, *, before: str | None = None, limit: int = 100
    ) -> list[Promotion]:
        with self._session.reading() as reader:
            rows.require_artifact(reader, check_name(name))
            if alias is not None:
                self.get(name, alias)
            found = reader.all(
                _HISTORY, artifact=name, alias=alias, generation=None, before=before, limit=limit
            )
        return [_promotion(name, row) for row in found]

    def promotion(self, name: str, alias: str, generation: int) -> Promotion:
        with self._session.reading() as reader:
            row = reader.first(
                _HISTORY, artifact=name, alias=alias, generation=generation, before=None, limit=1
            )
        if row is None:
            raise AliasNotFound(
                f"'{name}:{alias}' has no generation {generation}.",
                remedy=f"See 'podium history {name} {alias}'.",
            )
        return _promotion(name, row)

    def _judge(self, reference: Reference, alias: str) -> tuple[_Target, Basis, list[Verdict]]:
        """Gates are judged before the write transaction, which then only checks that nothing has changed."""
        with self._session.reading() as reader:
            target = _target(rows.require(reader, reference))
            held = _held(reader, target.artifact, alias)
            gates = evidence.gates_of(reader, target.artifact, alias)
            incumbent = _incumbent(target.artifact, held)
            basis = evidence.basis(reader, gates, target.subject, incumbent)
            return target, basis, evidence.judge_all(reader, gates, target.subject, incumbent)

    def _promote(
        self,
        transaction: Transaction,
        target: _Target,
        alias: str,
        expectation: _Expectation,
        basis: Basis,
        verdicts: Sequence[Verdict],
        reason: str,
    ) -> Promotion | None:
        """Move the alias if everything still stands; None if it has to be judged again."""
        rows.require_artifact(transaction, target.artifact, lock=True)
        rows.require(transaction, Reference(target.artifact, version=target.number))
        held = _held(transaction, target.artifact, alias)
        expectation.check(target.artifact, alias, held)
        if held is not None and held.version_id == target.version_id:
            return self._unchanged(transaction, target, alias, held)
        gates = evidence.gates_of(transaction, target.artifact, alias)
        if evidence.basis(transaction, gates, target.subject, _incumbent(target.artifact, held)) != basis:
            return None
        self._check_hold(target, alias, held)
        _check_gates(target, alias, verdicts)
        return self._move(transaction, target, alias, held, Action.PROMOTE, reason, verdicts)

    def _unchanged(self, reader: Transaction, target: _Target, alias: str, held: _Held) -> Promotion:
        row = reader.one(
            _HISTORY,
            artifact=target.artifact,
            alias=alias,
            generation=held.generation,
            before=None,
            limit=1,
        )
        return _promotion(target.artifact, row, changed=False)

    def _check_hold(self, target: _Target, alias: str, held: _Held | None) -> None:
        if held is None or held.held_by is None or not self._session.origin.actor.startswith("trigger:"):
            return
        raise AliasHeld(
            f"'{target.artifact}:{alias}' is held by {held.held_by} ({held.hold_reason}); "
            "triggers may not move it.",
            remedy=f"A person releases it with: podium release {target.artifact} {alias}",
            artifact=target.artifact,
            alias=alias,
        )

    def _move(
        self,
        transaction: Transaction,
        target: _Target,
        alias: str,
        held: _Held | None,
        action: Action,
        reason: str,
        verdicts: Sequence[Verdict],
    ) -> Promotion:
        now = self._session.now()
        generation = held.generation + 1 if held else 1
        where = {"artifact": target.artifact_id, "alias": alias, "version": target.version_id, "now": now}
        if held is not None:
            transaction.execute(_MOVE, **where, generation=held.generation)
        else:
            _create(transaction, target, where)
        reached("promotion.moved")
        event = self._emit(transaction, target, alias, held, generation, action, reason)
        promotion = Promotion(
            artifact=target.artifact,
            alias=alias,
            generation=generation,
            action=action,
            from_version=held.number if held else None,
            to_version=target.number,
            to_digest=target.digest,
            actor=self._session.origin.actor,
            reason=reason,
            at=now,
            event=event,
            verdicts=tuple(verdicts),
        )
        _record(transaction, target, held, promotion)
        reached("promotion.recorded")
        return promotion

    def _emit(
        self,
        transaction: Transaction,
        target: _Target,
        alias: str,
        held: _Held | None,
        generation: int,
        action: Action,
        reason: str,
    ) -> str:
        data = AliasMovedData(
            artifact=target.artifact,
            kind=target.kind,
            alias=alias,
            from_version=held.number if held else None,
            to_version=target.number,
            to_digest=target.digest,
            generation=generation,
            action=action.value,
            reason=reason,
        )
        type = EventType.ALIAS_PROMOTED if action is Action.PROMOTE else EventType.ALIAS_ROLLED_BACK
        subject = f"{target.artifact}:{alias}"
        return self._session.emit(transaction, type, data, subject=subject, key=target.artifact)

    def _record_refusal(
        self, target: _Target, alias: str, refusal: PodiumError, verdicts: Sequence[Verdict]
    ) -> None:
        data = PromotionRefused(
            artifact=target.artifact,
            alias=alias,
            version=target.number,
            error=refusal.code,
            message=refusal.message,
            verdicts=[asdict(v) for v in verdicts],
        )
        subject = f"{target.artifact}:{alias}"

        def record() -> None:
            with self._session.writing() as transaction:
                self._session.emit(
                    transaction, EventType.PROMOTION_REFUSED, data, subject=subject, key=target.artifact
                )

        surrounding = self._session.database.open_transaction
        if surrounding is not None:
            # The refusal most likely undoes all that it was part of; but not that it was said.
            surrounding.after_rollback.append(record)
        record()

    def _locked(self, transaction: Transaction, name: str, alias: str) -> tuple[int, _Held]:
        artifact = rows.require_artifact(transaction, name, lock=True)
        held = _held(transaction, name, alias)
        if held is None:
            raise _no_alias(transaction, name, alias)
        return artifact[0], held


def _no_alias(reader: Transaction, name: str, alias: str) -> AliasNotFound:
    meant = did_you_mean(alias, rows.aliases_of(reader, name), f"See 'podium show {name}'.")
    return AliasNotFound(f"'{name}' has no alias '{alias}'.", remedy=meant)


def _held(reader: Transaction, artifact: str, alias: str) -> _Held | None:
    row = reader.first(_ALIAS, artifact=artifact, alias=alias)
    return None if row is None else _Held(row[0], row[1], row[2], row[3], row[5], row[6])


def _target(row: Row) -> _Target:
    return _Target(row[0], row[1], row[2], row[3], row[4], row[5])


def _incumbent(artifact: str, held: _Held | None) -> Subject | None:
    return None if held is None else Subject(f"{artifact}:v{held.number}", held.digest)


def _check_gates(target: _Target, alias: str, verdicts: Sequence[Verdict]) -> None:
    if all(v.passed for v in verdicts):
        return
    refused = f"{target.subject.ref} may not become '{target.artifact}:{alias}': {summary(verdicts)}."
    raise GateFailed(
        "\n".join([refused, *verdict_lines(verdicts)]),
        remedy=advice(verdicts, f"{target.subject.ref} {alias}"),
        verdicts=[asdict(v) for v in verdicts],
    )


def _create(transaction: Transaction, target: _Target, where: dict[str, object]) -> None:
    try:
        transaction.execute(_CREATE, **where)
    except UniqueViolation as error:
        raise AliasMoved(
            f"'{target.artifact}:{where['alias']}' was made by somebody else just now.",
            remedy="Look and decide again.",
        ) from error


def _record(transaction: Transaction, target: _Target, held: _Held | None, promotion: Promotion) -> None:
    transaction.execute(
        _RECORD,
        artifact=target.artifact_id,
        alias=promotion.alias,
        generation=promotion.generation,
        action=promotion.action.value,
        from_version=held.version_id if held else None,
        to_version=target.version_id,
        actor=promotion.actor,
        reason=promotion.reason,
        verdicts=to_json([asdict(v) for v in promotion.verdicts]),
        event=promotion.event,
        now=promotion.at,
    )


def _rollback_version(
    transaction: Transaction, artifact: int, name: str, alias: str, to: int | None
) -> _Target:
    """The version to go back to.

    Raises:
        Refused: there is none, or ``to`` never held the alias.
    """
    held_once = {version for _, _, version, _ in transaction.all(_MOVES, artifact=artifact, alias=alias)}
    if to is not None:
        target = _target(rows.require(transaction, Reference(name, version=to)))
        if target.version_id not in held_once:
            raise Refused(
                f"v{to} never was '{name}:{alias}', so there is nothing to go back to.",
                remedy=f"Promote it instead: podium promote {name}:v{to} {alias}",
            )
        return target
    earlier = _earlier_version(transaction, artifact, name, alias)
    if earlier is None:
        raise Refused(
            f"'{name}:{alias}' has no earlier version that was live.",
            remedy=f"See 'podium history {name} {alias}', or name one with --to.",
        )
    return _target(rows.require_id(transaction, earlier))


def _earlier_version(transaction: Transaction, artifact: int, name: str, alias: str) -> int | None:
    found = transaction.all(_MOVES, artifact=artifact, alias=alias)
    moves = [Move(generation, Action(action), version) for generation, action, version, _ in found]
    deleted = {version for _, _, version, gone in found if gone}
    return rollback_target(moves, lived_generations(transaction, name, alias), deleted)


def _promotion(artifact: str, row: Row, *, changed: bool = True) -> Promotion:
    (alias, generation, action, before, after, digest, actor, reason, at, event, verdicts) = row
    return Promotion(
        artifact=artifact,
        alias=alias,
        generation=generation,
        action=Action(action),
        from_version=before,
        to_version=after,
        to_digest=digest,
        actor=actor,
        reason=reason,
        at=to_time(at),
        event=event,
        verdicts=tuple(Verdict(**{**v, "evidence": tuple(v["evidence"])}) for v in json.loads(verdicts)),
        changed=changed,
    )
