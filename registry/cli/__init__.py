"""The command `podium`: its root, and the registry's own commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit. Who stops it while it still loads sees no traceback either."""
    try:
        from registry.cli import root
    except KeyboardInterrupt:
        sys.exit(130)
    root.main(arguments)
