"""Routes for content: chunks in and out, and the manifests that make versions of them.

Where the store is a bucket, chunks go there directly: the server signs each request, and the signature binds
the chunk's sha256, so that the bucket takes those bytes alone. Where it is a folder, they go through the
server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from registry.checkpoints import TRAINING, SavedCheckpoint
from registry.content.blobs import BlobStore
from registry.content.chunking import LARGEST
from registry.content.manifest import Manifest
from registry.errors import BodyTooLarge, ContentDamaged, InvalidContent, InvalidRequest
from registry.http.answering import json_answer, problem
from registry.http.performing import Asked, Performer
from registry.identity.roles import TeamRole
from registry.store.stored import StoredRegistry
from registry.values import Parent, Published, Stored
from registry.wire.operation import adapter_of

_KEY = r"^[0-9a-f]{64}$"
_MOST_KEYS = 10_000
_MOST_READ = LARGEST
_SHORTEST_LINK = 900  # seconds that a signed request is good for

Key = Annotated[str, Path(pattern=_KEY, description="sha256 of the chunk, in hex")]
_KeyText = Annotated[str, Field(pattern=_KEY)]
_Count = Annotated[int, Field(ge=0, le=2**62)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MissingRequest(_Body):
    keys: Annotated[list[_KeyText], Field(max_length=_MOST_KEYS)]
    sizes: Annotated[
        dict[_KeyText, Annotated[int, Field(ge=1, le=LARGEST)]],
        Field(description="Bytes of each chunk: one that was cut short counts as missing."),
    ] = {}


class TransferRequest(_Body):
    verb: Literal["put", "get"]
    key: _KeyText
    size: Annotated[int, Field(ge=1, le=LARGEST)] = 1


class Transfer(BaseModel):
    """A signed request to the bucket."""

    url: str
    headers: dict[str, str]


class PublishRequest(_Body):
    kind: str | None = Field(None, examples=["adapter"])
    manifest: dict[str, Any]
    parents: list[Parent] = []
    metadata: dict[str, Any] | None = None
    bytes_sent: _Count = 0


class StoreRequest(_Body):
    kind: str
    manifest: dict[str, Any]
    bytes_sent: _Count = 0


class CheckpointRequest(_Body):
    step: _Count
    manifest: dict[str, Any]
    series: str = TRAINING
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    metadata: dict[str, Any] | None = None
    bytes_sent: _Count = 0


Blobs = Callable[[], BlobStore]  # the app's store; a test may give the app another

_PUBLISHED = adapter_of(Published)
_STORED = adapter_of(Stored)
_SAVED = adapter_of(SavedCheckpoint)


def add_content(router: APIRouter, performer: Performer) -> None:
    """Add the routes of this file."""
    blobs: Blobs = lambda: performer.registry.files.blobs  # noqa: E731
    _add_asking(router, performer, blobs)
    _add_sending(router, performer, blobs)
    _add_fetching(router, performer, blobs)
    _add_manifests(router, performer)
    _add_reading(router, performer)


def _add_asking(router: APIRouter, performer: Performer, blobs: Blobs) -> None:
    """What is there, and how what is not gets there."""

    @router.post("/chunks/missing", tags=["chunks"], operation_id="chunks_missing", response_model=list[str])
    def missing(request: Request, body: MissingRequest) -> Response:
        """Which of these chunks are not stored yet, and have to be sent."""
        performer.asker(request).require("chunks.missing", TeamRole.TRAINER)
        return json_answer(json.dumps(sorted(blobs().missing(body.keys, body.sizes))).encode(), request)

    @router.post(
        "/chunks/transfers", tags=["chunks"], operation_id="chunks_transfer", response_model=Transfer
    )
    def transfer(request: Request, body: TransferRequest) -> Response:
        """A signed request with which a chunk goes to the bucket, or comes from there, directly."""
        role = TeamRole.TRAINER if body.verb == "put" else TeamRole.VIEWER
        performer.asker(request).require("chunks.transfer", role)
        sign = getattr(blobs(), "sign", None)
        if sign is None:
            raise InvalidRequest(
                "This server's store is a folder: chunks go through the server.",
                remedy=f"Use /chunks/{body.key} instead.",
            )
        url, needed = sign(body.verb, body.key, body.size, _SHORTEST_LINK)
        return json_answer(Transfer(url=url, headers=needed).model_dump_json().encode(), request)


def _add_sending(router: APIRouter, performer: Performer, blobs: Blobs) -> None:
    @router.put("/chunks/{key}", tags=["chunks"], operation_id="chunks_put", status_code=204)
    async def put(request: Request, key: Key) -> Response:
        """Send a chunk: at most 64 MiB whose sha256 is its key. Sent twice it is stored once."""
        who = await run_in_threadpool(performer.asker, request)
        who.require("chunks.put", TeamRole.TRAINER)
        data = await _body_of(request)
        try:
            await run_in_threadpool(blobs().put, key, data)
        except ContentDamaged as error:
            raise InvalidContent(
                f"What came as chunk {key} is something else, or was cut off.", remedy="Send it again."
            ) from error
        return Response(status_code=204)


def _add_fetching(router: APIRouter, performer: Performer, blobs: Blobs) -> None:
    @router.get(
        "/chunks/{key}",
        tags=["chunks"],
        operation_id="chunks_get",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    def get(
        request: Request,
        key: Key,
        start: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
        length: Annotated[int | None, Query(ge=0, le=_MOST_READ)] = None,
    ) -> Response:
        """A stored chunk, or a part of it."""
        performer.asker(request).require("chunks.get", TeamRole.VIEWER)
        try:
            data = blobs().read(key, start, length)
        except ContentDamaged as error:
            if blobs().missing([key]):
                return problem(error, 404)
            raise
        return Response(data, media_type="application/octet-stream")


async def _body_of(request: Request) -> bytearray:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST:
            raise BodyTooLarge(
                f"A chunk has at most {LARGEST} bytes.", remedy="Cut the file into more chunks."
            )
    return data


def _add_manifests(router: APIRouter, performer: Performer) -> None:
    @router.post(
        "/artifacts/{name}/versions",
        tags=["catalog"],
        operation_id="catalog_publish",
        response_model=Published,
    )
    def publish(request: Request, name: str, body: PublishRequest) -> Response:
        """Make sent chunks the next version of an artifact. The same content is the version that is there."""
        manifest = _manifest(body.manifest)

        def act(registry: StoredRegistry) -> bytes:
            published = registry.received.publish(
                name, body.kind, manifest, body.parents, body.metadata, body.bytes_sent
            )
            return _PUBLISHED.dump_json(published)

        asked = Asked("catalog.publish", TeamRole.TRAINER, {"name": name, "body": body}, "name")
        return performer.perform(request, asked, act)

    @router.post("/contents", tags=["catalog"], operation_id="catalog_store", response_model=Stored)
    def store(request: Request, body: StoreRequest) -> Response:
        """Record sent chunks as a content that no version names yet."""
        manifest = _manifest(body.manifest)
        asked = Asked("catalog.store", TeamRole.TRAINER, {}, repeatable=True)
        return performer.perform(
            request,
            asked,
            lambda registry: _STORED.dump_json(registry.received.store(body.kind, manifest, body.bytes_sent)),
        )

    @router.post(
        "/runs/{run}/checkpoints",
        tags=["checkpoints"],
        operation_id="checkpoints_save",
        response_model=SavedCheckpoint,
    )
    def save(request: Request, run: str, body: CheckpointRequest) -> Response:
        """Record sent chunks as the state of a run at a step."""
        manifest = _manifest(body.manifest)

        def act(registry: StoredRegistry) -> bytes:
            files = registry.received.check("checkpoint", manifest, body.bytes_sent)
            saved = registry.checkpoints.record(
                run, body.step, files, series=body.series, keep=body.keep, metadata=body.metadata
            )
            return _SAVED.dump_json(saved)

        asked = Asked("checkpoints.save", TeamRole.TRAINER, {"run": run, "body": body})
        return performer.perform(request, asked, act)


def _manifest(document: dict[str, Any]) -> Manifest:
    try:
        return Manifest.from_json(json.dumps(document))
    except ContentDamaged as error:
        raise InvalidContent(
            f"The manifest cannot be used: {error.message}.",
            remedy="Push with a podium of the server's version.",
        ) from error


def _add_reading(router: APIRouter, performer: Performer) -> None:
    @router.get(
        "/contents/{digest}/manifest",
        tags=["catalog"],
        operation_id="catalog_manifest",
        response_model=dict[str, Any],
    )
    def manifest(request: Request, digest: str) -> Response:
        """The files of a content, with their chunks."""
        performer.asker(request).require("catalog.manifest", TeamRole.VIEWER)
        return json_answer(performer.registry.catalog.manifest(digest).to_json().encode(), request)

    @router.get(
        "/contents/{digest}/files/{path:path}",
        tags=["catalog"],
        operation_id="catalog_read",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    def read(
        request: Request,
        digest: str,
        path: str,
        start: Annotated[int, Query(ge=0, le=2**62)] = 0,
        length: Annotated[int, Query(ge=0, le=_MOST_READ)] = _MOST_READ,
    ) -> Response:
        """Bytes of one file of a content: 64 MiB at most."""
        performer.asker(request).require("catalog.read", TeamRole.VIEWER)
        data = performer.registry.catalog.read(digest, path, start, length)
        # Anybody may have written it: a browser must neither run nor show it.
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"content-disposition": "attachment", "cache-control": "private, immutable"},
        )
