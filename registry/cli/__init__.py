"""The command `podium`: its root, and the registry's own commands."""

from registry.cli.root import main

__all__ = ["main"]
