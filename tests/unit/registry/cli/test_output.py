"""How values are shown to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from registry.cli.output import Output, ago, counted, pairs, plain, size_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, \u00fc and \u4e00", "plain text, \u00fc and \u4e00"),
        ("two\nlines", "two\nlines"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("a\rb\u202ec", "a\ufffdb\ufffdc"),
    ],
)
def test_what_would_steer_a_terminal_is_not_printed(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (3 * 10**12, "3.0 TB")],
)
def test_sizes_are_in_powers_of_1000(count: int, shown: str) -> None:
    assert size_text(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s ago"), (59, "59 s ago"), (61, "1 min ago"), (7201, "2 h ago"), (200_000, "2 d ago")],
)
def test_times_are_told_by_their_distance(seconds: int, shown: str) -> None:
    assert ago(datetime.now(UTC) - timedelta(seconds=seconds)) == shown


def test_one_is_singular() -> None:
    assert [counted(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert pairs({}) == "-"


def test_markup_in_what_is_shown_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.show(None, lambda: out.table(["why"], [["[bold]see [/x] :smile:"]]))
    assert "[bold]see [/x] :smile:" in capsys.readouterr().out


def test_an_empty_table_says_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.show(None, lambda: out.table(["a"], [], empty="Nothing yet."))
    assert capsys.readouterr().out == "Nothing yet.\n"
