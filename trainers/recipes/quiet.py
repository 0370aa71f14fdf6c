"""Progress bars off, and a line that worries without reason: a run's log is a file that people read."""

from __future__ import annotations

import logging
import os


def quiet_progress() -> None:
    """Let tqdm, transformers and datasets draw no bars in this process. Call it before they are imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported
    # PEFT imports it whether it is used or not, and it warns of a kernel that only makes it faster.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import datasets
    from transformers.utils import logging as transformers_logging

    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
