"""The kinds of content, and what each requires of its files."""

from __future__ import annotations

from enum import StrEnum

from registry.content.kinds.adapter import check_adapter
from registry.content.kinds.exclusions import drop_trainer_leftovers, refuse_pickles
from registry.content.kinds.model import check_model
from registry.content.kinds.report import check_report
from registry.content.kinds.single import check_single
from registry.content.kinds.weights import check_weights
from registry.content.scan import Scan
from registry.errors import InvalidContent

__all__ = ["Kind", "validate"]


class Kind(StrEnum):
    """What an artifact's versions are."""

    ADAPTER = "adapter"  # a PEFT adapter: adapter_config.json and safetensors
    MODEL = "model"  # a whole model: config.json and safetensors
    DATASET = "dataset"  # any files
    CHECKPOINT = "checkpoint"  # the state of a training run; may hold pickles, and is never served
    REPORT = "report"  # an evaluation: report.json, and whatever it rests on
    BUNDLE = "bundle"  # code
    DIR = "dir"  # any folder
    FILE = "file"  # one file of any sort


_CHECKS = {
    Kind.ADAPTER: check_adapter,
    Kind.MODEL: check_model,
    Kind.CHECKPOINT: check_weights,
    Kind.REPORT: check_report,
    Kind.FILE: check_single,
}


def validate(kind: Kind, scan: Scan) -> Scan:
    """Return the files of ``scan`` that belong to content of this kind, with notices for what was left out.

    Raises:
        InvalidContent: a file is missing or is not what the kind requires; the message names it.
    """
    kept = drop_trainer_leftovers(scan, with_checkpoints=kind in (Kind.ADAPTER, Kind.MODEL))
    if not kept.files:
        raise InvalidContent(
            f"Nothing is left of {scan.root} to push.",
            remedy="Check the path; see the notices.",
            notices=kept.notices,
        )
    if kind is not Kind.CHECKPOINT:
        refuse_pickles(kept)
    check = _CHECKS.get(kind)
    if check is not None:
        check(kept)
    return kept
