"""Pushing and pulling a model of 1 GB, and what of a merged model is sent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from registry.content.blobs import open_store
from registry.content.cache import ChunkCache
from registry.content.download import materialise
from registry.content.kinds import Kind, validate
from registry.content.scan import scan
from registry.content.upload import Uploaded, upload
from tests.benchmarks.measuring import Aim, Row, compare
from tests.common.services import Bucket, S3Server

_ROUNDS = 5


def push_and_pull_folder() -> Iterator[Row]:
    """To and from a store on this disk, beside a durable copy whose digest is computed."""
    with _folder() as folder:
        model = _write_model(folder / "model", _large_model())

        def push() -> None:
            _push(model, f"file://{folder}/store")

        def pull() -> None:
            materialise(pushed.manifest, folder / "pulled", open_store(f"file://{folder}/kept"))

        def copy() -> None:
            _copy_durably(model, folder / "copy")

        pushed = _push(model, f"file://{folder}/kept")
        fresh = [folder / name for name in ("store", "pulled", "copy")]
        seconds = _alternately({"push": push, "pull": pull, "copy": copy}, lambda: _remove(*fresh))
    for verb in ("push", "pull"):
        name = f"{verb} 1 GB, folder / cp + fsync + openssl dgst"
        yield compare(name, seconds[verb], seconds["copy"], "s", Aim.AT_LEAST, 1.0)


def push_and_pull_s3() -> Iterator[Row]:
    """To and from an S3 server on this machine, beside boto3's own transfers, which compute no sha256."""
    with _folder() as folder, _s3(folder) as bucket:
        model = _write_model(folder / "model", _large_model())
        weights = model / "model.safetensors"
        pushed = _push(model, f"{bucket.url}/kept")
        client = bucket.client()
        client.upload_file(str(weights), bucket.name, "kept-by-peer")
        cache = ChunkCache(folder / "cache", 10 << 30)

        def pull() -> None:
            materialise(pushed.manifest, folder / "pulled", open_store(f"{bucket.url}/kept"), cache=cache)

        def prepare() -> None:
            _remove(folder / "pulled", folder / "peer", folder / "cache")
            for found in client.list_objects_v2(Bucket=bucket.name, Prefix="new").get("Contents", ()):
                client.delete_object(Bucket=bucket.name, Key=found["Key"])

        seconds = _alternately(
            {
                "push": lambda: _push(model, f"{bucket.url}/new"),
                "upload_file": lambda: client.upload_file(str(weights), bucket.name, "new-by-peer"),
                "pull": pull,
                "download_file": lambda: client.download_file(
                    bucket.name, "kept-by-peer", str(folder / "peer")
                ),
            },
            prepare,
        )
        client.close()
    for verb, peer in (("push", "upload_file"), ("pull", "download_file")):
        yield compare(f"{verb} 1 GB, S3 / boto3 {peer}", seconds[verb], seconds[peer], "s", Aim.AT_LEAST, 0.9)


def merged_model() -> Iterator[Row]:
    """Bytes sent for a model with adapters merged into its attention, after its base."""
    base = _small_model()
    merged_into = [name for name in base if "q_proj" in name or "v_proj" in name]
    with _folder() as folder:
        store = f"file://{folder}/store"
        _push(_write_model(folder / "base", base), store)
        sent = _push(_write_model(folder / "merged", base, seeded_anew=merged_into), store)
    changed = sum(base[name] for name in merged_into)
    name = "bytes sent, merged model after its base / changed tensors"
    yield compare(name, sent.bytes_sent, changed, "bytes", Aim.AT_MOST, 1.01)


def _push(model: Path, url: str) -> Uploaded:
    return upload(validate(Kind.MODEL, scan(model)), open_store(url))


def _copy_durably(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)
    files = [path for path in target.iterdir() if path.is_file()]
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    subprocess.run(["openssl", "dgst", "-sha256", *files], check=True, stdout=subprocess.DEVNULL)


def _alternately(work: Mapping[str, Callable[[], object]], prepare: Callable[[], None]) -> dict[str, float]:
    """Median seconds of each; before each, untimed, ``prepare`` and an empty write queue of the disk."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(_ROUNDS):
        for name, call in work.items():
            prepare()
            os.sync()
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    return {name: round(statistics.median(each), 3) for name, each in seconds.items()}


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder on the disk that the project is on; the system's temporary one may be in memory."""
    parent = Path(__file__).parents[2] / "build"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as name:
        yield Path(name)


@contextmanager
def _s3(folder: Path) -> Iterator[Bucket]:
    (folder / "s3").mkdir()
    server = S3Server(folder / "s3")
    try:
        server.start()
        bucket = server.bucket()
        with mock.patch.dict(os.environ, bucket.environment):
            yield bucket
    finally:
        server.stop()


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _large_model() -> dict[str, int]:
    """Names and sizes of the tensors of a Llama with half a billion weights, in bytes: 1.0 GB."""
    return _llama(layers=10, width=1536, key_width=512, inner=8192, vocabulary=38_000)


def _small_model() -> dict[str, int]:
    """The same of SmolLM2-135M: its tensors are small, so what is not shared weighs more."""
    return _llama(layers=30, width=576, key_width=192, inner=1536, vocabulary=49_152)


def _llama(*, layers: int, width: int, key_width: int, inner: int, vocabulary: int) -> dict[str, int]:
    shapes = {
        "input_layernorm": width,
        "mlp.down_proj": width * inner,
        "mlp.gate_proj": width * inner,
        "mlp.up_proj": width * inner,
        "post_attention_layernorm": width,
        "self_attn.k_proj": width * key_width,
        "self_attn.o_proj": width * width,
        "self_attn.q_proj": width * width,
        "self_attn.v_proj": width * key_width,
    }
    sizes = {"model.embed_tokens.weight": 2 * vocabulary * width}
    for layer in range(layers):
        for name, elements in shapes.items():
            sizes[f"model.layers.{layer}.{name}.weight"] = 2 * elements
    return sizes


def _write_model(folder: Path, sizes: Mapping[str, int], *, seeded_anew: list[str] | None = None) -> Path:
    """A model's folder with tensors of these sizes; their bytes follow from their names."""
    header = {}
    end = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, size in sizes.items():
            seed = f"{name} {name in (seeded_anew or ())}"
            file.write(hashlib.shake_128(seed.encode()).digest(size))
    return folder
