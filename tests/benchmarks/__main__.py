"""``python -m tests.benchmarks [NAME...]``: measure, print one table, write ``build/bench.json``.

A benchmark is a public function without parameters of a module in this folder; it yields or returns rows.
A name selects modules and functions that contain it (``registry``, ``set_alias``). Rows that an earlier,
narrower run wrote are kept. The exit status is 1 when a benchmark failed, 0 otherwise: a missed aim is a
finding, not a failure.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

import tests.benchmarks
from tests.benchmarks.measuring import Benchmark, Row

_RESULT = Path(__file__).parents[2] / "build" / "bench.json"


def benchmarks() -> Iterator[tuple[str, Benchmark]]:
    """Every benchmark, as ``module.function``, modules by name and functions as written."""
    for found in sorted(pkgutil.iter_modules(tests.benchmarks.__path__), key=lambda module: module.name):
        if found.name in ("__main__", "measuring"):
            continue
        module = importlib.import_module(f"tests.benchmarks.{found.name}")
        for name, function in vars(module).items():
            if _is_benchmark(function, module.__name__) and not name.startswith("_"):
                yield f"{found.name}.{name}", function


def _is_benchmark(function: object, module: str) -> bool:
    if not inspect.isfunction(function) or function.__module__ != module:
        return False
    return not inspect.signature(function).parameters


def _table(rows: Iterable[Row], doing: str) -> Table:
    table = Table(title="podium beside its peers (medians; measured in turns)", caption=doing)
    table.add_column("what")
    for column in ("ours", "peer", "unit", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("aim")
    for row in rows:
        verdict = "[green]met[/]" if row.met else "[red]missed[/]"
        figures = (f"{row.ours:,.4g}", f"{row.peer:,.4g}", row.unit, f"{row.ratio:.2f}")
        table.add_row(row.name, *figures, f"{row.aim}: {verdict}")
    return table


def _keep(rows: list[Row]) -> None:
    """Write the rows, with those of earlier runs that this one has not measured."""
    _RESULT.parent.mkdir(exist_ok=True)
    before: list[dict[str, Any]] = json.loads(_RESULT.read_text())["rows"] if _RESULT.exists() else []
    measured = {row.name for row in rows}
    merged = [row for row in before if row["name"] not in measured] + [row.to_dict() for row in rows]
    _RESULT.write_text(json.dumps({"rows": merged}, indent=2) + "\n")


def main(wanted: list[str]) -> int:
    """Run the benchmarks whose name contains one of ``wanted``, or all."""
    chosen = [(name, run) for name, run in benchmarks() if not wanted or any(word in name for word in wanted)]
    if not chosen:
        print(f"No benchmark is named like {wanted}: there are {[name for name, _ in benchmarks()]}.")
        return 1
    rows: list[Row] = []
    failed: list[str] = []
    console = Console(width=None if sys.stdout.isatty() else 140)
    with Live(console=console, auto_refresh=sys.stdout.isatty()) as live:
        for name, run in chosen:
            live.update(_table(rows, f"measuring {name} ..."))
            try:
                for row in run():
                    rows.append(row if isinstance(row, Row) else Row(**row))
                    _keep(rows)
                    live.update(_table(rows, f"measuring {name} ..."))
            except Exception:
                failed.append(name)
                console.print(traceback.format_exc(), markup=False)
        live.update(_table(rows, f"{len(rows)} rows in {_RESULT.parent.name}/{_RESULT.name}"), refresh=True)
    for name in failed:
        console.print(f"[red]{name} could not be measured[/]")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
