"""Which processes run, with which setup.

Processes of one setup are one colour. A new colour is started beside the one that serves, is brought up to
date, and takes over; the old one is drained to zero and stopped. Where two do not fit, the old one must go
first, and that needs leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from registry.deployments import BASE
from serving.engine import Observation, Phase
from serving.planning.accounts import attempts_key
from serving.planning.view import View
from serving.state import Drain, Setup, Start, Step, Stop

SILENCE_SECONDS = 30.0  # without an answer, before a process that lives is ended
DRAIN_SECONDS = 120.0  # for running answers, before a process is ended under them

Replica = tuple[int, Observation]


def run_processes(view: View) -> Iterator[Step]:
    wanted, recorded = view.wanted(), view.recorded()
    if wanted is None:
        return
    serving = view.of(recorded)
    if recorded is not None and is_moving(view) and serving:
        for index, seen in serving:
            yield from _keep(view, index, seen, recorded)
        yield from _move(view, serving, wanted)
    else:
        yield from _fill(view, wanted, replacing=is_moving(view))
    colours = {setup.fingerprint for setup in (wanted, recorded) if setup is not None}
    for index, seen in sorted(view.observed.replicas.items()):
        if seen.phase is not Phase.ABSENT and seen.fingerprint not in colours:
            yield from _retire_unknown(view, index, seen)


def is_moving(view: View) -> bool:
    """Whether another setup than the recorded one should serve."""
    wanted, recorded = view.wanted(), view.recorded()
    return wanted is not None and recorded is not None and wanted.fingerprint != recorded.fingerprint


def obstacle(view: View) -> str | None:
    """Why the wanted setup cannot be started beside the one that serves."""
    wanted = view.wanted()
    if not is_moving(view) or not view.of(view.recorded()) or view.of(wanted):
        return None
    if view.observed.front is None:
        return "without HAProxy the process that serves must end before another can take its address"
    if not view.observed.room.is_enough_for(view.desired.replicas):
        return f"it does not fit into memory: {view.observed.room.describe(view.desired.replicas)}"
    return None


def can_roll(view: View) -> bool:
    """Whether processes can be replaced one by one: old and new serve the same versions for that while."""
    wanted, recorded = view.wanted(), view.recorded()
    same_base = wanted is not None and recorded is not None and wanted.base == recorded.base
    return same_base and view.observed.front is not None and view.desired.replicas > 1


def _move(view: View, serving: Sequence[Replica], wanted: Setup) -> Iterator[Step]:
    """Bring up the wanted setup while another one serves."""
    have = view.of(wanted)
    for index, seen in have:
        yield from _keep(view, index, seen, wanted)
    why = obstacle(view)
    if why is None and not (have and len(serving) < view.desired.replicas and can_roll(view)):
        yield from _start_missing(view, wanted, view.desired.replicas - len(have))
    elif can_roll(view):
        yield from _roll(view, serving, have, wanted)
    elif view.desired.allow_downtime:
        for index, seen in serving:
            yield from _retire(view, index, seen, f"it makes way for {wanted.base.ref}: {why}")
    else:
        view.wait(f"{wanted.base.ref} with the declared settings is not started: {why}")


def _roll(view: View, serving: Sequence[Replica], have: Sequence[Replica], wanted: Setup) -> Iterator[Step]:
    """Replace one process after the other; never begin with the next before all others serve."""
    missing = view.desired.replicas - len(serving) - len(have)
    if missing > 0:
        yield from _start_missing(view, wanted, missing, replacing=True)
    elif all(seen.phase is Phase.READY and view.is_up_to_date(seen) for _, seen in (*serving, *have)):
        index, seen = serving[-1]
        yield from _retire(view, index, seen, "it is replaced")


def _fill(view: View, setup: Setup, *, replacing: bool) -> Iterator[Step]:
    """As many processes of a setup as are declared."""
    have = view.of(setup)
    keep, surplus = _divide(have, view.desired.replicas)
    for index, seen in keep:
        yield from _keep(view, index, seen, setup)
    missing = view.desired.replicas - len(keep)
    yield from _start_missing(view, setup, missing, replacing=replacing)
    for index, seen in surplus:
        yield from _retire(view, index, seen)


def _divide(have: Sequence[Replica], count: int) -> tuple[Sequence[Replica], Sequence[Replica]]:
    """Those that stay, and those that are too many: first what does not serve, then what came last."""
    best = sorted(have, key=lambda replica: (replica[1].phase is not Phase.READY, replica[0]))
    return sorted(best[:count], key=lambda replica: replica[0]), best[count:]


def _start_missing(view: View, setup: Setup, count: int, *, replacing: bool = False) -> Iterator[Step]:
    """Start more processes; those that replace others have the room that these had."""
    if count <= 0:
        return
    if setup.base.digest not in view.observed.staged:
        yield from view.stage(setup.base, view.observed.open.get(BASE))
        return
    free = [index for index in view.slots if _is_free(view.replica(index))]
    allowed = count if replacing else _allowed(view, count)
    for index in free[:allowed]:
        yield from _start(view, index, setup)


def _is_free(seen: Observation) -> bool:
    return seen.phase is Phase.ABSENT or (seen.phase is Phase.DEAD and seen.fingerprint is None)


def _allowed(view: View, count: int) -> int:
    """How many of ``count`` may be started: as many as fit, and one at least where nothing runs."""
    fits = view.observed.room.fits
    living = [s for s in view.observed.replicas.values() if s.phase not in (Phase.ABSENT, Phase.DEAD)]
    # Those that are starting have not taken their memory yet.
    left = count if fits is None else fits - sum(seen.phase is Phase.STARTING for seen in living)
    allowed = max(0 if living else 1, min(count, left))
    if allowed < count:
        lacking = count - allowed
        figures = view.observed.room.describe(lacking)
        view.wait(f"{lacking} of {view.desired.replicas} replicas must wait: {figures}")
    return allowed


def _start(view: View, index: int, setup: Setup) -> Iterator[Step]:
    if view.may_try(attempts_key(replica=index), f"replica {index}"):
        yield Start(index, setup)


def _keep(view: View, index: int, seen: Observation, setup: Setup) -> Iterator[Step]:
    """Let a process live, or live again."""
    match seen.phase:
        case Phase.DEAD:
            if setup.base.digest in view.observed.staged:
                yield from _start(view, index, setup)
            else:
                yield from view.stage(setup.base)
        case Phase.SILENT:
            yield from _end_silence(view, index)
        case Phase.DRAINING:
            yield from _finish_draining(view, index, seen)
        case Phase.STARTING:
            view.wait(f"replica {index}: it is starting")


def _end_silence(view: View, index: int) -> Iterator[Step]:
    if _waited(view, index) >= SILENCE_SECONDS:
        yield Stop(index, "it does not answer")
    else:
        view.wait(f"replica {index}: it does not answer")


def _finish_draining(view: View, index: int, seen: Observation) -> Iterator[Step]:
    if not seen.in_flight and not seen.arriving:
        yield Stop(index, "it is drained")
    elif _waited(view, index) >= DRAIN_SECONDS:
        yield Stop(index, f"its answers did not end within {DRAIN_SECONDS:.0f} s")
    else:
        view.wait(f"replica {index}: {sum(seen.in_flight.values())} answers are running")


def _waited(view: View, index: int) -> float:
    return view.now - view.observed.since.get(index, view.now)


def _retire_unknown(view: View, index: int, seen: Observation) -> Iterator[Step]:
    """End a process of a colour that is past; one that serves goes on until another does."""
    if seen.phase is Phase.DEAD and seen.fingerprint is None:
        return
    if seen.phase is Phase.READY and seen.map and view.observed.front and not view.up_to_date():
        view.wait(f"replica {index}: it serves until another does")
    else:
        yield from _retire(view, index, seen)


def shut_down(view: View) -> Iterator[Step]:
    for index, seen in sorted(view.observed.replicas.items()):
        if seen.phase is not Phase.ABSENT:
            yield from _retire(view, index, seen)


def _retire(view: View, index: int, seen: Observation, reason: str = "") -> Iterator[Step]:
    """Take a process out of the traffic, then drain it, then stop it."""
    if seen.phase is Phase.READY and seen.map:
        view.leaving.add(index)
        if view.is_unrouted(index, seen):
            yield Drain(index, reason)
        else:
            view.wait(f"replica {index}: requests are still on their way to it")
    elif seen.phase is Phase.DRAINING:
        yield from _finish_draining(view, index, seen)
    elif seen.phase is Phase.SILENT:
        yield from _end_silence(view, index)
    else:
        yield Stop(index, reason or "it is no longer wanted")
