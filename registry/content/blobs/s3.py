"""Chunks in an S3 bucket.

    s3://BUCKET/PREFIX/chunks/abcd...   a chunk
    s3://BUCKET/PREFIX/store.json       which store this is, and which database it belongs to

A chunk is one checksummed PUT: the server compares what came with its sha256 and stores it whole or not at
all. There are no multipart uploads, so none can be left half done.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from botocore.exceptions import IncompleteReadError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from registry.content.blobs.s3_client import connect
from registry.content.blobs.s3_errors import KeyMissing, KeyTaken, is_broken_stream, translated
from registry.content.blobs.store import (
    BlobInfo,
    Buffer,
    Mark,
    check_digest,
    claim_by_mark,
    done,
    missing_chunk,
    read_mark,
    wrong_size,
)

T = TypeVar("T")

_PARALLEL_HEADS = 16
_ATTEMPTS = 4
_PIECE = 1 << 20  # bytes taken from a socket at a time


class S3Store:
    """A `BlobStore` in a bucket, under a prefix."""

    is_local = False

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        with translated(self.url):
            self._client = connect()

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @cached_property
    def _signer(self) -> Any:
        """Made when it is needed: only a server signs requests for others."""
        return connect(signing=True)

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        if not digested:
            check_digest(key, data)
        self._put(self._name(key), data, bytes.fromhex(key))

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        self.put(key, data, digested=digested)
        return done()

    def _put(self, name: str, data: Buffer, digest: bytes, **conditions: str) -> None:
        # One contiguous object goes to the socket in one call; a view would go in pieces of 16 KiB.
        body = data if isinstance(data, bytes | bytearray) else bytes(data)
        with translated(self.url):
            self._client.put_object(
                Bucket=self._bucket,
                Key=name,
                Body=body,
                ChecksumSHA256=base64.b64encode(digest).decode(),
                **conditions,
            )

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        last = "" if length is None else str(start + length - 1)
        return self._streamed(key, lambda: self._read(self._name(key), f"bytes={start}-{last}"))

    def _read(self, name: str, span: str) -> bytes:
        with self._client.get_object(Bucket=self._bucket, Key=name, Range=span)["Body"] as body:
            return bytes(body.read())

    def read_into(self, key: str, buffer: memoryview) -> None:
        self._streamed(key, lambda: self._fill(key, buffer))

    def _fill(self, key: str, buffer: memoryview) -> None:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._name(key))
        with answer["Body"] as body:
            if answer["ContentLength"] != buffer.nbytes:
                raise wrong_size(self.url, key, buffer.nbytes)
            done = 0
            while done < buffer.nbytes:
                count = body.readinto(buffer[done : done + _PIECE])
                if not count:
                    raise IncompleteReadError(actual_bytes=done, expected_bytes=buffer.nbytes)
                done += count

    def _streamed(self, key: str, get: Callable[[], T]) -> T:
        """Do ``get`` again when the connection breaks; boto3 itself does so only until the body begins."""
        retrying = Retrying(
            retry=retry_if_exception(is_broken_stream),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt, translated(self.url):
                    return get()
        except KeyMissing:
            raise missing_chunk(self.url, key) from None
        raise AssertionError("the last attempt raises")

    def missing(self, keys: Collection[str], sizes: Mapping[str, int] | None = None) -> set[str]:
        asked = list(keys)
        if len(asked) == 1:
            found = [self._size(asked[0])]
        else:
            with ThreadPoolExecutor(_PARALLEL_HEADS) as pool:
                found = list(pool.map(self._size, asked))
        stored = zip(asked, found, strict=True)
        return {key for key, size in stored if size is None or size != (sizes or {}).get(key, size)}

    def _size(self, key: str) -> int | None:
        try:
            with translated(self.url):
                head = self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except KeyMissing:
            return None
        return int(head["ContentLength"])

    def sign(self, verb: str, key: str, size: int, seconds: int) -> tuple[str, dict[str, str]]:
        """The address and headers of a request for a chunk that somebody without credentials may send.

        ``verb`` is ``put`` or ``get``. The signature of a put binds the chunk's sha256 and its ``size`` in
        bytes, so that the bucket takes those bytes alone.
        """
        found = {"Bucket": self._bucket, "Key": self._name(key)}
        needed: dict[str, str] = {}
        if verb == "put":
            digest = base64.b64encode(bytes.fromhex(key)).decode()
            found |= {"ChecksumSHA256": digest, "ContentLength": size}  # type: ignore[dict-item]
            needed = {"x-amz-checksum-sha256": digest, "content-length": str(size)}
        with translated(self.url):
            url = self._signer.generate_presigned_url(f"{verb}_object", Params=found, ExpiresIn=seconds)
        return str(url), needed

    def delete(self, key: str) -> None:
        with translated(self.url):
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def list(self) -> Iterator[BlobInfo]:
        prefix = self._name("")
        with translated(self.url):
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix
            ):
                for found in page.get("Contents", ()):
                    yield _info(found, prefix)

    def claim(self, database_id: str) -> str:
        return claim_by_mark(self.url, self.mark, self._write_mark, database_id)

    def mark(self) -> Mark | None:
        try:
            with translated(self.url):
                found = self._read(self._marker, "bytes=0-")
        except KeyMissing:
            return None
        return read_mark(self.url, found)

    def _write_mark(self, mark: Mark) -> None:
        data = mark.to_json()
        try:
            self._put(self._marker, data, hashlib.sha256(data).digest(), IfNoneMatch="*")
        except KeyTaken:
            return  # another claimed it since we looked; who, is read next

    @property
    def _marker(self) -> str:
        return self._prefix + "store.json"

    def _name(self, key: str) -> str:
        return f"{self._prefix}chunks/{key}"

    def close(self) -> None:
        self._client.close()


def _info(found: dict[str, Any], prefix: str) -> BlobInfo:
    return BlobInfo(found["Key"].removeprefix(prefix), found["Size"], found["LastModified"].timestamp())
