"""Settings: the only place where the registry reads the environment."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from registry.errors import InvalidSetting


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class Settings(BaseSettings):
    """Every ``PODIUM_*`` setting with its default. Nothing needs to be set on one machine."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_", extra="ignore", frozen=True)

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.podium"),
        validate_default=True,
        description="Folder of the local database, blobs, cache, logs",
    )
    url: SecretStr | None = Field(
        default=None,
        description="Database: sqlite:///PATH or postgresql://...; SQLite in PODIUM_HOME unless set",
    )
    blobs: str | None = Field(
        default=None,
        description="Blob store: file:///PATH or s3://BUCKET/PREFIX; a folder in PODIUM_HOME unless set",
    )
    nats: SecretStr | None = Field(
        default=None, description="NATS servers: nats://...; a server of podium's own unless set"
    )
    nats_replicas: int = Field(
        default=1, ge=1, le=5, description="Copies of the event stream in a NATS cluster; 3 outlive a server"
    )
    actor: str | None = Field(
        default=None, description="Who you are in the history; your login name unless set"
    )
    rollback_window: int = Field(
        default=30, ge=0, description="Days for which a version that an alias held cannot be deleted"
    )
    cache_bytes: int = Field(
        default=20 * 2**30, ge=0, description="Most bytes that the chunk cache of a remote store keeps"
    )
    lease_seconds: float = Field(
        default=15.0, gt=0, description="Seconds without a beat after which a lease's holder counts as dead"
    )

    @property
    def database_url(self) -> str:
        return self.url.get_secret_value() if self.url else f"sqlite:///{self.home / 'podium.db'}"

    @property
    def blobs_url(self) -> str:
        return self.blobs or f"file://{self.home / 'blobs'}"

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
            f"{variable} cannot be used: {first['msg']}.", remedy=f"Correct or unset {variable}."
        ) from error
