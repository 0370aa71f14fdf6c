"""A PEFT adapter."""

from __future__ import annotations

from registry.content.kinds.documents import require_object
from registry.content.kinds.weights import require_weights
from registry.content.scan import Scan
from registry.errors import InvalidContent

_CONFIG = "adapter_config.json"


def check_adapter(scan: Scan) -> None:
    """Require ``adapter_config.json`` with a ``peft_type``, and sound safetensors beside it."""
    config = require_object(scan, _CONFIG, "an adapter")
    if not isinstance(config.get("peft_type"), str):
        raise InvalidContent(
            f"{_CONFIG} does not say its peft_type.",
            remedy="Save the adapter with PEFT's save_pretrained.",
            path=_CONFIG,
        )
    require_weights(scan, "an adapter")
