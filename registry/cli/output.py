"""What commands print: text for people on a terminal, JSON for programs with ``--json``."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import click

from registry.errors import InvalidInput, PodiumError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from registry.content.progress import Progress
    from registry.protocol import Registry
    from registry.settings import Settings

_PIPE_WIDTH = 120  # columns of a table that nobody looks at in a terminal

debugging: ContextVar[bool] = ContextVar("debugging", default=False)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line that could not be parsed asks for JSON."""
    before_separator = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before_separator


def print_error(error: PodiumError, *, as_json: bool) -> int:
    """Print an error where its reader looks for it; the exit status."""
    if debugging.get():
        traceback.print_exception(error)
    if as_json:
        click.echo(json.dumps(error.to_dict(), default=str))
    else:
        click.echo(f"{click.style('podium:', fg='red', bold=True)} {plain(error.message)}", err=True)
        for line in error.remedy.splitlines():
            click.echo(f"        {plain(line)}", err=True)
    return error.exit_status


@dataclass
class Output:
    """How one invocation prints."""

    as_json: bool

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        # What is printed holds names and reasons of any origin, so nothing in it is markup.
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        return Console(soft_wrap=False, highlight=False, markup=False, emoji=False, width=width)

    @cached_property
    def settings(self) -> Settings:
        """The settings of this process; nothing is connected for them."""
        from registry.settings import load_settings

        return load_settings()

    @cached_property
    def registry(self) -> Registry:
        """The registry that the settings name, connected when first asked for."""
        from registry.connection import connect

        registry = connect()
        click.get_current_context().call_on_close(registry.close)
        return registry

    def show(self, data: Any, human: Callable[[], RenderableType | None]) -> None:
        """Print ``data`` as JSON, or what ``human`` makes of it."""
        if self.as_json:
            click.echo(json.dumps(data, default=str))
            return
        shown = human()
        if isinstance(shown, str):
            click.echo(plain(shown))  # a sentence is wrapped by the terminal, and not at all in a pipe
        elif shown is not None:
            self.console.print(shown)

    def note(self, text: str) -> None:
        """Say something beside the result: for people, on the error stream."""
        if not self.as_json:
            click.echo(plain(text), err=True)

    def confirm(self, question: str) -> None:
        """Go on only if a person says so.

        Raises:
            InvalidInput: there is nobody to ask, because the input is no terminal.
        """
        if sys.stdin is None or not sys.stdin.isatty():
            asked = question.removesuffix("?")
            raise InvalidInput(f"There is nobody to ask: {asked}?", remedy="Say so beforehand with --yes.")
        click.confirm(question, abort=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = ""
    ) -> RenderableType:
        """A table; a column whose name begins with ``>`` stands to the right. ``empty`` is for no rows."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        cells = [[cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row] for row in rows]
        if empty and not cells:
            return Text(empty)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            right = column.startswith(">")
            table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*row)
        return table

    def facts(self, pairs: Iterable[tuple[str, object]]) -> RenderableType:
        """One thing's properties, a line each."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in pairs:
            grid.add_row(Text(name, "dim"), Text(_cell(value)))
        return grid

    def page(self, parts: Iterable[RenderableType]) -> RenderableType:
        """Several parts below each other, an empty line between."""
        from rich.console import Group
        from rich.text import Text

        spaced = [each for part in parts for each in (Text(""), part)]
        return Group(*spaced[1:])

    @contextmanager
    def waiting(self) -> Iterator[Callable[[str, str], None]]:
        """What is waited for, as it changes: called with that, and with how far it is.

        A person at a terminal sees both, and the seconds, on one line that goes when the waiting ends; where
        nobody looks at a terminal, what is waited for is said once.
        """
        if self.as_json:
            yield lambda what, far: None
        elif not sys.stderr.isatty():
            said: dict[str, None] = {}

            def once(what: str, far: str) -> None:
                if what not in said:
                    said[what] = None
                    self.note(what)

            yield once
        else:
            from rich.console import Console

            begun = time.monotonic()
            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            with console.status("") as status:

                def show(what: str, far: str) -> None:
                    parts = (what.rstrip("."), f"{time.monotonic() - begun:.0f} s", plain(far))
                    status.update("  ".join(part for part in parts if part)[: console.width - 4])

                yield show

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress | None]:
        """A progress bar on the error stream, where a person looks at it."""
        if self.as_json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        columns = (
            TextColumn(label),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            yield _Bar(bars)


class _Bar:
    """A transfer's progress as one bar."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None)

    def start(self, total: int) -> None:
        self._bars.update(self._task, total=total)

    def advance(self, count: int) -> None:
        self._bars.advance(self._task, count)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--json`` and an `Output` as its first argument."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
    @wraps(command)
    def wrapped(as_json: bool, **parameters: Any) -> Any:
        return command(Output(as_json), **parameters)

    return wrapped


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return ago(value) if isinstance(value, datetime) else plain(str(value))


def plain(text: str) -> str:
    """``text`` without what would steer a terminal: anybody may have written it."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ago(at: datetime) -> str:
    """How long ago something was, in the largest unit that fits."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def size_text(count: int) -> str:
    """Bytes as a person reads them, in powers of 1000."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def pairs(mapping: Mapping[str, object]) -> str:
    return ", ".join(f"{k}={v}" for k, v in mapping.items()) or "-"
