"""Progress bars off: a run's log is a file, in which each redrawn bar is a line."""

from __future__ import annotations


def quiet_progress() -> None:
    """Let transformers and datasets draw no progress bars in this process."""
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()
