"""Text from anywhere, as it can be kept."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from registry.runs import RunError
from registry.text import is_storable, storable

_ANY = st.text(st.characters(codec=None))


@given(_ANY)
def test_what_is_storable_comes_back_from_a_database_as_it_was(text: str) -> None:
    kept = storable(text)
    assert is_storable(kept)
    assert sqlite3.connect(":memory:").execute("SELECT ?", (kept,)).fetchone() == (kept,)
    assert len(kept) == len(text)
    assert kept == text or not is_storable(text)


def test_an_error_of_a_run_can_be_kept_whatever_it_says() -> None:
    error = RunError("E\udcff", "no file 'caf\udce9'\0", "at \ud800", "try \udfff")
    assert all(is_storable(text) for text in (error.type, error.message, error.traceback, error.remedy))
    assert error.message == "no file 'caf\N{REPLACEMENT CHARACTER}'\N{REPLACEMENT CHARACTER}"
