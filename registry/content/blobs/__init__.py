"""Where chunks are kept: a folder or an S3 bucket, behind one protocol."""

from __future__ import annotations

from registry.content.blobs.opening import open_store
from registry.content.blobs.store import BlobInfo, BlobStore, Buffer

__all__ = ["BlobInfo", "BlobStore", "Buffer", "open_store"]
