"""Apps: the declared objects of one Python file, and making them so."""

from registry.apps.app import App, Deployable

__all__ = ["App", "Deployable"]
