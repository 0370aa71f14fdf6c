"""Connecting what runs for long: it waits for a database that is away, as everything else does later on."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from registry.cli.output import Output
from registry.errors import DatabaseUnavailable
from registry.protocol import Registry

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 15.0  # between two tries; each wait is twice the one before


def connected(out: Output, say: Callable[[str], None]) -> Registry:
    """The registry, once it can be reached. ``say`` is told why it cannot, and when it is tried again.

    A database that is a file is not waited for: nobody brings it back.

    Raises:
        DatabaseUnavailable: the file cannot be used.
        PodiumError: anything else that waiting does not mend.
    """
    settings = out.settings
    is_file = settings.server is None and settings.database_url.startswith("sqlite")

    def comes_back(error: BaseException) -> bool:
        return isinstance(error, DatabaseUnavailable) and not is_file

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = state.next_action.sleep if state.next_action else 0.0
        if isinstance(error, DatabaseUnavailable):
            say(f"{error.message} {error.remedy} Trying again in {wait:g} s.")

    wait = wait_exponential(FIRST_SECONDS, max=LONGEST_SECONDS)
    retrying = Retrying(retry=retry_if_exception(comes_back), wait=wait, before_sleep=tell, reraise=True)
    return retrying(lambda: out.registry)
