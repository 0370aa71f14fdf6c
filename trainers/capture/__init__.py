"""What made a run: its code, where that came from, and the environment that it ran in. No secrets in any of
it.
"""

from trainers.capture.bundle import Bundle, make_bundle
from trainers.capture.environment import describe_environment
from trainers.capture.secrets import scrub, scrub_values
from trainers.capture.source import describe_source

__all__ = ["Bundle", "describe_environment", "describe_source", "make_bundle", "scrub", "scrub_values"]
