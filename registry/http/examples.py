"""Examples for the documentation of the API, by the name of the parameter."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, Any] = {
    "after": "support-bot:v7",
    "alias": "production",
    "artifact": "support-bot",
    "before": "support-bot:v6",
    "deployment": "router",
    "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "event_id": "5f0c8a1e2b7d4c3fa9e1d2c3b4a59687",
    "expect": 6,
    "expect_generation": 3,
    "generation": 3,
    "name": "support-bot",
    "pattern": "support-*",
    "reason": "better on the held-out set",
    "reference": "support-bot:v7",
    "run": "3fa85f645717",
    "tags": {"team": "support"},
    "worker": "gpu-1-1f2e3d4c",
}
