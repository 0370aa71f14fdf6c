"""What made a run: its code, where that came from, the environment it ran in. No secrets in any of it."""

from registry.capture.bundle import Bundle, make_bundle
from registry.capture.environment import describe_environment
from registry.capture.secrets import scrub, scrub_values
from registry.capture.source import describe_source

__all__ = ["Bundle", "describe_environment", "describe_source", "make_bundle", "scrub", "scrub_values"]
