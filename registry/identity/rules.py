"""What a token may do: pure decisions over the token and what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.errors import Forbidden
from registry.identity.roles import TeamRole
from registry.identity.tokens import Token
from registry.runs import RunRequest, lease_name
from registry.values import Authority, ChangeKind, Lease, Origin

_LEASES_OF_WORKERS = ("run/", "delivery/", "consumer/")

#: What the process of a run may ask for beside reading: its own part of the journal, and what it makes.
_OF_RUNS = frozenset(
    {
        "catalog.publish",
        "catalog.store",
        "catalog.name",
        "catalog.tag",
        "checkpoints.save",
        "chunks.missing",
        "chunks.put",
        "chunks.transfer",
        "checkpoints.mark_damaged",
        "leases.beat",
        "measures.add",
        "runs.append_log",
        "runs.cancel",
        "runs.note",
        "runs.queue",
        "runs.set_roles",
        "steps.again",
        "steps.ask",
        "steps.fork",
        "steps.record",
        "steps.settle",
        "transactions.begin",
    }
)


def require_role(token: Token, needed: TeamRole, operation: str) -> None:
    """Raise `Forbidden`, which names the role that is needed, unless the token has it."""
    if not token.role.covers(needed):
        raise Forbidden(
            f"'{operation}' needs the role {needed.value}; this token is a {token.role.value}'s.",
            remedy=f"Ask an admin for a token with the role {needed.value}.",
            role=token.role.value,
            needed=needed.value,
        )


def require_scope(token: Token, artifact: str) -> None:
    """Raise `Forbidden` unless the token may change the artifact."""
    if not token.covers(artifact):
        raise Forbidden(
            f"This token may change artifacts that match '{token.pattern}', and '{artifact[:100]}' does not.",
            remedy="Ask an admin for a token with another pattern.",
            pattern=token.pattern,
        )


def require_own(token: Token, operation: str) -> None:
    """Raise `Forbidden` where a run's token is used for what is no run's business."""
    if token.run is not None and operation not in _OF_RUNS:
        raise Forbidden(
            f"The token of run {token.run} is not for '{operation}'.",
            remedy="Use a token of your own for what is not the run's work.",
        )


def origin_for(token: Token, asked: Origin) -> Origin:
    """On whose behalf a request is carried out.

    A run's token stands for that run under its epoch and for nobody else. A person's token stands for that
    person; one of a trainer or above also for workers and their runs, where the lease says so, and an admin's
    for anybody.
    """
    if token.run is not None:
        authority = Authority(lease_name(token.run), token.epoch or 0)
        return Origin(token.actor, authority, asked.causation, asked.correlation)
    if asked.actor in ("", token.actor):
        return Origin(token.actor, asked.authority, asked.causation, asked.correlation)
    if token.role.covers(TeamRole.ADMIN) or (token.role.covers(TeamRole.TRAINER) and _is_workers(asked)):
        return asked
    if asked.actor.startswith("user:"):
        return Origin(token.actor, asked.authority, asked.causation, asked.correlation)
    raise Forbidden(
        f"A {token.role.value}'s token cannot write as '{asked.actor[:100]}'.",
        remedy="Use the token of who that is, or an admin's.",
        needed=TeamRole.ADMIN.value,
    )


def _is_workers(asked: Origin) -> bool:
    kind, _, rest = asked.actor.partition(":")
    if kind == "run":
        return asked.authority is not None and asked.authority.lease == lease_name(rest)
    return kind in ("worker", "consumer")


def role_for_lease(name: str) -> TeamRole:
    """Who may hold a lease: those of relay and controllers decide what is live."""
    return TeamRole.TRAINER if name.startswith(_LEASES_OF_WORKERS) else TeamRole.ADMIN


def needed_by_arguments(operation: str, arguments: Mapping[str, Any]) -> TeamRole:
    """The role that an operation needs because of what it is asked, beside the one that it always needs."""
    if operation == "apps.apply":
        changed = [each for each in arguments["plan"] if each.change is not ChangeKind.KEEP]
        return TeamRole.ADMIN if any(each.kind == "gate" for each in changed) else TeamRole.PROMOTER
    if operation == "leases.acquire":
        return role_for_lease(arguments["name"])
    if operation == "leases.release":
        return role_for_lease(arguments["lease"].name)
    if operation == "leases.beat":
        roles = [role_for_lease(lease.name) for lease in arguments["leases"] if isinstance(lease, Lease)]
        return max(roles, key=list(TeamRole).index, default=TeamRole.TRAINER)
    return TeamRole.VIEWER


def changed_artifacts(operation: str, arguments: Mapping[str, Any], named: str | None) -> list[str]:
    """Names of the artifacts that a request would change; ``named`` is the parameter that names one."""
    found = []
    if named is not None:
        found.append(str(arguments[named]).partition("@")[0].partition(":")[0])
    request = arguments.get("request")
    if isinstance(request, RunRequest) and request.publish:
        found.append(request.publish)
    return found
