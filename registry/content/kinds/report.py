"""An evaluation report. What stands in it is checked where its scores are kept."""

from __future__ import annotations

from registry.content.kinds.documents import require_object
from registry.content.scan import Scan


def check_report(scan: Scan) -> None:
    """Require ``report.json``."""
    require_object(scan, "report.json", "a report")
