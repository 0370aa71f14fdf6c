"""Content whose chunks somebody else has sent: checked, and then recorded as if it had been uploaded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from registry.content.checked import kind_of
from registry.content.kinds import Kind
from registry.content.manifest import Manifest
from registry.errors import InvalidContent
from registry.references import check_name
from registry.reports import read_report
from registry.store import publishing, values
from registry.store.files import FileStore
from registry.store.session import Session
from registry.store.values import StoredFiles
from registry.values import Parent, Published, Stored


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
        missing = self._files.blobs.missing(list(manifest.chunks()))
        if missing:
            raise InvalidContent(
                f"{len(missing)} chunks have not been sent, such as {min(missing)}.",
                remedy="Send what is missing, and then the manifest again.",
                missing=sorted(missing)[:100],
            )
        report = None
        if kind == Kind.REPORT:
            report = read_report(lambda name: self._files.read_entry(manifest.get(name)))
        return StoredFiles(kind, manifest, (), report, bytes_sent)

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
