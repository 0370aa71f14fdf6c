"""From an id or a digest that a person typed, whole or its beginning, to the value that it means."""

from __future__ import annotations

import re

from registry.database.engine import Row, Transaction
from registry.database.statements import sql
from registry.errors import InvalidReference
from registry.store import rows

_FEWEST = 4  # digits; what is shorter is a slip, or a name
_LISTED = 8
_DIGITS = re.compile(rf"(sha256:)?([0-9a-f]{{{_FEWEST},64}})")
_ALL = "SELECT id, kind, digest, run FROM value"
_BY_ID = sql(f"{_ALL} WHERE id >= :first AND id < :after ORDER BY id LIMIT 50")
_BY_DIGEST = sql(f"{_ALL} WHERE digest >= :first AND digest < :after ORDER BY digest, id LIMIT 50")


def find_value(reader: Transaction, text: str) -> str | None:
    """The id of the value whose id or digest begins so; None if there is none, or ``text`` is neither.

    Values of one content are one answer: the one that has a name, where one has.

    Raises:
        InvalidReference: several contents begin so; the message lists them.
    """
    match = _DIGITS.fullmatch(text)
    if match is None:
        return None
    digits = match[2]
    found = [] if match[1] else reader.all(_BY_ID, first=digits, after=f"{digits}g")
    found = found or reader.all(_BY_DIGEST, first=f"sha256:{digits}", after=f"sha256:{digits}g")
    if len({digest for _, _, digest, _ in found}) > 1:
        listed = "; ".join(_described(reader, row) for row in found[:_LISTED])
        raise InvalidReference(f"'{text[:72]}' begins several ids.", remedy=f"Give more of it: {listed}.")
    values = [str(value) for value, *_ in found]
    named = [value for value in values if rows.naming_value(reader, value)]
    return next(iter(named or values), None)


def _described(reader: Transaction, row: Row) -> str:
    value, kind, digest, run = row
    named = [f"{each[2]}:v{each[3]}" for each in rows.naming_value(reader, value)]
    made = named or ([f"of run {run}"] if run else [])
    return " ".join([value, f"({kind} {digest[:19]})", *made])
