"""What serving must keep true: rollouts, routes, blocks, and what was last seen of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from registry.deployments import (
    Block,
    Condition,
    ReplicaStatus,
    Rollout,
    RolloutState,
    Route,
    RouteTable,
    Target,
)


class Deployments(Protocol):
    """Rollouts, routes and blocks of deployments, written by the controller that holds the lease."""

    def begin(self, target: Target) -> Rollout:
        """Start to bring a target live; what was started for the same target is given back.

        An open rollout of the same served name, and promotions of the alias that nobody began a rollout
        for, end as superseded in the same transaction.
        """

    def flip(self, rollout_id: str) -> Route:
        """Decide that the served name is answered by the rollout's version; the table's generation rises."""

    def record_engine(self, deployment: str, engine: str) -> None:
        """Write down the settings with which the recorded base runs from now on."""

    def finish(self, rollout_id: str, state: RolloutState, reason: str = "") -> Rollout:
        """End a rollout, with its event. Raises `Refused` if it has ended."""

    def record_revert(self, rollout: Rollout, reason: str) -> None:
        """Write the event that the alias was put back because the rollout failed."""

    def drop_route(self, deployment: str, served: str) -> None:
        """Stop answering a name that is no longer declared; the table's generation rises."""

    def open_rollouts(self, deployment: str) -> list[Rollout]:
        """Those that have not ended: at most one of each served name."""

    def latest_rollouts(self, deployment: str) -> list[Rollout]:
        """The newest of each served name, ended or not."""

    def rollouts(
        self, deployment: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Rollout]:
        """Newest first. With ``before`` only those that began before that rollout."""

    def of_promotion(self, artifact: str, alias: str, generation: int) -> list[Rollout]:
        """What became of a promotion at each deployment that has seen it."""

    def were_live(self, artifact: str, alias: str, *, limit: int = 50) -> list[Rollout]:
        """Rollouts of the alias that became live, the highest generation first."""

    def routes(self, deployment: str) -> RouteTable: ...

    def with_routes(self) -> list[str]:
        """Names of all deployments that route something, declared still or not."""

    def active(self) -> list[str]:
        """Names of all deployments that have rollouts or routes, declared still or not."""

    def forget(self, deployment: str) -> None:
        """End what is remembered of a deployment that was removed; one of its name begins anew.

        Its ended rollouts stay in the history.
        """

    def block(self, block: Block) -> None:
        """Do not try the content again with this base and engine."""

    def blocks(self, deployment: str) -> list[Block]: ...

    def observe(
        self, deployment: str, replicas: Sequence[ReplicaStatus], conditions: Sequence[Condition] = ()
    ) -> None:
        """Record what was last seen of all replicas of a deployment, and of the deployment as a whole."""

    def conditions(self, deployment: str) -> list[Condition]:
        """What was last seen of the deployment as a whole."""

    def replicas(self, deployment: str | None = None) -> list[ReplicaStatus]:
        """What was last seen of replicas."""

    def users(self, digest: str) -> list[str]:
        """Deployments that need a content: routed to, kept for a rollback, being rolled out, or declared."""
