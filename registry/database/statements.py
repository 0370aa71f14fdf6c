"""SQL text that runs on SQLite and PostgreSQL alike.

The hot paths (promote, resolve, claim, beat) may not pay for an ORM, so statements are text with ``:name``
parameters, translated once for each database. Three markers cover what differs:

    {lock}          FOR UPDATE           rows that this transaction is about to decide on
    {share}         FOR SHARE            rows that may not change until it has committed
    {skip_locked}   FOR UPDATE SKIP LOCKED

SQLite needs none of them: its writers stand in line from BEGIN IMMEDIATE on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_LOCKS = {"{lock}": "FOR UPDATE", "{share}": "FOR SHARE", "{skip_locked}": "FOR UPDATE SKIP LOCKED"}


@dataclass(frozen=True)
class Statement:
    """One SQL statement in both dialects."""

    text: str

    @cached_property
    def sqlite(self) -> str:
        text = self.text
        for marker in _LOCKS:
            text = text.replace(marker, "")
        return text

    @cached_property
    def postgresql(self) -> str:
        text = self.text.replace("%", "%%")
        for marker, clause in _LOCKS.items():
            text = text.replace(marker, clause)
        return _PARAMETER.sub(r"%(\1)s", text)


def sql(text: str) -> Statement:
    """A statement from its text; write it once, as a module constant."""
    return Statement(" ".join(text.split()))
