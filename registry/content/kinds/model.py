"""A whole model."""

from __future__ import annotations

from registry.content.kinds.documents import require_object
from registry.content.kinds.weights import require_weights
from registry.content.scan import Scan


def check_model(scan: Scan) -> None:
    """Require ``config.json`` and sound safetensors beside it."""
    require_object(scan, "config.json", "a model")
    require_weights(scan, "a model")
