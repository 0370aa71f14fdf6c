"""The table in docs/rollouts.md says what is tested."""

from __future__ import annotations

import re
from pathlib import Path

from serving.metrics import REGISTRY
from serving.middleware import INFERENCE_PATHS, Bounds

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "rollouts.md").read_text()


def test_each_line_of_the_table_has_its_test_and_each_succession_its_line() -> None:
    named = re.findall(r"\| `(test_\w+)` \|$", PAGE, re.MULTILINE)
    tests = {
        file.name: re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
        for file in (ROOT / "tests" / "unit" / "serving").glob("test_*.py")
    }
    assert len(named) == len(set(named)) > 20
    assert set(named) <= {test for found in tests.values() for test in found}
    assert set(tests["test_successions.py"]) <= set(named)


def test_it_names_the_paths_the_bounds_and_the_metrics_that_there_are() -> None:
    bounds = Bounds()
    for words in (
        *(f"`{path}`" for path in INFERENCE_PATHS),
        f"{bounds.header_count}, and {bounds.header_bytes // 1024} KiB",
        f"{bounds.body // 2**20} MiB",
        f"{bounds.patience:.0f} s",
        f"{bounds.slowest / 1024:.0f} KiB",
        f"{bounds.arriving // 2**20} MiB",
        f"{bounds.unread:.0f} s without",
    ):
        assert words in PAGE, words
    families = {family.name for family in REGISTRY.collect()}
    missing = {name for name in families if f"`{name}" not in PAGE}
    assert not missing
