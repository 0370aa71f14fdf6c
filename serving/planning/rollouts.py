"""Which rollouts are open, and how each goes on."""

from __future__ import annotations

from collections.abc import Iterator

from registry.deployments import BASE, Loaded, Rollout, RolloutState, Target
from serving.engine import Phase
from serving.planning.accounts import attempts_key
from serving.planning.view import View, loaded
from serving.preflight import refusals
from serving.state import Begin, Check, DropRoute, Fail, Finish, Flip, Forget, Step

MOST_ATTEMPTS = 2  # of a rollout whose cause of failure is not certain


def begin_rollouts(view: View) -> Iterator[Step]:
    for served, target in view.desired.targets().items():
        current = view.observed.open.get(served)
        if target is None:
            if current is not None and current.state is RolloutState.STARTED:
                yield Finish(current, RolloutState.SUPERSEDED, "what it followed is gone")
            elif current is None and served not in view.observed.table.routes:
                view.needed.append(f"{served or 'the base'}: what it follows does not exist yet")
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


def advance_rollouts(view: View) -> Iterator[Step]:
    base = view.observed.table.base
    if base is None:
        return
    for served, rollout in view.observed.open.items():
        if served == BASE or rollout.state is not RolloutState.STARTED or served not in view.desired.serves:
            continue
        yield from _advance(view, rollout, base)


def _advance(view: View, rollout: Rollout, base: Loaded) -> Iterator[Step]:
    """Bring one name's rollout further: on the base that serves, or else together with the coming one."""
    version, coming = loaded(rollout.target), view.coming_base()
    if version.digest == base.digest:
        yield Flip(rollout)
    elif coming is not None and version.digest == coming.digest:
        view.wait(f"{version.ref}: it goes live with the base")
    elif coming is not None and view.is_refused(version.digest, base.digest):
        yield from _advance_with(view, rollout, version, coming)
    else:
        yield from _advance_on(view, rollout, version, base)


def _advance_on(view: View, rollout: Rollout, version: Loaded, base: Loaded) -> Iterator[Step]:
    failure = failure_of(view, rollout, version.digest, base.digest)
    findings = view.observed.checked.get((version.digest, base.digest))
    if failure is not None:
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
        yield from _bring_everywhere(view, rollout, version)


def _advance_with(view: View, rollout: Rollout, version: Loaded, coming: Loaded) -> Iterator[Step]:
    """It does not fit the base that serves: see whether it fits the coming one."""
    findings = view.observed.checked.get((version.digest, coming.digest))
    lacking = [v for v in (version, coming) if v.digest not in view.observed.staged]
    failure = failure_of(view, rollout, version.digest, coming.digest)
    if failure is not None:
        yield Fail(rollout, *failure)
    elif lacking:
        yield from view.stage(lacking[0], rollout)
    elif findings is None:
        yield Check(version, coming, rollout)
    elif refusals(findings):
        yield Fail(rollout, "; ".join(finding.message for finding in refusals(findings)), True)
    else:
        view.wait(f"{version.ref}: it goes live with the base")


def _bring_everywhere(view: View, rollout: Rollout, version: Loaded) -> Iterator[Step]:
    """Load and probe on every ready replica that serves; when none lacks it, flip."""
    ready = view.serving()
    if not ready:
        view.wait(f"{rollout.target.ref}: no replica is ready for it")
        return
    lacking = [(index, seen) for index, seen in ready if not view.is_usable(seen, version)]
    if not lacking:
        yield Flip(rollout)
    elif view.may_try(attempts_key(rollout), rollout.target.ref):
        for index, seen in lacking:
            yield view.bring(index, seen, version, rollout)


def failure_of(view: View, rollout: Rollout, digest: str, base_digest: str) -> tuple[str, bool] | None:
    """Why the rollout must be given up, and whether that is certain."""
    blocked = view.observed.blocked.get((digest, base_digest))
    if blocked is not None:
        return f"it is blocked: {blocked}", False
    attempts = view.observed.attempts.get(attempts_key(rollout))
    if attempts and (attempts.certain or attempts.fatal or attempts.count >= MOST_ATTEMPTS):
        return attempts.reason, attempts.certain
    return None
