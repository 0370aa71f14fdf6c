"""Amounts that recipes take, with what they may be: a worker is not begun for one that cannot be used."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

#: How many of something: 1 or more.
Count = Annotated[int, Field(ge=1)]
#: How many of something, or none of it.
CountOrNone = Annotated[int, Field(ge=0)]
#: More than 0, and finite.
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
