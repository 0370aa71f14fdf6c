"""The `Registry` protocol: all that other rooms may ask of the registry.

It is cut by use case into facets, so that no class grows to know everything. `registry.connect()` returns an
implementation over the database; another over HTTP may take its place without its callers noticing. All calls
are synchronous and thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from registry.content.diff import ContentDiff
    from registry.content.manifest import Manifest
    from registry.content.progress import Progress
    from registry.settings import Settings

from registry.checkpoints import TRAINING, SavedCheckpoint
from registry.deliveries import Arrival, Delivery, DeliveryState
from registry.deployments import Block, ReplicaStatus, Rollout, RolloutState, Route, RouteTable, Target
from registry.resources import Resources
from registry.runs import (
    Attempt,
    Cause,
    Claim,
    LogPart,
    NewOutput,
    Run,
    RunError,
    RunRequest,
    RunState,
    Worker,
)
from registry.values import (
    Alias,
    AppChange,
    AppObject,
    Artifact,
    Evaluation,
    Event,
    Lease,
    LineageGraph,
    Origin,
    Parent,
    Promotion,
    Published,
    Role,
    Stored,
    StreamPosition,
    Verdict,
    Version,
)


class Catalog(Protocol):
    """Artifacts and their versions."""

    def publish(
        self,
        name: str,
        path: Path,
        kind: str | None = None,
        *,
        parents: Sequence[Parent] = (),
        metadata: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Store a folder or file and make it the next version of ``name``.

        The same content under the same artifact gives the version that is there. ``kind`` may be left out
        where the artifact exists.
        """

    def store(self, path: Path, kind: str, *, progress: Progress | None = None) -> Stored:
        """Store a folder or file and do not make it visible: a run will refer to it when it finishes."""

    def name(self, name: str, value: str) -> Published:
        """Make a value that is there a version of the artifact ``name``."""

    def resolve(self, reference: str) -> Version:
        """The version that a reference names now; a bare name is the newest version."""

    def manifest(self, digest: str) -> Manifest:
        """The files of a content digest, with their chunks."""

    def materialise(self, digest: str, destination: Path, *, progress: Progress | None = None) -> None:
        """`pull` for a content digest."""

    def pull(self, reference: str, destination: Path, *, progress: Progress | None = None) -> Version:
        """Write a version's files into the folder ``destination``, whole or not at all, digests verified."""

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of one file of a content digest (for headers and small files; not verified when a part)."""

    def diff(self, before: str, after: str) -> ContentDiff:
        """What changed between two versions, down to tensors."""

    def artifacts(self, pattern: str = "*", *, limit: int = 50, after: str = "") -> list[Artifact]:
        """Artifacts whose name matches a glob, by name, after the name ``after``."""

    def versions(self, name: str, *, limit: int = 50, before: int | None = None) -> list[Version]:
        """Versions of an artifact, newest first, numbered below ``before``."""

    def tag(self, reference: str, tags: Mapping[str, str | None]) -> Version:
        """Set tags; None removes one."""

    def delete(self, reference: str) -> Version:
        """Remove a version that nothing needs.

        Raises:
            VersionInUse: an alias holds it, held it within its rollback window, or a deployment uses it.
        """


class Promotions(Protocol):
    """Aliases and how they move."""

    def promote(
        self,
        reference: str,
        alias: str,
        *,
        expect: int | EllipsisType | None = ...,
        expect_generation: int | None = None,
        reason: str = "",
    ) -> Promotion:
        """Move ``alias`` of the artifact to the version, behind its gates, in one transaction.

        ``expect`` is the version number that the alias must hold now, None for no such alias yet.

        Raises:
            GateFailed, AliasMoved, AliasHeld, VersionNotFound, StaleAuthority.
        """

    def judge(self, reference: str, alias: str) -> list[Verdict]:
        """What the alias's gates say of a version now, without moving anything."""

    def rollback(self, name: str, alias: str, *, to: int | None = None, reason: str = "") -> Promotion:
        """Go back to the last earlier version that was live (or to ``to``) and hold the alias."""

    def revert(self, name: str, alias: str, *, failed_generation: int, reason: str) -> Promotion | None:
        """Put the alias back because ``failed_generation`` could not be served; None if it has moved on."""

    def release(self, name: str, alias: str) -> Alias:
        """End a hold, so that triggers may promote again."""

    def get(self, name: str, alias: str) -> Alias:
        """Where the alias is. Raises `AliasNotFound`."""

    def aliases(self, name: str) -> list[Alias]: ...

    def history(self, name: str, alias: str | None = None, *, limit: int = 100) -> list[Promotion]:
        """Newest first."""

    def promotion(self, name: str, alias: str, generation: int) -> Promotion: ...


class Evaluations(Protocol):
    """Scores of published reports."""

    def of(self, digest: str, *, dataset_digest: str | None = None) -> list[Evaluation]:
        """Evaluations of a content digest, newest first."""


class Lineage(Protocol):
    def walk(self, reference: str, *, up: bool = True, depth: int = 50) -> LineageGraph:
        """What a version was made from (``up``), or what was made from it."""


class Events(Protocol):
    """The outbox: events in the order in which they became true."""

    def after(self, sequence: int, *, limit: int = 100) -> list[Event]: ...

    def get(self, event_id: str) -> Event:
        """An event by its id, or by the beginning of it that no other has. Raises `NotFound`."""

    def tail(self, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest of them first."""

    def position(self) -> StreamPosition: ...

    def mark_relayed(self, sequence: int, event_id: str, *, incarnation: int) -> None:
        """Record that all events up to ``sequence`` are in the stream.

        It is called after the broker's acknowledgement, by a registry acting with the relay's authority.
        """

    def begin_incarnation(self, *, relayed: int = 0, relayed_id: str | None = None) -> StreamPosition:
        """Start a new stream, because the old one was lost or cut short; it is filled from ``relayed`` on."""

    def wait(self, sequence: int, timeout: float) -> bool:
        """Block until there may be an event after ``sequence`` (True), or ``timeout`` seconds (False)."""


class Leases(Protocol):
    """Exclusive work, by lease and epoch."""

    def acquire(self, name: str, holder: str, *, seen: Lease | None = None) -> Lease | None:
        """Take a free lease; or, with ``seen``, take it over from a holder who has not beaten since.

        None: somebody holds it (or has beaten since ``seen``).
        """

    def get(self, name: str) -> Lease | None:
        """Who holds it now; None if it is free."""

    def beat(self, leases: Collection[Lease]) -> list[Lease]:
        """Say that the holder lives. Those still held come back with a higher beat; lost ones do not."""

    def release(self, lease: Lease) -> None:
        """Free it, if it is still ours."""

    def held(self, prefix: str) -> list[Lease]:
        """All leases that are held under a prefix such as ``run/``."""


class Deliveries(Protocol):
    """Events on their way to subscriptions. A *consumer* is a durable reader that serves some of them."""

    def serve(self, consumer: str, subscriptions: Mapping[str, datetime | None]) -> Mapping[str, int]:
        """Make these the subscriptions that ``consumer`` serves.

        Given with each is the time since which it counts (None: now). A consumer that is new begins with
        what comes next. Open deliveries of subscriptions that are no longer served are stopped. Returns the
        sequence after which events are for each subscription.
        """

    def cursor(self, consumer: str) -> int:
        """The sequence up to which the consumer has recorded all its deliveries."""

    def record(
        self, consumer: str, arrivals: Sequence[Arrival], *, upto: Event, incarnation: int | None = None
    ) -> None:
        """Write the deliveries that all events up to ``upto`` led to, and move the cursor there.

        What is recorded already stays as it is. With `Access.LATEST` older ones of a key are superseded.

        Raises:
            StaleAuthority: ``upto`` is not an event of this database, or ``incarnation`` is not the stream's.
        """

    def claim(self, consumer: str, *, epoch: int, limit: int) -> list[Delivery]:
        """Take up to ``limit`` deliveries whose turn it is, and count an attempt of each.

        A delivery's turn comes when it is due and no earlier one of its subscription and key is open. Those
        that ran under a lower epoch are taken over.
        """

    def end(
        self,
        delivery: Delivery,
        state: DeliveryState,
        *,
        error: str | None = None,
        delay: float = 0.0,
        waits_for: str | None = None,
        counted: bool = True,
    ) -> None:
        """Record how an attempt ended; a pending one is due again after ``delay`` seconds.

        One that is not ``counted`` gives the attempt back.

        Raises:
            StaleAuthority: it has been taken over under a higher epoch.
        """

    def next_due(self, consumer: str) -> float | None:
        """Seconds until a delivery's turn comes, 0 or less when one's has come; None if none is pending."""

    def waited_for(self, consumer: str) -> list[str]:
        """The aliases, as ``artifact:alias``, whose release held deliveries wait for."""

    def resume(self, consumer: str, alias: str) -> int:
        """Make pending what waits for ``artifact:alias``; how many that were."""

    def get(self, delivery_id: str) -> Delivery:
        """A delivery by its id, or by the beginning of it that no other has. Raises `DeliveryNotFound`."""

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        subscription: str | None = None,
        event: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Newest first."""

    def retry(self, delivery_id: str) -> Delivery:
        """Give a dead delivery a new round of attempts, under its own id.

        Raises:
            DeliveryNotFound, DeliveryRefused: it is not dead.
        """

    def replay(self, event: Event, subscription: str) -> Collection[Delivery]:
        """Deliver an event once more, as a new delivery, at every consumer that serves the subscription."""


class Deployments(Protocol):
    """Rollouts, routes and blocks of deployments, written by the controller that holds the lease."""

    def begin(self, target: Target) -> Rollout:
        """Start to bring a target live; what was started for the same target is given back.

        An open rollout of the same served name, and promotions of the alias that nobody began a rollout
        for, end as superseded in the same transaction.
        """

    def flip(self, rollout_id: str) -> Route:
        """Decide that the served name is answered by the rollout's version; the table's generation rises."""

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

    def rollouts(self, deployment: str | None = None, *, limit: int = 50) -> list[Rollout]:
        """Newest first."""

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

    def unblock(self, deployment: str, digest: str) -> None: ...

    def observe(self, deployment: str, replicas: Sequence[ReplicaStatus]) -> None:
        """Record what was last seen of all replicas of a deployment."""

    def replicas(self, deployment: str | None = None) -> list[ReplicaStatus]:
        """What was last seen of replicas."""

    def users(self, digest: str) -> list[str]:
        """Deployments that need a content: routed to, kept for a rollback, or being rolled out."""


class Apps(Protocol):
    """Declared objects."""

    def plan(self, app: str, objects: Sequence[AppObject]) -> list[AppChange]:
        """What applying would add, change, remove and keep."""

    def apply(self, app: str, objects: Sequence[AppObject], *, plan: Sequence[AppChange]) -> None:
        """Make the app's declared objects exactly these, in one transaction, if ``plan`` is still true."""

    def objects(self, kind: str | None = None, *, app: str | None = None) -> list[AppObject]: ...


class Runs(Protocol):
    """The run journal."""

    def queue(self, request: RunRequest) -> Run:
        """Ask for a run. Its inputs are resolved now. Asked for again with its ``key`` it is the same run."""

    def get(self, run: str) -> Run:
        """A run by its id, or by the beginning of it that no other has. Raises `RunNotFound`."""

    def list(
        self,
        *,
        state: RunState | None = None,
        task: str | None = None,
        parent: str | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Newest first."""

    def attempts(self, run: str) -> Sequence[Attempt]:
        """Every execution of a run so far, the first one first."""

    def claim(
        self,
        worker: str,
        *,
        free: Resources,
        total: Resources,
        pool: str = "default",
        only: str | None = None,
        limit: int = 16,
        lenient: bool = False,
    ) -> Sequence[Claim]:
        """Take the queued runs that fit into ``free``, in queue order.

        ``only`` is the id of the one run that is taken, with its steps. With ``lenient`` a run that asks for
        more than ``total`` counts as if it asked for that.
        """

    def set_roles(self, run: str, roles: Mapping[str, Role]) -> None:
        """Say what a run's inputs are to its outputs, where who asked for it by the task's name could not."""

    def note(self, run: str, attempt: int, environment: Mapping[str, Any]) -> None:
        """Record with which versions and hardware an attempt runs."""

    def finish(self, run: str, outputs: Sequence[NewOutput], *, result: Any = None) -> Run:
        """Make stored contents the run's outputs and end it: lineage, publication, event and lease in one.

        Called by a registry acting with the run's authority. Raises `StaleAuthority`.
        """

    def end(self, run: str, cause: Cause, error: RunError | None = None) -> Run:
        """End the attempt that runs, without success. The run is queued again where that is its rule."""

    def expire(self) -> Sequence[Run]:
        """Fail the queued runs that have waited longer than they may; those that this call has failed."""

    def cancel(self, run: str) -> Run:
        """End a run and its steps for good. What runs loses its lease first: nothing of it comes after."""

    def recover(self, run: str, *, code: str | None = None, take_over: bool = False) -> Run:
        """Queue a run again that failed or was interrupted: its next attempt reuses the steps that are done.

        ``code`` is the digest of another bundle to go on with. With ``take_over`` one that lives loses its
        lease and begins again. Raises `RunRefused`.
        """

    def append_log(self, run: str, attempt: int, data: bytes) -> None:
        """Add to what the run printed."""

    def log(self, run: str, *, after: int = 0, limit: int = 100) -> Sequence[LogPart]:
        """What a run's attempts printed, after the part numbered ``after``."""


class Checkpoints(Protocol):
    """States of trainings that a run's attempts leave to each other."""

    def save(
        self,
        run: str,
        step: int,
        path: Path,
        *,
        series: str = TRAINING,
        keep: int = 2,
        metadata: Mapping[str, Any] | None = None,
    ) -> SavedCheckpoint:
        """Store a folder or file as the state of ``run`` at ``step``; it is the newest one from then on.

        Nothing of it is seen before all of it is stored. The ``keep`` newest of its series stay. Called by a
        registry acting with the run's authority.

        Raises:
            StaleAuthority: another attempt, or nobody, carries the run out now. Nothing was recorded.
            RunRefused: called on behalf of anybody else.
        """

    def of(self, run: str, series: str | None = None) -> Sequence[SavedCheckpoint]:
        """What is kept of a run's checkpoints, series by series, the newest first."""

    def mark_damaged(self, checkpoint: SavedCheckpoint, reason: str) -> None:
        """Record that a checkpoint cannot be read, so that it does not count among those that are kept.

        Chunks with wrong bytes are taken out of the store; the next checkpoint that has them sends them
        again.
        """


class Steps(Protocol):
    """Steps of pipelines: runs at a place in another run. All but `of` is for their driver and its worker."""

    def of(self, run: str) -> Sequence[Run]:
        """What a run has asked for, in the order in which it did."""

    def ask(self, request: RunRequest) -> Run:
        """The step at ``request.place`` of ``request.parent``: the one that is there, or else a new one.

        A new one with a ``cache_key`` is reused from a run that made the same, or waits for one that does.
        """

    def settle(self, run: str, *, impatient: bool = False) -> Run:
        """A step that waits for another's cached work: reuse that, or do it, when the other has ended.

        ``impatient``: do it although the other is not done, because nobody seems to carry that one out.
        """

    def again(self, run: str, request: RunRequest) -> Run:
        """Queue a step once more that came to nothing in an earlier execution of its parent."""

    def ended(self, runs: Collection[str]) -> Sequence[Run]:
        """Those of the runs that have ended."""

    def awaiting(self, runs: Collection[str]) -> set[str]:
        """Those of the runs that have steps which live: they wait, and need no capacity meanwhile."""

    def record(
        self, request: RunRequest, began: datetime, *, result: Any = None, error: RunError | None = None
    ) -> Any:
        """Write down a step that its driver has done itself; the result, or that which was there before."""

    def fork(self, request: RunRequest, kept: Sequence[str]) -> Run:
        """Queue a run that has the steps ``kept`` (run ids) of another already."""


class Workers(Protocol):
    """Processes that take runs. What stands here is for finding them; authority is in the runs' leases."""

    def register(self, worker: Worker) -> None: ...

    def seen(self, worker: str) -> None:
        """Say that it lives."""

    def leave(self, worker: str) -> None: ...

    def all(self, *, pool: str | None = None) -> Sequence[Worker]:
        """Newest first, those that have gone without a word for an hour left out."""


class Registry(Protocol):
    """One registry. Facets share its origin: on whose behalf, under which lease."""

    @property
    def settings(self) -> Settings: ...
    @property
    def database_id(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def promotions(self) -> Promotions: ...
    @property
    def evaluations(self) -> Evaluations: ...
    @property
    def lineage(self) -> Lineage: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def deployments(self) -> Deployments: ...
    @property
    def apps(self) -> Apps: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def workers(self) -> Workers: ...

    def acting(self, origin: Origin) -> Registry:
        """The same registry on another's behalf; every write then checks the origin's authority."""

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside the block, by this thread, become true together or not at all."""

    def close(self) -> None: ...
