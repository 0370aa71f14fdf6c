"""Small content of each kind, made without torch."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from registry.content.blobs import BlobStore, Buffer
from registry.content.blobs.store import done
from registry.content.manifest import Manifest
from registry.content.scan import scan
from registry.content.upload import upload

_BYTES = {"F32": 4, "BF16": 2, "U8": 1}

#: A tensor to write: dtype, shape, seed of its bytes.
Spec = tuple[str, tuple[int, ...], int]


def some_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes without repetition, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def safetensors_bytes(tensors: Mapping[str, Spec], metadata: Mapping[str, str] | None = None) -> bytes:
    """A sound safetensors file with the tensors in the given order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    body = b""
    for name, (dtype, shape, seed) in tensors.items():
        size = _BYTES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + size]}
        body += some_bytes(size, seed)
    return with_header(json.dumps(header), body)


def with_header(header: str | bytes, body: bytes = b"") -> bytes:
    """A safetensors file with any header, sound or not."""
    encoded = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(encoded)) + encoded + body


def write_adapter(folder: Path, *, seed: int = 0, rank: int = 4) -> Path:
    """An adapter's folder, as PEFT would save it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors: dict[str, Spec] = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = ("F32", (rank, 16), 100 * seed + layer)
        tensors[f"{name}.lora_B.weight"] = ("F32", (16, rank), 100 * seed + layer + 50)
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


def write_model(folder: Path, tensors: Mapping[str, Spec]) -> Path:
    """A model's folder with the given tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 16}))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


def write_dataset(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A folder with the given files."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def stored(folder: Path, store: BlobStore) -> Manifest:
    """The manifest of a folder whose chunks are now in the store."""
    return upload(scan(folder), store).manifest


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


class StoreBehind:
    """A `BlobStore` that hands everything on to another and remembers what was put and read.

    It says that it is remote, so that a cache is used. Tests derive from it to make a call go wrong.
    """

    is_local = False

    def __init__(self, behind: BlobStore) -> None:
        self.behind = behind
        self.url = behind.url
        self.put_keys: list[str] = []
        self.read_keys: list[str] = []

    def put(self, key: str, data: Buffer, *, digested: bool = False) -> None:
        self.put_keys.append(key)
        self.behind.put(key, data, digested=digested)

    def put_soon(self, key: str, data: Buffer, *, digested: bool = False) -> Future[None]:
        self.put(key, data, digested=digested)
        return done()

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.read_keys.append(key)
        return self.behind.read(key, start, length)

    def read_into(self, key: str, buffer: memoryview) -> None:
        self.read_keys.append(key)
        self.behind.read_into(key, buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)
