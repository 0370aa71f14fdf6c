"""Chunks over HTTP: through the server where its store is a folder, else to the bucket by signed requests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from registry.content.blobs.store import BlobInfo, Buffer, check_digest, done, missing_chunk, wrong_size
from registry.errors import ContentDamaged, PodiumError, StoreUnavailable
from registry.remote.transport import Transport

if TYPE_CHECKING:
    from registry.content.blobs.store import Mark

_TIMEOUT = httpx.Timeout(300.0, connect=10.0)
_SECONDS = 300.0
_MOST_KEYS = 5_000
_ATTEMPTS = 4
_BYTES = "application/octet-stream"


class _Broken(Exception):
    """The bucket did not take or give a chunk this time."""


class RemoteBlobs:
    """A `BlobStore` behind a server; ``direct`` says that chunks need not go through it."""

    is_local = False

    def __init__(self, transport: Transport, *, direct: bool) -> None:
        self._transport = transport
        self._direct = direct
        self._bucket = httpx.Client(timeout=_TIMEOUT, limits=httpx.Limits(max_connections=32))

    @property
    def url(self) -> str:
        return self._transport.shared.address

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        if not digested:
            check_digest(key, data)
        body = bytes(data)
        if self._direct:
            self._to_bucket("put", key, body)
        else:
            self._transport.request("PUT", f"/chunks/{key}", body=body, timeout=_SECONDS, content_type=_BYTES)

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        self.put(key, data, digested=digested)
        return done()

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        if self._direct:
            last = "" if length is None else str(start + length - 1)
            return self._to_bucket("get", key, None, {"range": f"bytes={start}-{last}"})
        params = {"start": str(start), **({} if length is None else {"length": str(length)})}
        return self._transport.request("GET", f"/chunks/{key}", params=params, timeout=_SECONDS).content

    def read_into(self, key: str, buffer: memoryview) -> None:
        data = self._to_bucket("get", key) if self._direct else self.read(key)
        if len(data) != buffer.nbytes:
            raise wrong_size(self.url, key, buffer.nbytes)
        buffer[:] = data

    def missing(self, keys: Collection[str], sizes: Mapping[str, int] | None = None) -> set[str]:
        asked, found = list(keys), set[str]()
        for first in range(0, len(asked), _MOST_KEYS):
            keys = asked[first : first + _MOST_KEYS]
            document: dict[str, object] = {"keys": keys}
            if sizes is not None:
                document["sizes"] = {key: sizes[key] for key in keys if key in sizes}
            body = json.dumps(document).encode()
            found |= set(self._transport.request("POST", "/chunks/missing", body=body).json())
        return found

    def delete(self, key: str) -> None:
        raise StoreUnavailable("Chunks are deleted by the server alone.", remedy="Ask its admin.")

    def list(self) -> Iterator[BlobInfo]:
        raise StoreUnavailable("Chunks are listed by the server alone.", remedy="Ask its admin.")

    def claim(self, database_id: str) -> str:
        raise StoreUnavailable("The server alone claims its store.", remedy="Ask its admin.")

    def mark(self) -> Mark | None:
        raise StoreUnavailable("The server alone knows whose its store is.", remedy="Ask its admin.")

    def close(self) -> None:
        self._bucket.close()

    def _to_bucket(
        self, verb: str, key: str, body: bytes | None = None, more: Mapping[str, str] | None = None
    ) -> bytes:
        """Send or fetch a chunk by a request that the server has signed."""
        retrying = Retrying(
            retry=retry_if_exception_type((_Broken, httpx.TransportError)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        try:
            return retrying(self._once, verb, key, body, more or {})
        except (_Broken, httpx.HTTPError) as error:
            raise StoreUnavailable(
                f"The bucket did not {'take' if verb == 'put' else 'give'} chunk {key[:16]}: {error}.",
                remedy="Check that this machine reaches the bucket of the server, and try again.",
            ) from error

    def _once(self, verb: str, key: str, body: bytes | None, more: Mapping[str, str]) -> bytes:
        asked = {"verb": verb, "key": key, **({"size": len(body)} if body else {})}
        signed = self._transport.request("POST", "/chunks/transfers", body=json.dumps(asked).encode()).json()
        answer = self._bucket.request(
            verb.upper(), signed["url"], content=body, headers={**signed["headers"], **more}
        )
        if answer.is_success:
            return answer.content
        raise self._refused(verb, key, answer)

    def _refused(self, verb: str, key: str, answer: httpx.Response) -> Exception:
        if answer.status_code == 404 and verb == "get":
            return missing_chunk(self.url, key)
        if answer.status_code == 400 and "Digest" in answer.text:
            return ContentDamaged(
                f"Chunk {key} was damaged on its way to the bucket.", remedy="Push again.", chunk=key
            )
        problem: Exception | PodiumError = _Broken(f"it answered {answer.status_code}")
        return problem
