"""Progress bars off: a run's log is a file, in which each redrawn bar is a line."""

from __future__ import annotations

import os


def quiet_progress() -> None:
    """Let tqdm, transformers and datasets draw no bars in this process. Call it before they are imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()
