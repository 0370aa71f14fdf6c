"""Tokens, protected aliases, approvals and the audit trail, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

from registry.database.engine import Row, Transaction, to_time
from registry.database.statements import sql
from registry.errors import InvalidInput, NotFound, RunRefused
from registry.identity.roles import TeamRole
from registry.identity.tokens import (
    Approval,
    AuditEntry,
    IssuedToken,
    Protection,
    Token,
    check_name,
    check_pattern,
    hash_of,
    identity_of,
    is_same,
    new_text,
)
from registry.references import Reference, check_alias
from registry.runs import lease_name
from registry.store import rows
from registry.store.evidence import approvals_of
from registry.store.session import Session, check_text

_COLUMNS = "id, name, role, pattern, created_at, created_by, expires_at, revoked_at, run, epoch"
_PUT = sql("""
    INSERT INTO token (id, hash, name, role, pattern, run, epoch, created_at, created_by, expires_at)
    VALUES (:id, :hash, :name, :role, :pattern, :run, :epoch, :now, :actor, :expires_at)
""")
_BY_ID = sql(f"SELECT {_COLUMNS}, hash FROM token WHERE id = :id")
_ALL = sql(f"SELECT {_COLUMNS} FROM token WHERE run IS NULL ORDER BY created_at DESC, id")
_NAMED = sql(f"""
    SELECT {_COLUMNS} FROM token
    WHERE run IS NULL AND revoked_at IS NULL AND (id = :token OR name = :token)
""")
_REVOKE = sql("UPDATE token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL")
_FORGET_OF_RUNS = sql("DELETE FROM token WHERE run = :run AND epoch < :epoch")
_LEASE = sql("SELECT epoch FROM lease WHERE name = :name AND holder IS NOT NULL")
_PROTECT = sql("""
    INSERT INTO protection (artifact, alias, role) VALUES (:artifact, :alias, :role)
    ON CONFLICT (artifact, alias) DO UPDATE SET role = excluded.role
""")
_UNPROTECT = sql("DELETE FROM protection WHERE artifact = :artifact AND alias = :alias")
_PROTECTIONS = sql("SELECT artifact, alias, role FROM protection ORDER BY artifact, alias")
_OF_ALIAS = sql("SELECT artifact, role FROM protection WHERE alias = :alias")
_APPROVE = sql("""
    INSERT INTO approval (artifact, alias, version, digest, actor, role, reason, at)
    VALUES (:artifact, :alias, :version, :digest, :actor, :role, :reason, :now)
""")
_RECORD = sql("""
    INSERT INTO audit (at, token, actor, operation, target, status, address)
    VALUES (:now, :token, :actor, :operation, :target, :status, :address)
""")
_AUDIT = sql("""
    SELECT id, at, token, actor, operation, target, status, address FROM audit
    WHERE CAST(:before AS INTEGER) IS NULL OR id < :before ORDER BY id DESC LIMIT :limit
""")
_FORGET_AUDIT = sql("DELETE FROM audit WHERE at < :before")
_FORGET_EXPIRED = sql("DELETE FROM token WHERE run IS NOT NULL AND expires_at < :now")
_RUN_TOKEN_DAYS = 30


class StoredIdentity:
    """`registry.protocol.Identity` over the database. ``role`` and ``pattern`` are those of who asks."""

    def __init__(self, session: Session, role: TeamRole = TeamRole.ADMIN, pattern: str = "*") -> None:
        self._session = session
        self._role = role
        self._pattern = pattern

    def issue(
        self, name: str, role: TeamRole, *, pattern: str = "*", days: float | None = None
    ) -> IssuedToken:
        check_name(name)
        check_pattern(pattern)
        if days is not None and not 0 < days <= 36_500:
            raise InvalidInput(f"A token cannot be good for {days} days.", remedy="Give 0.01 to 36500.")
        with self._session.writing() as transaction:
            return self._put(transaction, name, TeamRole(role), pattern, days)

    def _put(
        self,
        transaction: Transaction,
        name: str,
        role: TeamRole,
        pattern: str,
        days: float | None,
        run: str | None = None,
        epoch: int | None = None,
    ) -> IssuedToken:
        now = self._session.now()
        expires = None if days is None else now + timedelta(days=days)
        id, secret = new_text()
        actor = self._session.origin.actor
        transaction.execute(
            _PUT,
            id=id,
            hash=hash_of(secret),
            name=name,
            role=role.value,
            pattern=pattern,
            run=run,
            epoch=epoch,
            now=now,
            actor=actor,
            expires_at=expires,
        )
        return IssuedToken(Token(id, name, role, pattern, now, actor, expires, None, run, epoch), secret)

    def for_run(self, run: str) -> IssuedToken:
        authority = self._session.origin.authority
        if authority is None or authority.lease != lease_name(run):
            raise RunRefused(f"Only run {run[:40]} is given a token for itself.")
        with self._session.writing() as transaction:
            transaction.execute(_FORGET_OF_RUNS, run=run, epoch=authority.epoch)
            pattern = self._pattern
            return self._put(
                transaction, run, TeamRole.TRAINER, pattern, _RUN_TOKEN_DAYS, run, authority.epoch
            )

    def authenticate(self, text: str) -> Token | None:
        """The token with this text, if it is good now."""
        id = identity_of(text)
        if id is None:
            return None
        with self._session.reading() as reader:
            row = reader.first(_BY_ID, id=id)
            if row is None or not is_same(text, row[-1]):
                return None
            token = _token(row[:-1])
            if not token.is_valid(self._session.now()) or not _still_held(reader, token):
                return None
            return token

    def forget(self, audit_days: int) -> int:
        """Remove old lines of the trail, and tokens of runs that ended long ago; how many lines.

        Beside the protocol: a server does it by itself, and nobody can ask it to.
        """
        with self._session.database.transaction() as transaction:
            now = self._session.now()
            transaction.execute(_FORGET_EXPIRED, now=now)
            return transaction.execute(_FORGET_AUDIT, before=now - timedelta(days=audit_days))

    def tokens(self) -> Sequence[Token]:
        with self._session.reading() as reader:
            return [_token(row) for row in reader.all(_ALL)]

    def revoke(self, token: str) -> Token:
        with self._session.writing() as transaction:
            found = transaction.all(_NAMED, token=token)
            if len(found) != 1:
                how_many = "several tokens" if found else "no token"
                raise NotFound(
                    f"There is {how_many} '{token[:40]}' that could be revoked.",
                    remedy="Give its id: podium token list.",
                )
            now = self._session.now()
            transaction.execute(_REVOKE, id=found[0][0], now=now)
            return _token((*found[0][:7], now, *found[0][8:]))

    def protect(self, artifact: str, alias: str, role: TeamRole) -> Protection:
        check_pattern(artifact)
        check_alias(alias)
        role = TeamRole(role)
        with self._session.writing() as transaction:
            if TeamRole.PROMOTER.covers(role):
                transaction.execute(_UNPROTECT, artifact=artifact, alias=alias)
            else:
                transaction.execute(_PROTECT, artifact=artifact, alias=alias, role=role.value)
        return Protection(artifact, alias, role)

    def protections(self) -> Sequence[Protection]:
        with self._session.reading() as reader:
            return [Protection(a, alias, TeamRole(role)) for a, alias, role in reader.all(_PROTECTIONS)]

    def role_to_move(self, artifact: str, alias: str) -> TeamRole:
        """The role that moving an alias needs."""
        with self._session.reading() as reader:
            found = reader.all(_OF_ALIAS, alias=alias)
        roles = [TeamRole(role) for pattern, role in found if fnmatchcase(artifact, pattern)]
        return max(roles, key=list(TeamRole).index, default=TeamRole.PROMOTER)

    def approve(self, reference: str, alias: str, *, reason: str = "") -> Approval:
        check_alias(alias)
        check_text(reason, "The reason")
        parsed = Reference.parse(reference).require_explicit("approve")
        with self._session.writing() as transaction:
            version = rows.to_version(transaction, rows.require(transaction, parsed))
            approval = Approval(
                version.artifact,
                alias,
                version.number,
                version.digest,
                self._session.origin.actor,
                self._role,
                reason,
                self._session.now(),
            )
            transaction.execute(
                _APPROVE,
                artifact=approval.artifact,
                alias=alias,
                version=approval.version,
                digest=approval.digest,
                actor=approval.actor,
                role=approval.role.value,
                reason=reason,
                now=approval.at,
            )
            return approval

    def approvals(self, digest: str) -> Sequence[Approval]:
        with self._session.reading() as reader:
            return approvals_of(reader, digest)

    def record(self, token: str | None, operation: str, target: str, status: int, address: str) -> None:
        """Add a line to the audit trail."""
        with self._session.database.transaction() as transaction:
            transaction.execute(
                _RECORD,
                now=self._session.now(),
                token=token,
                actor=self._session.origin.actor,
                operation=operation,
                target=target[:500],
                status=status,
                address=address,
            )

    def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        with self._session.reading() as reader:
            found = reader.all(_AUDIT, before=before, limit=limit)
        return [AuditEntry(number, to_time(at), *rest) for number, at, *rest in found]


def _still_held(reader: Transaction, token: Token) -> bool:
    """A run's token ends with the attempt that it was given to."""
    if token.run is None:
        return True
    row = reader.first(_LEASE, name=f"run/{token.run}")
    return row is not None and row[0] == token.epoch


def _token(row: Row) -> Token:
    id, name, role, pattern, created_at, created_by, expires_at, revoked_at, run, epoch = row
    return Token(
        id,
        name,
        TeamRole(role),
        pattern,
        to_time(created_at),
        created_by,
        None if expires_at is None else to_time(expires_at),
        None if revoked_at is None else to_time(revoked_at),
        run,
        epoch,
    )
