"""Which completions are labels, and how examples are rendered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainers.recipes.examples import Example
from trainers.recipes.scoring import MOST_LABELS, labels_of


def examples(*completions: str) -> list[Example]:
    return [
        Example(({"role": "user", "content": str(n)},), ({"role": "assistant", "content": completion},))
        for n, completion in enumerate(completions)
    ]


def test_a_few_completions_used_often_are_labels() -> None:
    assert labels_of(examples("b", "a", "b", "a")) == ["a", "b"]


def test_completions_used_once_each_are_free_text() -> None:
    assert labels_of(examples("one", "two", "three")) == []


def test_more_completions_than_a_choice_has_are_free_text() -> None:
    many = [str(n) for n in range(MOST_LABELS + 1)]
    assert labels_of(examples(*many * 3)) == []


@pytest.mark.parametrize("recipe", ["prefetch", "sft", "evaluate", "merge"])
def test_importing_a_recipe_imports_no_torch(recipe: str) -> None:
    code = f"import sys, trainers.recipes.{recipe}; print([m for m in ('torch', 'trl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
