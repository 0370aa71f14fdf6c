"""The `Registry` protocol: all that other rooms may ask of the registry.

It is cut by use case into facets, so that no class grows to know everything. `registry.connect()` returns an
implementation over the database; another over HTTP may take its place without its callers noticing. All calls
are synchronous and thread-safe.
"""

from registry.protocol.apps import Apps
from registry.protocol.catalog import Catalog
from registry.protocol.deployments import Deployments
from registry.protocol.events import Deliveries, Events
from registry.protocol.identity import Identity
from registry.protocol.leases import Leases
from registry.protocol.measures import Measures
from registry.protocol.operations import ClientKeys, Operations
from registry.protocol.promotions import Evaluations, Lineage, Promotions
from registry.protocol.registry import Registry
from registry.protocol.runs import Checkpoints, Runs, Steps, Workers

__all__ = [
    "Apps",
    "Catalog",
    "Checkpoints",
    "ClientKeys",
    "Deliveries",
    "Deployments",
    "Evaluations",
    "Events",
    "Identity",
    "Leases",
    "Lineage",
    "Measures",
    "Operations",
    "Promotions",
    "Registry",
    "Runs",
    "Steps",
    "Workers",
]
