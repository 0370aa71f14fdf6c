"""How another base, or other settings of the engine, come to serve.

The base and what is served on it move as one set: everything that is served must fit the new base, and
everything is loaded and probed on every new process before the one decision that switches over.
"""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import BASE, Loaded, Rollout, RolloutState
from serving.engine import Phase
from serving.planning.accounts import attempts_key, setup_key
from serving.planning.processes import can_roll, is_moving, obstacle
from serving.planning.rollouts import failure_of
from serving.planning.view import View, loaded
from serving.preflight import refusals
from serving.state import Check, Fail, Setup, Step, Switch


def advance_base(view: View) -> Iterator[Step]:
    rollout = view.observed.open.get(BASE)
    if rollout is None or rollout.state is not RolloutState.STARTED:
        return
    candidate = loaded(rollout.target)
    failure = failure_of(view, rollout, candidate.digest, candidate.digest) or _start_failure(view, candidate)
    if failure is not None:
        yield Fail(rollout, *failure)
        return
    checks = list(_check_set(view, rollout, candidate))
    if checks or not view.set_fits(candidate):
        yield from checks[:1]
        return
    yield from _bring_set(view, Setup(candidate, view.desired.engine), (rollout, *view.joined()))


def advance_settings(view: View) -> Iterator[Step]:
    """Other settings, or a restart, without a promotion: nobody waits for it, and no rollout can fail."""
    wanted, rollout = view.wanted(), view.observed.open.get(BASE)
    if wanted is None or not is_moving(view) or (rollout and rollout.state is RolloutState.STARTED):
        return
    yield from _bring_set(view, wanted, ())


def _check_set(view: View, rollout: Rollout, base: Loaded) -> Iterator[Step]:
    """Each adapter must fit the new base."""
    if view.coming_base() is None:
        return
    for version in view.set_on(base):
        findings = view.observed.checked.get((version.digest, base.digest))
        if findings is None:
            lacking = next((v for v in (version, base) if v.digest not in view.observed.staged), None)
            if lacking is None:
                yield Check(version, base, rollout)
            else:
                yield from view.stage(lacking, rollout)
        elif refusals(findings) and view.is_changing():
            view.wait(f"{base.ref}: {version.ref} does not fit it, and another may take its place")
        elif refusals(findings):
            reason = f"{version.ref} does not fit {base.ref}: {refusals(findings)[0].message}"
            yield Fail(rollout, reason, True)


def _start_failure(view: View, candidate: Loaded) -> tuple[str, bool] | None:
    """Why the candidate cannot be started where something else serves that can go on."""
    setup, recorded = Setup(candidate, view.desired.engine), view.recorded()
    if recorded is None or recorded.fingerprint == setup.fingerprint:
        return None  # without an old setup to go back to, it is tried until somebody mends it
    if view.is_given_up(setup):
        failed = view.observed.attempts[setup_key(setup.fingerprint)]
        return f"the engine did not start with {candidate.ref}: {failed.reason}", False
    why = obstacle(view)
    if why is None or can_roll(view) or view.desired.allow_downtime:
        return None
    advice = "Declare the deployment with allow_downtime=True to have the old process stopped first."
    return f"{candidate.ref} cannot start beside what serves: {why}. Nothing was stopped. {advice}", False


def _bring_set(view: View, setup: Setup, rollouts: tuple[Rollout, ...]) -> Iterator[Step]:
    """Load and probe the whole set on every process of a setup; when nothing lacks anything, switch."""
    ready = [(i, seen) for i, seen in view.of(setup) if seen.phase is Phase.READY]
    needed = _needed(view)
    if len(ready) < needed:
        view.wait(f"{setup.base.ref}: {len(ready)} of {needed} new replicas are ready")
        return
    versions = [setup.base, *view.set_on(setup.base)]
    lacking = [(i, seen, v) for i, seen in ready for v in versions if not view.is_usable(seen, v)]
    if not lacking:
        yield Switch(setup, rollouts)
        return
    rollout = rollouts[0] if rollouts else None
    begun: set[int] = set()
    for index, seen, version in lacking:
        account = attempts_key(rollout) if rollout else attempts_key(replica=index, ref=version.ref)
        if index not in begun and view.may_try(account, version.ref):
            begun.add(index)
            yield view.bring(index, seen, version, rollout)


def _needed(view: View) -> int:
    """How many new replicas must be ready: all, where the old ones can serve as long as that takes."""
    return view.desired.replicas if is_moving(view) and view.of(view.recorded()) else 1
