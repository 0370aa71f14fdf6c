"""From the address of a store to the store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from registry.content.blobs.local import LocalStore
from registry.content.blobs.store import BlobStore
from registry.errors import InvalidSetting

_SHAPES = "file:///absolute/folder or s3://bucket/prefix"


def open_store(url: str) -> BlobStore:
    """Open the store at ``url``; a folder is made, a bucket must be there.

    S3 takes endpoint, region and credentials from where boto3 does, such as ``AWS_PROFILE``.

    Raises:
        InvalidSetting: the address is not of a kind that podium knows.
        StoreUnavailable: the folder cannot be made. A bucket is only asked when it is used.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username or parts.password:
        raise _invalid(f"{parts.scheme}://...", "has a query, a fragment or credentials in it")
    if parts.scheme == "file":
        return LocalStore(_folder(url, parts.netloc, parts.path))
    if parts.scheme == "s3":
        from registry.content.blobs.s3 import S3Store  # boto3 takes long to import, and a laptop needs none

        if not parts.netloc:
            raise _invalid(url, "names no bucket")
        return S3Store(parts.netloc, parts.path.strip("/"))
    raise _invalid(url, "is not the address of a blob store")


def _folder(url: str, host: str, path: str) -> Path:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise _invalid(url, "does not name an absolute folder")
    if not path.strip("/"):
        raise _invalid(url, "names the root of the file system")
    return Path(os.fsdecode(unquote_to_bytes(path)))


def _invalid(url: str, problem: str) -> InvalidSetting:
    return InvalidSetting(
        f"PODIUM_BLOBS is '{url}', which {problem}.", remedy=f"Set PODIUM_BLOBS to {_SHAPES}."
    )
