"""Which rollouts are open, and how each goes on."""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Target
from serving.engine import Phase
from serving.planning.view import View, attempts_key, loaded
from serving.preflight import refusals
from serving.state import Begin, Check, DropRoute, Fail, Finish, Flip, Forget, Step, fingerprint_of

MOST_ATTEMPTS = 2  # of a rollout whose cause of failure is not certain
MOST_BASE_STARTS = 3  # of a new base, before the old one is started again


def begin_rollouts(view: View) -> Iterator[Step]:
    for served, target in view.desired.targets().items():
        current = view.observed.open.get(served)
        if target is None:
            if current is not None and current.state is RolloutState.STARTED:
                yield Finish(current, RolloutState.SUPERSEDED, "what it followed is gone")
            elif current is None and served not in view.observed.table.routes:
                view.waiting.append(f"{served or 'the base'}: its alias does not exist yet")
        elif _needs_beginning(view, current, view.observed.latest.get(served), target):
            yield Begin(target)
    yield from _end_undeclared(view)


def _needs_beginning(view: View, current: Rollout | None, latest: Rollout | None, target: Target) -> bool:
    if current is None:
        return latest is None or latest.target != target
    if current.target == target:
        return False
    # A decided route is carried to its end first, as long as there is a replica to take it.
    return current.state is RolloutState.STARTED or not view.replicas_in(Phase.READY)


def _end_undeclared(view: View) -> Iterator[Step]:
    for served, rollout in view.observed.open.items():
        if served not in view.desired.targets():
            yield Finish(rollout, RolloutState.SUPERSEDED, "the name is no longer served")


def end_rollouts(view: View) -> Iterator[Step]:
    for rollout in view.observed.open.values():
        yield Finish(rollout, RolloutState.SUPERSEDED, "the deployment was removed")


def drop_routes(view: View) -> Iterator[Step]:
    wanted = {} if view.desired.removed else view.desired.targets()
    for served in view.observed.table.routes:
        if served not in wanted:
            yield DropRoute(served)


def forget(view: View) -> Iterator[Step]:
    if view.observed.latest:
        yield Forget()


def advance_base(view: View) -> Iterator[Step]:
    rollout = view.observed.open.get(BASE)
    if rollout is None or rollout.state is not RolloutState.STARTED:
        return
    candidate = loaded(rollout.target)
    failure = _failure(view, rollout, candidate.digest, candidate.digest) or _start_failure(view, candidate)
    if failure is not None:
        yield Fail(rollout, *failure)
        return
    checks = list(_check_set(view, rollout, candidate))
    if checks or not view.set_fits(candidate):
        yield from checks[:1]
        return
    yield from _bring_everywhere(view, rollout, candidate, [candidate, *view.adapters()])


def _check_set(view: View, rollout: Rollout, base: Loaded) -> Iterator[Step]:
    """The base and what is served on it move as one set: each adapter must fit the new base."""
    current = view.observed.table.base
    if current is None or current.digest == base.digest:
        return
    for version in view.adapters():
        findings = view.observed.checked.get((version.digest, base.digest))
        if findings is None:
            lacking = next((v for v in (version, base) if v.digest not in view.observed.staged), None)
            if lacking is None:
                yield Check(version, base, rollout)
            else:
                yield from view.stage(lacking, rollout)
        elif refusals(findings):
            reason = f"{version.ref} does not fit {base.ref}: {refusals(findings)[0].message}"
            yield Fail(rollout, reason, True)


def _start_failure(view: View, candidate: Loaded) -> tuple[str, bool] | None:
    failed = view.observed.attempts.get(attempts_key(replica=0))
    current = view.observed.table.base
    if failed is None or failed.count < MOST_BASE_STARTS or current is None:
        return None  # without an old base to go back to, it is tried until somebody mends it
    if current.digest == candidate.digest:
        return None
    return f"the engine did not start with {candidate.ref}: {failed.reason}", False


def advance_rollouts(view: View) -> Iterator[Step]:
    base = view.observed.table.base
    if base is None or BASE in view.observed.open:
        return
    for served, rollout in view.observed.open.items():
        if rollout.state is RolloutState.STARTED and served in view.desired.serves:
            yield from _advance(view, rollout, base)


def _advance(view: View, rollout: Rollout, base: Loaded) -> Iterator[Step]:
    version = loaded(rollout.target)
    failure = _failure(view, rollout, version.digest, base.digest)
    findings = view.observed.checked.get((version.digest, base.digest))
    if version.digest == base.digest:
        yield Flip(rollout)
    elif failure is not None:
        yield Fail(rollout, *failure)
    elif not view.may_try(attempts_key(rollout), f"{version.ref}"):
        return
    elif version.digest not in view.observed.staged:
        yield from view.stage(version, rollout)
    elif findings is None:
        yield Check(version, base, rollout)
    elif refusals(findings):
        yield Fail(rollout, "; ".join(finding.message for finding in refusals(findings)), True)
    else:
        yield from _bring_everywhere(view, rollout, base, [version])


def _bring_everywhere(view: View, rollout: Rollout, base: Loaded, versions: list[Loaded]) -> Iterator[Step]:
    """Load and probe on every ready replica that runs ``base``; when none lacks anything, flip."""
    wanted = fingerprint_of(base, view.desired.engine)
    ready = [(i, seen) for i, seen in view.replicas_in(Phase.READY) if seen.fingerprint == wanted]
    if not ready:
        view.wait(f"{rollout.target.ref}: no replica is ready for it")
        return
    lacking = [(i, seen, v) for i, seen in ready for v in versions if not view.is_usable(seen, v)]
    if not lacking:
        yield Flip(rollout)
    elif view.may_try(attempts_key(rollout), rollout.target.ref):
        seen_replicas = set()
        for index, seen, version in lacking:
            if index not in seen_replicas:
                seen_replicas.add(index)
                yield view.bring(index, seen, version, rollout)


def _failure(view: View, rollout: Rollout, digest: str, base_digest: str) -> tuple[str, bool] | None:
    """Why the rollout must be given up, and whether that is certain."""
    blocked = view.observed.blocked.get((digest, base_digest))
    if blocked is not None:
        return f"it is blocked: {blocked}", False
    attempts = view.observed.attempts.get(attempts_key(rollout))
    if attempts and (attempts.certain or attempts.fatal or attempts.count >= MOST_ATTEMPTS):
        return attempts.reason, attempts.certain
    return None
