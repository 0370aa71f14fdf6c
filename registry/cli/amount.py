"""Amounts on the command line: seconds to wait, processors to use."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


class _Amount(click.FloatRange):
    """A finite number, 0 or more. NaN is not out of any range, and waits for ever."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


AMOUNT = _Amount(min=0)
