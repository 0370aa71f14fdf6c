"""Settings: the only place where the registry reads the environment."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from registry.errors import InvalidSetting

_SQLITE = "sqlite:///"
_BROKER_SCHEMES = {"nats", "tls", "ws", "wss"}
_SERVERS = ("http://", "https://")
_LISTEN = "127.0.0.1:8420"
_LONGEST_ACTOR = 200  # characters


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("there is no such user's home") from error


def _lasting(url: SecretStr) -> SecretStr:
    """A database that other processes find too, whatever folder they work in."""
    text = url.get_secret_value()
    if text.rstrip("/") == "sqlite:" or text == f"{_SQLITE}:memory:":
        raise ValueError("it names no file, and what is kept in memory is lost when the command ends")
    if text.startswith(_SERVERS):
        return _address(text)
    path = text.removeprefix(_SQLITE)
    if path == text or path.startswith("file:"):
        return url
    return SecretStr(_SQLITE + str(Path(path).absolute()))


def _address(text: str) -> SecretStr:
    """A podium server's address, without what it does not need."""
    try:
        parts = urlsplit(text)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("a server's address is https://HOST:PORT, and its token stands in PODIUM_TOKEN")
    return SecretStr(text.rstrip("/"))


def _servers(urls: SecretStr) -> SecretStr:
    for url in urls.get_secret_value().split(","):
        try:
            parts = urlsplit(url if "//" in url else f"nats://{url}")
            named = parts.scheme in _BROKER_SCHEMES and parts.hostname and parts.port != 0
        except ValueError:
            named = False
        if not named:
            raise ValueError("it must be nats://HOST:PORT, or several of that with commas")
    return urls


def _listening(address: str) -> str:
    """HOST:PORT; a port alone is on the loopback interface."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise ValueError("it must be HOST:PORT, or a port on 127.0.0.1")
    return f"{host or '127.0.0.1'}:{port}"


def _nameable(actor: str) -> str:
    if len(actor) > _LONGEST_ACTOR or not actor.isprintable():
        raise ValueError(f"a name is at most {_LONGEST_ACTOR} printable characters")
    return actor


class Settings(BaseSettings):
    """Every ``PODIUM_*`` setting with its default. Nothing needs to be set on one machine."""

    model_config = SettingsConfigDict(
        env_prefix="PODIUM_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.podium"),
        validate_default=True,
        description="Folder of the local database, blobs, cache, logs",
    )
    url: Annotated[SecretStr, AfterValidator(_lasting)] | None = Field(
        default=None,
        description="Database or server: sqlite:///PATH, postgresql://... or https://HOST; SQLite unless set",
    )
    token: SecretStr | None = Field(
        default=None, description="What a server knows you by, where PODIUM_URL names one"
    )
    blobs: str | None = Field(
        default=None,
        description="Blob store: file:///PATH or s3://BUCKET/PREFIX; a folder in PODIUM_HOME unless set",
    )
    listen: Annotated[str, AfterValidator(_listening)] | None = Field(
        default=None, description="Where the server listens: HOST:PORT; 127.0.0.1:8420 unless set"
    )
    nats: Annotated[SecretStr, AfterValidator(_servers)] | None = Field(
        default=None, description="NATS servers: nats://...; a server of podium's own unless set"
    )
    nats_replicas: int = Field(
        default=1, ge=1, le=5, description="Copies of the event stream in a NATS cluster; 3 outlive a server"
    )
    actor: Annotated[str, AfterValidator(_nameable)] | None = Field(
        default=None, description="Who you are in the history; your login name unless set"
    )
    rollback_window: int = Field(
        default=30,
        ge=0,
        le=36_500,
        description="Days for which a version that an alias held cannot be deleted",
    )
    audit_days: int = Field(
        default=400,
        ge=1,
        le=36_500,
        description="Days for which a server keeps lines of the audit trail",
    )
    cache_bytes: int = Field(
        default=20 * 2**30, ge=0, description="Most bytes that the chunk cache of a remote store keeps"
    )
    metrics: Annotated[str, AfterValidator(_listening)] | None = Field(
        default=None,
        description="HOST:PORT where what runs deployments answers Prometheus; nowhere unless set",
    )
    lease_seconds: float = Field(
        default=15.0,
        gt=0,
        le=86_400,
        description="Seconds without a beat after which a lease's holder counts as dead",
    )

    notify_secret: SecretStr | None = Field(
        default=None, description="Signs the webhooks that triggers send: whsec_ and base64"
    )
    notify_networks: str = Field(
        default="", description="Networks that webhooks may go to beside the public internet, with commas"
    )
    haproxy: str | None = Field(default=None, description="HAProxy's executable; found on PATH unless set")

    @property
    def database_url(self) -> str:
        return self.url.get_secret_value() if self.url else f"{_SQLITE}{self.home / 'podium.db'}"

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port at which the server listens."""
        host, _, port = (self.listen or _LISTEN).rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def server(self) -> str | None:
        """The address of podium's server, where that is what the settings name."""
        address = self.url.get_secret_value() if self.url else ""
        return address if address.startswith(_SERVERS) else None

    @property
    def blobs_url(self) -> str:
        return self.blobs or f"file://{quote(os.fsencode(self.home / 'blobs'))}"

    @property
    def cache_folder(self) -> Path:
        return self.home / "cache"

    @property
    def actor_name(self) -> str:
        return f"user:{self.actor or _login()}"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"  # a container user without an entry in the password file


def load_settings() -> Settings:
    """The settings of this process.

    Raises:
        InvalidSetting: a variable has a value that cannot be used; the value itself is not repeated.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        variable = "PODIUM_" + str(first["loc"][0]).upper()
        raise InvalidSetting(
            f"{variable} cannot be used: {first['msg'].removeprefix('Value error, ')}.",
            remedy=f"Correct or unset {variable}.",
        ) from error
