from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.content.manifest import ChunkRef, FileEntry, Manifest
from registry.errors import ContentDamaged, InvalidContent


def _entry(path: str, *parts: bytes) -> FileEntry:
    chunks = tuple(ChunkRef(hashlib.sha256(part).hexdigest(), len(part)) for part in parts)
    whole = b"".join(parts)
    return FileEntry(path, len(whole), hashlib.sha256(whole).hexdigest(), chunks)


_NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=8
)
_PATHS = st.lists(_NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join)
_PARTS = st.lists(st.binary(min_size=1, max_size=8), max_size=3)


@st.composite
def _manifests(draw: st.DrawFn) -> Manifest:
    files = draw(st.dictionaries(_PATHS, _PARTS, max_size=5))
    try:
        return Manifest(tuple(_entry(path, *parts) for path, parts in files.items()))
    except InvalidContent:  # names that collide
        return Manifest((_entry("only.txt", b"x"),))


@given(_manifests())
def test_a_manifest_survives_json(manifest: Manifest) -> None:
    again = Manifest.from_json(manifest.to_json())
    assert again == manifest
    assert again.digest == manifest.digest
    assert again.to_json() == manifest.to_json()


@given(_manifests(), st.randoms())
def test_the_order_in_which_files_are_given_means_nothing(manifest: Manifest, shuffler: object) -> None:
    files = list(manifest.files)
    shuffler.shuffle(files)  # type: ignore[attr-defined]
    assert Manifest(tuple(files)) == manifest


@given(_manifests(), _manifests())
def test_digests_are_equal_exactly_if_paths_sizes_and_file_digests_are(
    one: Manifest, other: Manifest
) -> None:
    def facts(manifest: Manifest) -> list[tuple[str, int, str]]:
        return [(entry.path, entry.size, entry.sha256) for entry in manifest.files]

    assert (one.digest == other.digest) == (facts(one) == facts(other))


def test_the_digest_is_the_documented_one() -> None:
    manifest = Manifest((_entry("b/c.txt", b"hello"), _entry("a.txt")))
    hello, empty = hashlib.sha256(b"hello").hexdigest(), hashlib.sha256(b"").hexdigest()
    text = f"podium-content-v1\n{empty} 0 a.txt\n{hello} 5 b/c.txt\n"
    assert manifest.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_another_way_of_cutting_is_the_same_content() -> None:
    assert Manifest((_entry("a", b"he", b"llo"),)).digest == Manifest((_entry("a", b"hello"),)).digest


def test_files_are_in_the_order_of_their_bytes() -> None:
    manifest = Manifest(tuple(_entry(path) for path in ("\U0001f600", "\uffee", "b", "a/z", "a.txt")))
    assert [entry.path for entry in manifest.files] == ["a.txt", "a/z", "b", "\uffee", "\U0001f600"]


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\nb", "\ud800"])
def test_a_path_that_could_leave_its_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidContent):
        _entry(path)


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidContent):
        Manifest((_entry("a", b"1"), _entry("a", b"2")))


def test_chunks_that_do_not_add_up_are_refused() -> None:
    key = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(InvalidContent, match="do not add up"):
        FileEntry("a", 2, key, (ChunkRef(key, 1),))


def test_a_single_chunk_with_another_digest_than_its_file_is_refused() -> None:
    one, other = (hashlib.sha256(data).hexdigest() for data in (b"x", b"y"))
    with pytest.raises(InvalidContent, match="different digests"):
        FileEntry("a", 1, one, (ChunkRef(other, 1),))


_GOOD = json.loads(Manifest((_entry("a", b"x"),)).to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        json.dumps({**_GOOD, "schema": 99}),
        json.dumps({"schema": 1}),
        json.dumps({"schema": 1, "files": [{}]}),
        json.dumps({"schema": 1, "files": [{**_GOOD["files"][0], "path": "../x"}]}),
        json.dumps({"schema": 1, "files": [{**_GOOD["files"][0], "size": "1"}]}),
        json.dumps({"schema": 1, "files": [{**_GOOD["files"][0], "size": True}]}),
        json.dumps({"schema": 1, "files": [{**_GOOD["files"][0], "sha256": "../../etc"}]}),
        json.dumps({"schema": 1, "files": [{**_GOOD["files"][0], "chunks": [["../x", 1]]}]}),
    ],
)
def test_a_manifest_that_cannot_be_read_is_damaged_content(text: str) -> None:
    with pytest.raises(ContentDamaged):
        Manifest.from_json(text)
