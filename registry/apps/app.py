"""What an app file declares.

    app = App("support")

    rule = Threshold(metric="accuracy", on="held-out:v1", at_least=0.8)
    accurate = Gate("accurate", "ticket-router", "production", rule)
    router = Deployment("router", base="smollm2:v1", serves={"ticket-router": "ticket-router:production"})

    @subscribe(OnPromotion("ticket-router", alias="production"))
    def announce(event, context): ...

Every deployable object that stands at the top level of the file belongs to its app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from registry.references import check_name


@runtime_checkable
class Deployable(Protocol):
    """An object that `podium deploy` stores: a gate, a trigger, a subscription, a deployment."""

    @property
    def deployable(self) -> str:
        """Its kind, such as ``gate``."""

    @property
    def name(self) -> str: ...

    def to_json(self) -> Mapping[str, Any]:
        """The declaration as plain JSON values, without its name."""


@dataclass(frozen=True, slots=True)
class App:
    """Names what one file declares. A file without one is called after itself."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)
