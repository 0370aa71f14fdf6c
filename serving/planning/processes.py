"""Which processes run, with which base."""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import BASE, Loaded
from serving.engine import Observation, Phase
from serving.planning.view import View, attempts_key
from serving.state import Drain, Start, Step, Stop, fingerprint_of

SILENCE_SECONDS = 30.0  # without an answer, before a process that lives is ended
DRAIN_SECONDS = 120.0  # for running answers, before a process is ended under them


def run_processes(view: View) -> Iterator[Step]:
    base = view.base_to_run()
    if base is None:
        return
    if base.digest not in view.observed.staged:
        yield from view.stage(base, view.observed.open.get(BASE))
        return
    wanted = fingerprint_of(base, view.desired.engine)
    for index in range(view.desired.replicas):
        yield from _run_process(view, index, view.replica(index), base, wanted)
    yield from _stop_surplus(view)


def _run_process(view: View, index: int, seen: Observation, base: Loaded, wanted: str) -> Iterator[Step]:
    waited = view.now - view.observed.since.get(index, view.now)
    match seen.phase:
        case Phase.ABSENT | Phase.DEAD:
            if view.may_try(attempts_key(replica=index), f"replica {index}"):
                yield Start(index, base, wanted)
        case Phase.SILENT:
            if waited >= SILENCE_SECONDS:
                yield Stop(index, "it does not answer")
            else:
                view.wait(f"replica {index}: it does not answer")
        case Phase.DRAINING:
            yield from _finish_draining(view, index, seen, waited)
        case Phase.STARTING:
            if seen.fingerprint != wanted:
                yield Stop(index, "another base or other settings are wanted")
            else:
                view.wait(f"replica {index}: it is starting")
        case Phase.READY:
            if seen.fingerprint != wanted:
                yield (Drain(index) if seen.map else Stop(index, "another base or other settings are wanted"))


def _finish_draining(view: View, index: int, seen: Observation, waited: float) -> Iterator[Step]:
    if not seen.in_flight:
        yield Stop(index, "it is drained")
    elif waited >= DRAIN_SECONDS:
        yield Stop(index, f"its answers did not end within {DRAIN_SECONDS:.0f} s")
    else:
        view.wait(f"replica {index}: {sum(seen.in_flight.values())} answers are running")


def _stop_surplus(view: View) -> Iterator[Step]:
    for index, seen in view.observed.replicas.items():
        if index >= view.desired.replicas and seen.phase is not Phase.ABSENT:
            yield from _shut_down(view, index, seen)


def shut_down(view: View) -> Iterator[Step]:
    for index, seen in view.observed.replicas.items():
        if seen.phase is not Phase.ABSENT:
            yield from _shut_down(view, index, seen)


def _shut_down(view: View, index: int, seen: Observation) -> Iterator[Step]:
    if seen.phase is Phase.READY and seen.map:
        yield Drain(index)
    elif seen.phase is Phase.DRAINING:
        yield from _finish_draining(view, index, seen, view.now - view.observed.since.get(index, view.now))
    else:
        yield Stop(index, "it is no longer wanted")
