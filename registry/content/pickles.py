"""Finding Python pickles by their bytes, whatever the file is called.

Loading a pickle can run any program, so content that others load must have none. A file is one if
`pickle.load`, `torch.load` or `numpy.load(allow_pickle=True)` would unpickle it:

- it begins with a pickle of protocol 2 to 5 (also a torch file of before 1.6, which is several in a row);
- it is a pickle of protocol 0 or 1, which has no mark: all of it reads as opcodes up to STOP, and it imports
  something or remembers something, as all but the most trivial do;
- it is a zip (torch since 1.6, npz) or a tar (torch before 0.1.10) with such a member;
- it is a numpy array of objects.

The file is walked opcode by opcode and never unpickled. Text, JSON, safetensors and parquet leave the walk
within a few bytes: nearly all that they begin with is no opcode, or has no possible argument.
"""

from __future__ import annotations

import io
import pickletools
import re
import tarfile
import zipfile
from pathlib import Path
from typing import IO, BinaryIO

_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_LENGTH_BYTES = {  # of a counted argument, by pickletools' names for arguments
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_IMPORTS = {"GLOBAL", "INST"}  # by name; their names are checked, so that chance does not look like one
_STRINGS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_REMEMBERS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_NUMBER = re.compile(rb"-?[0-9]+L?|[+-]?([0-9.]+([eE][+-]?[0-9]+)?|inf|nan)")
_NAME = re.compile(rb"[A-Za-z_][\w.<>]*")
_ENOUGH_MARKED = 8  # opcodes after a PROTO mark: random bytes do not read so by chance
_ENOUGH_UNMARKED = 20_000  # no text and no table reads as opcodes for that long
_LONGEST_LINE = 1 << 24
_MEMBER_HEAD = 1 << 16
_MOST_MEMBERS = 10_000


def is_pickle(path: Path) -> bool:
    """Whether some loader would unpickle the file."""
    with path.open("rb") as file:
        return _is_pickle(file) or _holds_pickle(file)


def _holds_pickle(file: BinaryIO) -> bool:
    file.seek(0)
    head = file.read(512)
    if head.startswith(b"PK\x03\x04"):
        return _zip_holds_pickle(file)
    if head[257:262] == b"ustar":
        return _tar_holds_pickle(file)
    return _is_array_of_objects(head)


def _zip_holds_pickle(file: BinaryIO) -> bool:
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.filename.endswith("data.pkl") for member in members):
                return True
            return any(_member_is_pickle(archive.open(member)) for member in members[:_MOST_MEMBERS])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, ValueError):
        return False  # damaged or encrypted: no loader reads it either


def _tar_holds_pickle(file: BinaryIO) -> bool:
    file.seek(0)
    try:
        with tarfile.open(fileobj=file) as archive:
            files = (archive.extractfile(member) for member in archive if member.isfile())
            return any(_member_is_pickle(member) for member in files if member is not None)
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return False


def _member_is_pickle(member: IO[bytes]) -> bool:
    with member as stream:
        head = io.BytesIO(stream.read(_MEMBER_HEAD))
        return _is_pickle(head, whole=False) or _is_array_of_objects(head.getvalue()[:512])


def _is_array_of_objects(head: bytes) -> bool:
    return head.startswith(b"\x93NUMPY") and re.search(rb"'descr':\s*(\[.*)?'\|?O", head) is not None


def _is_pickle(file: BinaryIO, *, whole: bool = True) -> bool:
    """Walk the opcodes from the start. ``whole``: the file does not go on after what can be read here."""
    file.seek(0)
    marked = file.read(2)[:2] in {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}
    file.seek(0)
    seen: list[str] = []
    enough = _ENOUGH_MARKED if marked else _ENOUGH_UNMARKED
    try:
        while len(seen) < enough:
            seen.append(_next_opcode(file))
            if seen[-1] == "STOP":
                return marked or _unmarked_is_pickle(seen, at_end=not file.read(1))
    except _NotAnOpcode:
        return False
    except _CutOff:
        # A pickle whose end is missing loads nothing, but it is no other format either.
        return marked and (not whole or len(seen) > 2)
    return True


def _unmarked_is_pickle(seen: list[str], *, at_end: bool) -> bool:
    imports = not _IMPORTS.isdisjoint(seen) or (
        "STACK_GLOBAL" in seen and sum(name in _STRINGS for name in seen) >= 2  # it takes two from the stack
    )
    return imports or (at_end and not _REMEMBERS.isdisjoint(seen))


class _NotAnOpcode(Exception):
    """The bytes here cannot be read as an opcode with its argument."""


class _CutOff(Exception):
    """The file ends inside an opcode, or before STOP."""


def _next_opcode(file: BinaryIO) -> str:
    code = file.read(1)
    if not code:
        raise _CutOff
    opcode = _OPCODES.get(code[0])
    if opcode is None:
        raise _NotAnOpcode
    if opcode.name == "PROTO":
        if _exactly(file, 1)[0] > 5:
            raise _NotAnOpcode
    elif opcode.arg is not None:
        _skip_argument(file, opcode.name, opcode.arg.n)
    return opcode.name


def _skip_argument(file: BinaryIO, name: str, size: int) -> None:
    if size >= 0:
        _exactly(file, size)
    elif size == pickletools.UP_TO_NEWLINE:
        _skip_lines(file, name)
    else:
        _skip_counted(file, int.from_bytes(_exactly(file, _LENGTH_BYTES[size]), "little"))


def _skip_lines(file: BinaryIO, name: str) -> None:
    line = _line(file)
    if name in ("INT", "LONG", "FLOAT", "PUT", "GET") and not _NUMBER.fullmatch(line):
        raise _NotAnOpcode
    if name == "STRING" and (len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"')):
        raise _NotAnOpcode
    if name in ("GLOBAL", "INST") and not (_NAME.fullmatch(line) and _NAME.fullmatch(_line(file))):
        raise _NotAnOpcode


def _line(file: BinaryIO) -> bytes:
    line = file.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise _NotAnOpcode
    return line[:-1]


def _skip_counted(file: BinaryIO, length: int) -> None:
    end = file.seek(0, io.SEEK_CUR) + length
    if end > file.seek(0, io.SEEK_END):
        raise _CutOff
    file.seek(end)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _CutOff
    return data
