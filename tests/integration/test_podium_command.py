"""The real command, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common import content
from tests.common.registries import Maker, Place

PODIUM = str(Path(sys.executable).with_name("podium"))
#: Runs `podium`, with no file of this process ever larger than the first argument says.
BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from registry.cli import main
main(sys.argv[2:])
"""


def start(place: Place, *arguments: object, bound: int | None = None) -> subprocess.Popen[str]:
    command = [PODIUM] if bound is None else [sys.executable, "-c", BOUNDED, str(bound)]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env={k: v for k, v in os.environ.items() if not k.startswith("PODIUM_")} | place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=100)
    assert "Traceback" not in error
    return process.returncode, out, error


def podium(place: Place, *arguments: object, bound: int | None = None) -> tuple[int, str, str]:
    return ended(start(place, *arguments, bound=bound))


def test_push_promote_and_pull(place: Place, tmp_path: Path) -> None:
    folder = content.write_adapter(tmp_path / "adapter")
    status, out, _ = podium(place, "push", "bot", folder, "--kind", "adapter", "--json")
    assert status == 0
    assert json.loads(out)["ref"] == "bot:v1"
    assert podium(place, "promote", "bot:v1", "production")[0] == 0
    assert podium(place, "pull", "bot:production", tmp_path / "pulled")[0] == 0
    assert content.read_folder(tmp_path / "pulled") == content.read_folder(folder)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("list",), 0), (("delete", "bot:v1"), 1), (("show", "bot:v9"), 2), (("frobnicate",), 2)],
)
def test_the_exit_status_says_what_happened(
    sqlite_place: Place, tmp_path: Path, arguments: tuple[str, ...], status: int
) -> None:
    Maker(sqlite_place.open(), tmp_path).adapter("bot")
    sqlite_place.open().promotions.promote("bot:v1", "production")
    assert podium(sqlite_place, *arguments)[0] == status


def test_debug_shows_the_traceback_that_is_hidden_otherwise(sqlite_place: Place) -> None:
    process = start(sqlite_place, "--debug", "show", "nobody")
    _, error = process.communicate(timeout=100)
    assert "Traceback" in error
    assert "ArtifactNotFound" in error


def test_two_pushes_of_one_artifact_at_once_both_get_a_version(place: Place, tmp_path: Path) -> None:
    folders = [content.write_adapter(tmp_path / f"{n}", seed=n) for n in (1, 2)]
    place.open()
    pushing = [start(place, "push", "bot", folder, "--kind", "adapter", "--json") for folder in folders]
    printed = [json.loads(ended(process)[1]) for process in pushing]
    assert sorted(each["version"] for each in printed) == [1, 2]


@pytest.mark.parametrize("bound", [4096, 200_000, 2_000_000])
def test_a_disk_without_room_stores_nothing_and_the_same_push_works_when_there_is_some(
    sqlite_place: Place, tmp_path: Path, bound: int
) -> None:
    folder = content.write_dataset(tmp_path / "data", {"data.bin": content.some_bytes(3_000_000)})
    registry = sqlite_place.open()
    status, _, error = podium(sqlite_place, "push", "data", folder, "--kind", "dataset", bound=bound)
    assert status == 3
    assert "room" in error
    assert registry.catalog.artifacts() == []
    assert registry.events.position().newest == 0
    assert podium(sqlite_place, "push", "data", folder, "--kind", "dataset")[0] == 0
    registry.catalog.pull("data:v1", tmp_path / "pulled")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "credentials"),
        ("PODIUM_BLOBS", "s3://no-such-bucket-here/prefix", "bucket"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_an_s3_store_that_cannot_be_used(
    server_place: Place, tmp_path: Path, variable: str, value: str, said: str
) -> None:
    registry = server_place.open()
    folder = content.write_adapter(tmp_path / "adapter")
    environment = os.environ | server_place.environment | {variable: value}
    done = subprocess.run(
        [PODIUM, "push", "bot", str(folder), "--kind", "adapter"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 3
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert registry.catalog.artifacts() == []


def test_podium_up_stops_when_it_is_told_also_when_nobody_reads_it_any_more(place: Place) -> None:
    with start(place, "up", "--without", "serving", "--without", "worker") as up:
        assert up.stdout is not None
        assert up.stderr is not None
        try:
            assert any("listening" in line for line in up.stdout)
            up.stdout.close()
            up.terminate()
            assert up.wait(timeout=60) == 0
            assert "Traceback" not in up.stderr.read()
        finally:
            up.kill()


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"]])
def test_an_answer_that_could_not_be_printed_is_no_success(sqlite_place: Place, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PODIUM, *arguments],
            env=os.environ | sqlite_place.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr


def test_a_caller_that_closed_its_streams_is_served_like_any_other(sqlite_place: Place) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" list <&- >&-', PODIUM],
        env=os.environ | sqlite_place.environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
