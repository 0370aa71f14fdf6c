from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainers.logs import BoundedLog


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_what_fits_is_kept_byte_by_byte(pieces: list[bytes]) -> None:
    log = BoundedLog(head=1000, tail=10)
    stored = b""
    for piece in pieces:
        log.add(piece)
        stored += log.take()
    assert stored + log.close() == b"".join(pieces)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=30), st.integers(0, 20))
def test_beyond_the_bound_both_ends_are_kept_and_the_gap_is_counted(pieces: list[bytes], tail: int) -> None:
    everything = b"".join(pieces)
    log = BoundedLog(head=16, tail=tail)
    for piece in pieces:
        log.add(piece)
    kept = log.close()
    missing = len(everything) - 16 - tail
    if missing <= 0:
        assert kept == everything
    else:
        said = f"\n[... {missing:,} bytes of output are not kept ...]\n".encode()
        assert kept == everything[:16] + said + everything[len(everything) - tail :]
