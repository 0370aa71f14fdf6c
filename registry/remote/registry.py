"""`RemoteRegistry`: the `Registry` protocol over a server of podium."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import httpx

from registry.remote.content import RemoteCatalog, RemoteCheckpoints, RemoteEvents, RemoteFiles
from registry.remote.facets import facet_class
from registry.remote.transport import Transport
from registry.settings import Settings
from registry.values import Origin

if TYPE_CHECKING:
    from registry.protocol import (
        Apps,
        Catalog,
        Checkpoints,
        ClientKeys,
        Deliveries,
        Deployments,
        Evaluations,
        Events,
        Identity,
        Leases,
        Lineage,
        Measures,
        Operations,
        Promotions,
        Runs,
        Steps,
        Workers,
    )


class _Server:
    """What is known of a server, asked for when it is first needed, and shared by all origins."""

    def __init__(self, settings: Settings, transport: Transport) -> None:
        self._local = settings
        self._transport = transport

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self._transport.request("GET", "/server").json()
        return facts

    @cached_property
    def settings(self) -> Settings:
        """Those of this machine, with the term of leases that the server keeps."""
        return self._local.model_copy(update={"lease_seconds": float(self.facts["lease_seconds"])})

    @cached_property
    def files(self) -> RemoteFiles:
        return RemoteFiles(self._local, self._transport.acting(None), direct=bool(self.facts["direct"]))

    def close(self) -> None:
        if "files" in self.__dict__:
            self.files.close()
        self._transport.close()


class RemoteRegistry:
    """The registry of whoever has a token."""

    def __init__(self, server: _Server, transport: Transport) -> None:
        self._server = server
        self._transport = transport

    @classmethod
    def open(
        cls, settings: Settings, *, actor: str | None = None, http: httpx.BaseTransport | None = None
    ) -> RemoteRegistry:
        """Over the server that ``settings.server`` names. Nothing is asked yet.

        ``actor`` counts where the token is an admin's; else the server knows whose it is.

        Raises:
            Unauthorized: there is no token.
        """
        assert settings.server is not None
        token = settings.token.get_secret_value() if settings.token else None
        transport = Transport.to(settings.server, token, http=http)
        named = actor or (settings.actor_name if settings.actor else None)
        acting = transport.acting(Origin(named)) if named else transport
        return cls(_Server(settings, acting), acting)

    @property
    def settings(self) -> Settings:
        return self._server.settings

    @property
    def database_id(self) -> str:
        return str(self._server.facts["database_id"])

    @property
    def origin(self) -> Origin:
        return self._transport.origin or Origin(str(self._server.facts["actor"]))

    @cached_property
    def catalog(self) -> Catalog:
        return cast("Catalog", RemoteCatalog(self._transport, self._server.files))

    @cached_property
    def promotions(self) -> Promotions:
        return cast("Promotions", self._facet("promotions"))

    @cached_property
    def evaluations(self) -> Evaluations:
        return cast("Evaluations", self._facet("evaluations"))

    @cached_property
    def lineage(self) -> Lineage:
        return cast("Lineage", self._facet("lineage"))

    @cached_property
    def events(self) -> Events:
        return cast("Events", RemoteEvents(self._transport))

    @cached_property
    def leases(self) -> Leases:
        return cast("Leases", self._facet("leases"))

    @cached_property
    def deliveries(self) -> Deliveries:
        return cast("Deliveries", self._facet("deliveries"))

    @cached_property
    def deployments(self) -> Deployments:
        return cast("Deployments", self._facet("deployments"))

    @cached_property
    def operations(self) -> Operations:
        return cast("Operations", self._facet("operations"))

    @cached_property
    def client_keys(self) -> ClientKeys:
        return cast("ClientKeys", self._facet("client_keys"))

    @cached_property
    def apps(self) -> Apps:
        return cast("Apps", self._facet("apps"))

    @cached_property
    def runs(self) -> Runs:
        return cast("Runs", self._facet("runs"))

    @cached_property
    def checkpoints(self) -> Checkpoints:
        return cast("Checkpoints", RemoteCheckpoints(self._transport, self._server.files))

    @cached_property
    def measures(self) -> Measures:
        return cast("Measures", self._facet("measures"))

    @cached_property
    def steps(self) -> Steps:
        return cast("Steps", self._facet("steps"))

    @cached_property
    def workers(self) -> Workers:
        return cast("Workers", self._facet("workers"))

    @cached_property
    def identity(self) -> Identity:
        return cast("Identity", self._facet("identity"))

    def _facet(self, name: str) -> object:
        return facet_class(name)(self._transport)

    def acting(self, origin: Origin) -> RemoteRegistry:
        return RemoteRegistry(self._server, self._transport.acting(origin))

    def transaction(self) -> AbstractContextManager[None]:
        return self._transport.in_transaction()

    def close(self) -> None:
        self._server.close()
