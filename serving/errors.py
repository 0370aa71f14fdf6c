"""Errors of serving.

registry.errors.Refused
`-- AdapterRefused       preflight or the engine found that the version cannot be served
registry.errors.StaleAuthority
`-- StaleController      a replica has seen a newer controller, or has booted again
registry.errors.Unavailable
|-- EngineUnavailable    a replica does not start, does not answer, or died
`-- ProbeFailed          a loaded version does not answer as itself
"""

from __future__ import annotations

from registry.errors import Refused, StaleAuthority, Unavailable

__all__ = ["AdapterRefused", "EngineUnavailable", "ProbeFailed", "StaleController"]


class AdapterRefused(Refused):
    """The version cannot be served by this engine with this base."""


class StaleController(StaleAuthority):
    """A replica refused a change: a newer controller leads it, or it has booted again since."""


class EngineUnavailable(Unavailable):
    """A replica of the engine does not start, does not answer, or has died."""


class ProbeFailed(Unavailable):
    """A version was loaded but does not answer as itself."""
