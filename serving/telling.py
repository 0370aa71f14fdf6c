"""What a controller does and what it has come to, in words for the terminal."""

from __future__ import annotations

from serving.state import (
    Apply,
    CloseFront,
    Drain,
    Load,
    Observed,
    Probe,
    Route,
    Start,
    Step,
    Stop,
    Switch,
    Unload,
)

__all__ = ["describe", "summary"]


def summary(observed: Observed) -> str:
    """Where clients find what is served, in one line."""
    answering = [seen.endpoint for seen in observed.replicas.values() if seen.map and seen.endpoint]
    front = observed.front
    endpoints = answering if front is None else [front.address] if front.address and front.routed else []
    routes = observed.table.routes
    names = [f"{served} = {route.current.ref}" for served, route in sorted(routes.items()) if served]
    if not endpoints:
        return ""
    return f"{', '.join(names) or 'no names yet'} at {' '.join(endpoints)}"


def describe(step: Step) -> str:
    """A step in words, for the terminal."""
    name = type(step).__name__.lower()
    match step:
        case Load() | Probe():
            return f"{name} {step.version.ref} on replica {step.replica}"
        case Start():
            return f"start replica {step.replica} with {step.setup.base.ref}"
        case Switch():
            return f"switch to {step.setup.base.ref}"
        case Route():
            return f"send requests to {', '.join(f'replica {i}' for i in sorted(step.backends)) or 'nobody'}"
        case CloseFront():
            return "stop the proxy"
        case Stop():
            return f"stop replica {step.replica}: {step.reason}"
        case Unload():
            return f"unload {step.ref} from replica {step.replica}"
        case Drain():
            return f"drain replica {step.replica}" + (f": {step.reason}" if step.reason else "")
        case Apply():
            return f"apply map {step.routes.fence.generation} on replica {step.replica}"
        case _:
            return _describe_record(name, step)


def _describe_record(name: str, step: Step) -> str:
    rollout = getattr(step, "rollout", None)
    target = getattr(step, "target", None) or (rollout.target if rollout else None)
    subject = getattr(step, "version", None) or target
    words = [name, subject.ref if subject else str(getattr(step, "served", getattr(step, "digest", "")))]
    state, reason = getattr(step, "state", None), getattr(step, "reason", "")
    if state is not None:
        words = [state.value, target.ref if target else ""]
    return " ".join(words) + (f": {reason}" if reason else "")
