"""The table of operations: what stands in no line here is served by hand, or not at all."""

from __future__ import annotations

from functools import cache
from typing import Any

from registry.identity.roles import TeamRole
from registry.protocol import (
    Apps,
    Catalog,
    Checkpoints,
    ClientKeys,
    Deliveries,
    Deployments,
    Evaluations,
    Events,
    Leases,
    Lineage,
    Measures,
    Operations,
    Promotions,
    Runs,
    Steps,
    Workers,
)
from registry.protocol.identity import Identity
from registry.wire.operation import Operation

_VIEWER, _TRAINER = TeamRole.VIEWER, TeamRole.TRAINER
_PROMOTER, _ADMIN = TeamRole.PROMOTER, TeamRole.ADMIN

_Line = tuple[Any, ...]  # method, verb, path, role, and what else is not as usual

#: Facet -> its protocol.
FACETS: dict[str, type] = {
    "catalog": Catalog,
    "promotions": Promotions,
    "evaluations": Evaluations,
    "lineage": Lineage,
    "events": Events,
    "leases": Leases,
    "deliveries": Deliveries,
    "deployments": Deployments,
    "operations": Operations,
    "client_keys": ClientKeys,
    "apps": Apps,
    "runs": Runs,
    "checkpoints": Checkpoints,
    "measures": Measures,
    "steps": Steps,
    "workers": Workers,
    "identity": Identity,
}

#: Methods that server and client have by hand, because files, bytes or time go through them.
BY_HAND = {
    "catalog.publish",
    "catalog.store",
    "catalog.materialise",
    "catalog.pull",
    "catalog.manifest",
    "catalog.read",
    "checkpoints.save",
    "events.wait",
}

_ALIAS = "/artifacts/{name}/aliases/{alias}"
_OF_ALIAS = "/artifacts/{artifact}/aliases/{alias}"
_CONSUMER = "/consumers/{consumer:path}"

_LINES: dict[str, list[_Line]] = {
    "catalog": [
        ("artifacts", "GET", "/artifacts", _VIEWER, {"page": "after", "page_key": "name"}),
        ("versions", "GET", "/artifacts/{name}/versions", _VIEWER, {"page": "before", "page_key": "number"}),
        ("resolve", "GET", "/versions/{reference}", _VIEWER),
        ("name", "POST", "/values/{value}/versions", _TRAINER, {"artifact": "name"}),
        ("diff", "GET", "/versions/{before}/diff/{after}", _VIEWER),
        (
            "tag",
            "PATCH",
            "/versions/{reference}/tags",
            _TRAINER,
            {"artifact": "reference", "repeatable": True},
        ),
        ("delete", "DELETE", "/versions/{reference}", _PROMOTER, {"artifact": "reference"}),
    ],
    "promotions": [
        (
            "promote",
            "POST",
            "/versions/{reference}/promotions",
            _PROMOTER,
            {"artifact": "reference", "judged": True},
        ),
        ("judge", "GET", "/versions/{reference}/verdicts/{alias}", _VIEWER),
        ("rollback", "POST", f"{_ALIAS}/rollbacks", _PROMOTER, {"artifact": "name"}),
        ("revert", "POST", f"{_ALIAS}/reverts", _ADMIN, {"artifact": "name"}),
        ("release", "DELETE", f"{_ALIAS}/hold", _PROMOTER, {"artifact": "name", "repeatable": True}),
        ("get", "GET", _ALIAS, _VIEWER),
        ("aliases", "GET", "/artifacts/{name}/aliases", _VIEWER),
        (
            "history",
            "GET",
            "/artifacts/{name}/promotions",
            _VIEWER,
            {"page": "before", "page_key": "event"},
        ),
        ("promotion", "GET", f"{_ALIAS}/promotions/{{generation}}", _VIEWER),
    ],
    "evaluations": [("of", "GET", "/contents/{digest}/evaluations", _VIEWER)],
    "lineage": [("walk", "GET", "/versions/{reference}/lineage", _VIEWER)],
    "events": [
        ("after", "GET", "/events", _VIEWER, {"page": "sequence", "page_key": "sequence"}),
        ("tail", "GET", "/events/newest", _VIEWER),
        ("find", "GET", "/events/matching", _VIEWER),
        ("caused_by", "GET", "/events/{event_id}/effects", _VIEWER),
        ("get", "GET", "/events/{event_id}", _VIEWER),
        ("position", "GET", "/stream", _VIEWER),
        ("mark_relayed", "POST", "/stream/relayed", _ADMIN, {"repeatable": True, "audited": False}),
        ("begin_incarnation", "POST", "/stream/incarnations", _ADMIN),
    ],
    "leases": [
        ("held", "GET", "/leases", _VIEWER),
        ("acquire", "POST", "/leases", _TRAINER, {"audited": False}),
        ("beat", "POST", "/leases/beats", _TRAINER, {"audited": False}),
        ("release", "POST", "/leases/releases", _TRAINER, {"repeatable": True, "audited": False}),
        ("get", "GET", "/leases/{name:path}", _VIEWER),
    ],
    "deliveries": [
        ("find", "GET", "/deliveries", _VIEWER),
        ("end", "POST", "/deliveries/ends", _TRAINER, {"audited": False}),
        ("subscriptions", "GET", "/subscriptions", _VIEWER),
        ("get", "GET", "/deliveries/{delivery_id}", _VIEWER),
        ("retry", "POST", "/deliveries/{delivery_id}/retries", _PROMOTER),
        ("replay", "POST", "/replays", _PROMOTER),
        ("serve", "PUT", f"{_CONSUMER}/subscriptions", _TRAINER, {"repeatable": True}),
        ("cursor", "GET", f"{_CONSUMER}/cursor", _VIEWER),
        ("record", "POST", f"{_CONSUMER}/deliveries", _TRAINER, {"repeatable": True, "audited": False}),
        ("claim", "POST", f"{_CONSUMER}/claims", _TRAINER, {"audited": False}),
        ("next_due", "GET", f"{_CONSUMER}/due", _VIEWER),
        ("waited_for", "GET", f"{_CONSUMER}/waits", _VIEWER),
        ("resume", "POST", f"{_CONSUMER}/resumptions", _TRAINER),
    ],
    "deployments": [
        ("begin", "POST", "/rollouts", _ADMIN),
        ("rollouts", "GET", "/rollouts", _VIEWER, {"page": "before", "page_key": "id"}),
        ("record_revert", "POST", "/rollouts/reverts", _ADMIN),
        ("record_engine", "PUT", "/deployments/{deployment}/engine", _ADMIN, {"repeatable": True}),
        ("flip", "POST", "/rollouts/{rollout_id}/flip", _ADMIN),
        ("finish", "POST", "/rollouts/{rollout_id}/end", _ADMIN),
        ("of_promotion", "GET", f"{_OF_ALIAS}/promotions/{{generation}}/rollouts", _VIEWER),
        ("were_live", "GET", f"{_OF_ALIAS}/rollouts", _VIEWER),
        ("with_routes", "GET", "/deployments/routed", _VIEWER),
        ("active", "GET", "/deployments/active", _VIEWER),
        ("open_rollouts", "GET", "/deployments/{deployment}/rollouts/open", _VIEWER),
        ("latest_rollouts", "GET", "/deployments/{deployment}/rollouts/latest", _VIEWER),
        ("routes", "GET", "/deployments/{deployment}/routes", _VIEWER),
        ("drop_route", "POST", "/deployments/{deployment}/routes/drops", _ADMIN, {"repeatable": True}),
        ("forget", "DELETE", "/deployments/{deployment}", _ADMIN, {"repeatable": True}),
        ("block", "POST", "/blocks", _ADMIN, {"repeatable": True}),
        ("blocks", "GET", "/deployments/{deployment}/blocks", _VIEWER),
        ("conditions", "GET", "/deployments/{deployment}/conditions", _VIEWER),
        (
            "observe",
            "PUT",
            "/deployments/{deployment}/replicas",
            _ADMIN,
            {"repeatable": True, "audited": False},
        ),
        ("replicas", "GET", "/replicas", _VIEWER),
        ("users", "GET", "/contents/{digest}/users", _VIEWER),
    ],
    "operations": [
        ("intent", "GET", "/deployments/{deployment}/intent", _VIEWER),
        ("pause", "POST", "/deployments/{deployment}/pauses", _PROMOTER),
        ("resume", "DELETE", "/deployments/{deployment}/pauses", _PROMOTER),
        ("restart", "POST", "/deployments/{deployment}/restarts", _PROMOTER),
        ("unblock", "DELETE", "/deployments/{deployment}/blocks/{digest}", _PROMOTER),
    ],
    "client_keys": [
        ("list", "GET", "/deployments/{deployment}/keys", _PROMOTER),
        ("add", "POST", "/deployments/{deployment}/keys", _ADMIN, {"secret": True}),
        ("revoke", "DELETE", "/deployments/{deployment}/keys/{key}", _ADMIN, {"repeatable": True}),
        ("open", "DELETE", "/deployments/{deployment}/keys", _ADMIN, {"repeatable": True}),
    ],
    "apps": [
        ("objects", "GET", "/objects", _VIEWER),
        ("plan", "POST", "/apps/{app}/plan", _VIEWER),
        ("apply", "PUT", "/apps/{app}", _PROMOTER),
    ],
    "runs": [
        ("list", "GET", "/runs", _VIEWER, {"page": "before", "page_key": "id"}),
        ("queue", "POST", "/runs", _TRAINER),
        ("expire", "POST", "/runs/expirations", _TRAINER, {"repeatable": True, "audited": False}),
        ("get", "GET", "/runs/{run}", _VIEWER),
        ("attempts", "GET", "/runs/{run}/attempts", _VIEWER),
        ("claim", "POST", "/workers/{worker}/claims", _TRAINER, {"audited": False}),
        ("set_roles", "PUT", "/runs/{run}/roles", _TRAINER, {"repeatable": True}),
        ("note", "PUT", "/runs/{run}/attempts/{attempt}/environment", _TRAINER, {"repeatable": True}),
        ("finish", "POST", "/runs/{run}/finish", _TRAINER),
        ("end", "POST", "/runs/{run}/end", _TRAINER),
        ("cancel", "POST", "/runs/{run}/cancel", _TRAINER, {"repeatable": True}),
        ("recover", "POST", "/runs/{run}/recoveries", _TRAINER),
        ("append_log", "POST", "/runs/{run}/attempts/{attempt}/log", _TRAINER, {"audited": False}),
        ("log", "GET", "/runs/{run}/log", _VIEWER),
    ],
    "checkpoints": [
        ("of", "GET", "/runs/{run}/checkpoints", _VIEWER),
        ("mark_damaged", "POST", "/checkpoints/damages", _TRAINER, {"repeatable": True}),
    ],
    "measures": [
        ("add", "POST", "/runs/{run}/measures", _TRAINER, {"audited": False}),
        ("of", "GET", "/runs/{run}/measures", _VIEWER),
    ],
    "steps": [
        ("of", "GET", "/runs/{run}/steps", _VIEWER),
        ("ask", "POST", "/steps", _TRAINER, {"repeatable": True}),
        ("ended", "POST", "/steps/ended", _VIEWER),
        ("awaiting", "POST", "/steps/awaiting", _VIEWER),
        ("record", "POST", "/steps/records", _TRAINER, {"repeatable": True}),
        ("settle", "POST", "/steps/{run}/settlements", _TRAINER, {"repeatable": True}),
        ("again", "POST", "/steps/{run}/repeats", _TRAINER, {"repeatable": True}),
        ("fork", "POST", "/forks", _TRAINER),
    ],
    "workers": [
        ("all", "GET", "/workers", _VIEWER),
        ("register", "POST", "/workers", _TRAINER),
        ("seen", "POST", "/workers/{worker}/beats", _TRAINER, {"repeatable": True, "audited": False}),
        ("leave", "DELETE", "/workers/{worker}", _TRAINER, {"repeatable": True}),
    ],
    "identity": [
        ("tokens", "GET", "/tokens", _PROMOTER),
        ("issue", "POST", "/tokens", _ADMIN, {"secret": True}),
        ("for_run", "POST", "/runs/{run}/token", _TRAINER, {"secret": True}),
        ("revoke", "DELETE", "/tokens/{token}", _ADMIN, {"repeatable": True}),
        ("protections", "GET", "/protections", _VIEWER),
        ("protect", "PUT", "/protections", _ADMIN, {"repeatable": True}),
        ("approve", "POST", "/versions/{reference}/approvals", _PROMOTER, {"artifact": "reference"}),
        ("approvals", "GET", "/contents/{digest}/approvals", _VIEWER),
        ("audit", "GET", "/audit", _ADMIN, {"page": "before", "page_key": "number"}),
    ],
}


@cache
def operations() -> tuple[Operation, ...]:
    """All operations; of two paths that one address could mean, the more exact one stands first."""
    late = _late_types()
    return tuple(
        Operation(
            facet,
            line[0],
            line[1],
            line[2],
            line[3],
            FACETS[facet],
            hints=late,
            **(line[4] if line[4:] else {}),
        )
        for facet, lines in _LINES.items()
        for line in lines
    )


def _late_types() -> dict[str, Any]:
    """Types that the protocol names but does not import when it is imported."""
    from registry.content.diff import ContentDiff
    from registry.content.manifest import Manifest
    from registry.content.progress import Progress

    return {"ContentDiff": ContentDiff, "Manifest": Manifest, "Progress": Progress}
