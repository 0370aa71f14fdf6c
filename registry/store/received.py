"""Content whose chunks somebody else has sent: checked, and then recorded as if it had been uploaded here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from registry.content.checked import checked, kind_of
from registry.content.download import materialise
from registry.content.kinds import Kind
from registry.content.manifest import FileEntry, Manifest
from registry.errors import InvalidContent, NotFound
from registry.references import check_name
from registry.reports import read_report
from registry.store import publishing, values
from registry.store.files import FileStore
from registry.store.session import Session
from registry.store.values import StoredFiles
from registry.values import Parent, Published, Stored

#: Kinds that are served or read by podium itself: their files are checked here too, not by the client alone.
_VALIDATED = frozenset({Kind.ADAPTER, Kind.MODEL, Kind.REPORT})
_MOST_VALIDATED = 2**30  # bytes: larger ones would be copied for longer than a client waits


class ReceivedContent:
    """The second half of a push: the chunks are in the store, and a manifest says what they make."""

    def __init__(self, session: Session, files: FileStore) -> None:
        self._session = session
        self._files = files

    def check(self, kind: str, manifest: Manifest, bytes_sent: int = 0) -> StoredFiles:
        """Files that can be recorded.

        Raises:
            InvalidContent: chunks have not been sent yet, or a report cannot be read.
        """
        kind_of(kind)
        if not manifest.files:
            raise InvalidContent("A manifest without files cannot be published.", remedy="Push some files.")
        chunks = manifest.chunks()
        missing = self._files.blobs.missing(list(chunks), {key: chunk.size for key, chunk in chunks.items()})
        if missing:
            raise InvalidContent(
                f"{len(missing)} chunks have not been sent, such as {min(missing)}.",
                remedy="Send what is missing, and then the manifest again.",
                missing=sorted(missing)[:100],
            )
        if not self._is_known(manifest):
            self._verify(Kind(kind), manifest)
        report = None
        if kind == Kind.REPORT:
            report = read_report(lambda name: self._files.read_entry(manifest.get(name)))
        return StoredFiles(kind, manifest, (), report, bytes_sent)

    def _is_known(self, manifest: Manifest) -> bool:
        """Whether just this is recorded already, and was verified then."""
        try:
            return self._files.manifest(manifest.digest) == manifest
        except NotFound:
            return False

    def _verify(self, kind: Kind, manifest: Manifest) -> None:
        """Whoever sends a manifest may be wrong, or lie: another's content must not be had under its digest.

        A chunk is what its key says, so only files of several chunks have to be read for their digests.
        """
        for entry in manifest.files:
            if len(entry.chunks) != 1:
                self._verify_digest(entry)
        if kind in _VALIDATED and manifest.size <= _MOST_VALIDATED:
            self._validate(kind, manifest)

    def _verify_digest(self, entry: FileEntry) -> None:
        hashed = hashlib.sha256()
        for chunk in entry.chunks:
            buffer = memoryview(bytearray(chunk.size))
            self._files.blobs.read_into(chunk.key, buffer)
            hashed.update(buffer)
        if hashed.hexdigest() != entry.sha256:
            raise InvalidContent(
                f"The chunks of {entry.path[:200]} do not make the file that its digest says.",
                remedy="It changed while it was pushed, or the manifest is wrong: push again.",
                path=entry.path,
            )

    def _validate(self, kind: Kind, manifest: Manifest) -> None:
        """The checks of the kind, which a client makes before it sends anything."""
        with TemporaryDirectory(prefix="podium-received-") as name:
            folder = Path(name) / "content"
            materialise(manifest, folder, self._files.blobs)
            kept, _ = checked(folder, kind.value)
            left_out = {entry.path for entry in manifest.files} - {file.path for file in kept.files}
        if left_out:
            raise InvalidContent(
                f"{min(left_out)[:200]} does not belong to content of kind {kind.value}.",
                remedy="Push with 'podium push', which leaves it out.",
                path=min(left_out),
            )

    def publish(
        self,
        name: str,
        kind: str | None,
        manifest: Manifest,
        parents: Sequence[Parent],
        metadata: Mapping[str, Any] | None,
        bytes_sent: int,
    ) -> Published:
        """`Catalog.publish` of what was sent."""
        check_name(name)
        with self._session.reading() as reader:
            kind = publishing.kind_for(reader, name, kind)
        files = self.check(kind, manifest, bytes_sent)
        with self._session.writing() as transaction:
            version, created = publishing.publish_files(
                transaction, self._session, name, files, parents, metadata=metadata
            )
        return Published(version, created, manifest.size, bytes_sent)

    def store(self, kind: str, manifest: Manifest, bytes_sent: int) -> Stored:
        """`Catalog.store` of what was sent."""
        files = self.check(kind, manifest, bytes_sent)
        with self._session.writing() as transaction:
            values.put_content(transaction, manifest)
        return Stored(kind, files.digest, manifest.size, bytes_sent)
