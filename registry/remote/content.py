"""What goes with files: pushing, pulling and reading through a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from registry.checkpoints import TRAINING, SavedCheckpoint
from registry.content.cache import ChunkCache
from registry.content.checked import checked
from registry.content.download import materialise
from registry.content.manifest import Manifest
from registry.content.progress import Progress
from registry.content.upload import Uploaded, upload
from registry.errors import InvalidInput, KindMismatch, RunRefused
from registry.references import check_name
from registry.remote.blobs import RemoteBlobs
from registry.remote.facets import facet_class
from registry.remote.transport import Transport
from registry.runs import lease_name
from registry.settings import Settings
from registry.values import Artifact, Parent, Published, Stored, Version
from registry.wire.operation import adapter_of

_PIECE = 32 * 2**20  # bytes of a file that are read at once
_VERIFYING = 1800.0  # seconds: the server reads large files for their digests before it records them

_PUBLISHED = adapter_of(Published)
_STORED = adapter_of(Stored)
_SAVED = adapter_of(SavedCheckpoint)


class RemoteFiles:
    """Chunks, their cache on this machine, and manifests. Shared by all facets of all origins."""

    def __init__(self, settings: Settings, transport: Transport, *, direct: bool) -> None:
        self._settings = settings
        self._blobs = RemoteBlobs(transport, direct=direct)

    @cached_property
    def _cache(self) -> ChunkCache:
        return ChunkCache(self._settings.cache_folder, self._settings.cache_bytes)

    def send(self, path: Path, kind: str, progress: Progress | None) -> tuple[Uploaded, tuple[str, ...]]:
        """Check files against their kind and send what the server lacks of them."""
        found, _ = checked(path, kind)
        return upload(found, self._blobs, progress=progress), tuple(found.notices)

    def fetch(self, manifest: Manifest, destination: Path, progress: Progress | None) -> None:
        materialise(manifest, destination, self._blobs, cache=self._cache, progress=progress)

    def close(self) -> None:
        self._blobs.close()


class RemoteCatalog(facet_class("catalog")):  # type: ignore[misc]
    """`registry.protocol.Catalog` over HTTP."""

    def __init__(self, transport: Transport, files: RemoteFiles) -> None:
        super().__init__(transport)
        self._files = files

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
        kind = self._kind_for(check_name(name), kind)
        sent, notices = self._files.send(path, kind, progress)
        body = {
            "kind": kind,
            "manifest": json.loads(sent.manifest.to_json()),
            "parents": [{"reference": each.reference, "role": each.role.value} for each in parents],
            "metadata": None if metadata is None else dict(metadata),
            "bytes_sent": sent.bytes_sent,
        }
        answer = self._transport.request(
            "POST",
            f"/artifacts/{quote(name)}/versions",
            body=json.dumps(body).encode(),
            repeatable=False,
            timeout=_VERIFYING,
        )
        published = _PUBLISHED.validate_json(answer.content)
        return Published(
            published.version, published.created, published.bytes_total, sent.bytes_sent, notices
        )

    def _kind_for(self, name: str, kind: str | None) -> str:
        """Asked before anything is sent: nobody should wait for an upload to learn of a wrong kind."""
        there: list[Artifact] = self.artifacts(name, limit=1)
        if not there and kind is None:
            raise InvalidInput(
                f"There is no artifact '{name}' yet, so its kind is not known.", remedy="Say it with --kind."
            )
        if there and kind is not None and there[0].kind != kind:
            raise KindMismatch(
                f"'{name}' holds versions of kind {there[0].kind}, not {kind}.",
                remedy="Publish under another name.",
            )
        return there[0].kind if there else str(kind)

    def store(self, path: Path, kind: str, *, progress: Progress | None = None) -> Stored:
        sent, notices = self._files.send(path, kind, progress)
        body = {
            "kind": kind,
            "manifest": json.loads(sent.manifest.to_json()),
            "bytes_sent": sent.bytes_sent,
        }
        answer = self._transport.request(
            "POST", "/contents", body=json.dumps(body).encode(), timeout=_VERIFYING
        )
        stored = _STORED.validate_json(answer.content)
        return Stored(stored.kind, stored.digest, stored.bytes_total, sent.bytes_sent, notices)

    def manifest(self, digest: str) -> Manifest:
        answer = self._transport.request("GET", f"/contents/{quote(digest, safe=':')}/manifest")
        return Manifest.from_json(answer.content)

    def materialise(self, digest: str, destination: Path, *, progress: Progress | None = None) -> None:
        self._files.fetch(self.manifest(digest), destination, progress)

    def pull(self, reference: str, destination: Path, *, progress: Progress | None = None) -> Version:
        version: Version = self.resolve(reference)
        self.materialise(version.digest, destination, progress=progress)
        return version

    def read(self, digest: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        address = f"/contents/{quote(digest, safe=':')}/files/{quote(path)}"
        pieces: list[bytes] = []
        while length is None or length > 0:
            wanted = _PIECE if length is None else min(length, _PIECE)
            params = {"start": str(start), "length": str(wanted)}
            piece = self._transport.request("GET", address, params=params).content
            pieces.append(piece)
            if len(piece) < wanted:
                break
            start += wanted
            length = None if length is None else length - wanted
        return b"".join(pieces)


class RemoteCheckpoints(facet_class("checkpoints")):  # type: ignore[misc]
    """`registry.protocol.Checkpoints` over HTTP."""

    def __init__(self, transport: Transport, files: RemoteFiles) -> None:
        super().__init__(transport)
        self._files = files

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
        origin = self._transport.origin
        if origin is None or origin.authority is None or origin.authority.lease != lease_name(run):
            raise RunRefused(
                f"Run {run} saves its checkpoints itself.", remedy="Save them from inside its task."
            )
        sent, _ = self._files.send(path, "checkpoint", None)
        body = {
            "step": step,
            "manifest": json.loads(sent.manifest.to_json()),
            "series": series,
            "keep": keep,
            "metadata": None if metadata is None else dict(metadata),
            "bytes_sent": sent.bytes_sent,
        }
        answer = self._transport.request(
            "POST",
            f"/runs/{quote(run)}/checkpoints",
            body=json.dumps(body).encode(),
            repeatable=False,
            timeout=_VERIFYING,
        )
        saved: SavedCheckpoint = _SAVED.validate_json(answer.content)
        return saved


class RemoteEvents(facet_class("events")):  # type: ignore[misc]
    """`registry.protocol.Events` over HTTP."""

    def wait(self, sequence: int, timeout: float) -> bool:
        left = timeout
        while True:
            asked = max(0.0, min(left, 25.0))
            params = {"sequence": str(max(0, sequence)), "timeout": f"{asked:.3f}"}
            answer = self._transport.request("GET", "/stream/wait", params=params, timeout=asked + 30)
            left -= asked
            if answer.json() or left <= 0:
                return bool(answer.json())
