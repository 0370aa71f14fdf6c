"""Answers other than 200 that the middleware gives by itself."""

from __future__ import annotations

import json


class Problem(Exception):
    """A request that is not passed on, and why."""

    def __init__(
        self, status: int, kind: str, message: str, param: str | None = None, *, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> bytes:
        """The error in the shape that OpenAI clients read."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code or self.status,
        }
        return json.dumps({"error": error}).encode()
