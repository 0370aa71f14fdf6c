"""The declared objects of the demo: `podium deploy examples/support.py`.

Each new version of `ticket-router` is judged without being asked. It may become `production` when it is good
enough, better than its base, and not worse than the version that is live. Serving follows the alias.
"""

from __future__ import annotations

from registry import App, BetterThanBase, BetterThanIncumbent, Gate, Threshold
from registry.events import RolloutChanged
from serving import VLLM, Deployment
from triggers import Context, OnArtifact, OnRollout, Received, Trigger, queue_run, subscribe

TICKETS = "tickets:v1"

app = App("support")

judge = Trigger(
    "judge",
    OnArtifact("ticket-router", kind="adapter"),
    queue_run("evaluate", subject="{ref}", data=TICKETS),
)

accurate = Gate(
    "accurate",
    "ticket-router",
    "production",
    Threshold(metric="accuracy", on=TICKETS, at_least=0.5),
)

better_than_base = Gate(
    "better-than-base",
    "ticket-router",
    "production",
    BetterThanBase(metric="accuracy", on=TICKETS, by=0.1),
)

# By the likelihood of the right queue: 120 tickets tell two good routers apart by it sooner than by accuracy.
no_worse_than_live = Gate(
    "no-worse-than-live",
    "ticket-router",
    "production",
    BetterThanIncumbent(metric="nll", on=TICKETS, tolerance=0.1),
)

router = Deployment(
    "router",
    base="smollm2:v1",
    serves={"ticket-router": "ticket-router:production"},
    engine=VLLM(max_lora_rank=16, args=("--max-model-len", "1024")),
)


@subscribe(OnRollout("ticket-router", state="live"))
def note_live(event: Received[RolloutChanged], context: Context) -> None:
    """Write on a version since when it answers."""
    assert event.ref is not None  # a rollout is always about a version
    with context.transaction() as registry:
        registry.catalog.tag(event.ref, {"live-since": event.at.isoformat(timespec="seconds")})
