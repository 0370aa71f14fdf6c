"""One registry: all facets over the same store, on somebody's behalf."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from registry.protocol.apps import Apps
from registry.protocol.catalog import Catalog
from registry.protocol.deployments import Deployments
from registry.protocol.events import Deliveries, Events
from registry.protocol.identity import Identity
from registry.protocol.leases import Leases
from registry.protocol.measures import Measures
from registry.protocol.operations import ClientKeys, Operations
from registry.protocol.promotions import Evaluations, Lineage, Promotions
from registry.protocol.runs import Checkpoints, Runs, Steps, Workers
from registry.values import Origin

if TYPE_CHECKING:
    from registry.settings import Settings


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
    def operations(self) -> Operations: ...
    @property
    def client_keys(self) -> ClientKeys: ...
    @property
    def apps(self) -> Apps: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def measures(self) -> Measures: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def identity(self) -> Identity: ...

    def acting(self, origin: Origin) -> Registry:
        """The same registry on another's behalf; every write then checks the origin's authority."""

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside the block, by this thread, become true together or not at all."""

    def close(self) -> None: ...
