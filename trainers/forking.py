"""Going on with a run, and running it anew from one of its steps on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from registry.errors import InvalidInput, PodiumError
from registry.protocol import Registry
from registry.runs import Run, RunRequest
from registry.steps import Change, Inside, find, kept, names
from trainers.asking import fork_record, with_earlier
from trainers.caching import code_of
from trainers.locating import load_task, split
from trainers.parameters import to_plain
from trainers.submitting import Located, locate, prepare
from trainers.tasks import Task


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on or begins, and what a person should know of it."""

    run: Run
    notices: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # tasks whose code is not what it was


def recover(registry: Registry, run: str, *, take_over: bool = False, recorded_code: bool = False) -> Resumed:
    """Queue a run again; its finished steps are reused.

    It goes on with its file as it is now, if that is on this machine and was changed, because what failed may
    have been mended there; with ``recorded_code`` as it was.

    Raises:
        RunRefused: it succeeded or was cancelled, or it lives and ``take_over`` is not given.
        InvalidApp: the file as it is now cannot be imported.
    """
    found = registry.runs.get(run)
    located = None if recorded_code else _as_it_is_now(registry, found)
    if located is None:
        return Resumed(registry.runs.recover(found.id, take_over=take_over))
    recovered = registry.runs.recover(found.id, code=located.code, take_over=take_over)
    changed = _changed_tasks(registry, found, located)
    return Resumed(recovered, (*located.notices, _tell(changed)), changed)


def rerun(
    registry: Registry,
    run: str,
    *,
    start: str | None = None,
    changes: Mapping[str, Any] | None = None,
    pool: str | None = None,
    recorded_code: bool = False,
) -> Resumed:
    """Queue a new run that reuses what came before the step ``start``; that and what follows is done anew.

    ``start`` is ``train``, or ``outer/train`` for a step of the step ``outer``; what came before it in
    ``outer`` is reused as well. ``changes`` are arguments of that step, or of one that it is in, by
    parameter. One that was handed on to the step is changed where it came from, unless a step that is reused
    was given it, too. What the run did differently because it was a fork itself, this one does as well.

    Raises:
        NotFound, InvalidInput: there is no such step or parameter; the message lists those that there are.
    """
    found = registry.runs.get(run)
    levels = _levels(registry, found, start)
    with ExitStack() as stack:
        located = None if recorded_code else _as_it_is_now(registry, found)
        changed = () if located is None else _changed_tasks(registry, found, located)
        notices = () if located is None else (*located.notices, _tell(changed))
        located = located or _recorded(registry, found, stack)
        divided = _divide(found, levels, located, changes or {})
        request = _request(registry, found, located, divided[0], pool)
    fork = {
        "of": found.id,
        "from": "/".join(level.name for level in levels) or None,
        "set": {name: str(value) for name, value in (changes or {}).items()},
        **_record(levels, divided[1:]),
    }
    if earlier := with_earlier(found.captured):
        fork["earlier"] = earlier
    request = replace(request, captured={**request.captured, "fork": fork})
    return Resumed(
        registry.steps.fork(request, [each.id for each in levels[0].kept] if levels else ()), notices, changed
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """A step with which a fork begins, or in which it does."""

    step: Run
    name: str  # among its siblings
    kept: Sequence[Run]  # those of its siblings that are reused


def _levels(registry: Registry, run: Run, start: str | None) -> list[_Level]:
    """The steps on the way to ``start``, from the top."""
    levels: list[_Level] = []
    for name in start.split("/") if start is not None else []:
        above = levels[-1].step if levels else run
        # Of one that was reused as a whole, the run that did it has the steps.
        steps = registry.steps.of(above.source or above.id)
        step = find(steps, name)
        levels.append(_Level(step, names(steps)[step.id], kept(steps, step)))
    return levels


def _record(levels: Sequence[_Level], changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the fork does differently below the pipeline, level by level, from within."""
    inside: Inside | None = None
    for above, below, change in zip(levels[-2::-1], levels[:0:-1], changes[:0:-1], strict=True):
        place = _place(above.step)
        reused = tuple(step.id for step in below.kept)
        inside = Inside(place, reused, _place(below.step), _change(below.step, change), inside)
    if not levels:
        return {}
    first = levels[0].step
    return fork_record(_place(first), _change(first, changes[0]), inside)


def _place(step: Run) -> str:
    assert step.place is not None, "a step has a place"
    return step.place


def _as_it_is_now(registry: Registry, run: Run) -> Located | None:
    """The run's code as it lies in its file now; None where that is not here or has not changed."""
    file, located = run.captured.get("file"), split(run.task)
    if run.code is None or file is None or located is None or not Path(file).is_file():
        return None
    now = locate(registry, f"{file}:{located[1]}")
    return now if now.code != run.code else None


def _recorded(registry: Registry, run: Run, stack: ExitStack) -> Located:
    """The run's code as it was, in a folder for a while."""
    if run.code is None:
        return Located(load_task(run.task), run.task)
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-code-"))) / "code"
    registry.catalog.materialise(run.code, root)
    source = run.captured.get("source")
    return Located(load_task(run.task, root), run.task, run.code, root=root, source=source)


def _changed_tasks(registry: Registry, run: Run, now: Located) -> tuple[str, ...]:
    """Those of the steps whose code is not what it was, and the pipeline, if its own text is not."""
    tasks = {step.task for step in registry.steps.of(run.id)}
    with tempfile.TemporaryDirectory(prefix="podium-code-") as scratch:
        before = Path(scratch) / "code"
        assert run.code is not None and now.root is not None
        registry.catalog.materialise(run.code, before)
        changed = {name for task in tasks for name in _changed(task, before, now.root)}
        return tuple(sorted(changed | {*_changed(run.task, before, now.root, alone=True)}))


def _tell(changed: tuple[str, ...]) -> str:
    if not changed:
        return "The code has changed since, but not that of the steps."
    return f"The code has changed since: {', '.join(changed)}. What is finished is reused all the same."


def _changed(task: str, before: Path, now: Path, *, alone: bool = False) -> list[str]:
    """The task's name, if what it reaches (or it ``alone``) differs between the two folders of code."""
    located = split(task)
    if located is None:
        return []
    file, name = located
    try:
        was, is_ = (code_of(root / file, name, root) for root in (before, now))
    except (PodiumError, OSError):
        return [name]  # it is gone from there, or was renamed
    if alone:
        return [name] if was[task] != is_[task] else []
    return [name] if was != is_ else []


def _divide(
    run: Run, levels: Sequence[_Level], located: Located, changes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Which changes are the pipeline's, and which those of the step of each level.

    A change is made at the innermost that has the parameter, or where that was handed on from; but not above
    what is reused and was handed the same, which would be given something else then.
    """
    runs = [run, *(level.step for level in levels)]
    tasks = [located.task, *(load_task(step.task, located.root) for step in runs[1:])]
    divided: list[dict[str, Any]] = [{} for _ in runs]
    for name, value in changes.items():
        having = [level for level, task in enumerate(tasks) if name in task.parameters]
        if not having:
            raise InvalidInput(f"There is no parameter '{name[:80]}'.", remedy=_parameters(tasks))
        at = having[-1]
        while at:
            above = runs[at - 1], tasks[at - 1]
            reused = any(_handed_on(step, name, *above) for step in levels[at - 1].kept)
            if reused or not _handed_on(runs[at], name, *above):
                break
            at -= 1
        divided[at][name] = _read(tasks[at], name, value) if at else value
    return divided


def _read(task: Task[..., Any], name: str, value: Any) -> Any:
    """An argument as a record keeps it: plain JSON, or a reference."""
    parameter = task.parameters[name]
    return value if parameter.artifacts else to_plain(parameter.read(value), parameter.annotation)


def _handed_on(step: Run, name: str, run: Run, pipeline: Task[..., Any]) -> bool:
    """Whether the pipeline gave to the step what it was given itself under that name."""
    if name not in pipeline.parameters:
        return False
    mine, its = ({each.parameter: each.digest for each in r.inputs} for r in (run, step))
    if name in mine or name in its:
        return mine.get(name) == its.get(name)
    given = run.arguments.get(name, pipeline.parameters[name].default)
    return name in step.arguments and given == step.arguments[name]


def _parameters(tasks: Sequence[Task[..., Any]]) -> str:
    what = ["pipeline", *["step"] * (len(tasks) - 1)]
    said = (
        f"the {w} '{t.name}' has {', '.join(t.parameters) or 'none'}"
        for w, t in zip(what, tasks, strict=True)
    )
    return f"{'; '.join(said)}.".replace("the", "The", 1)


def _request(
    registry: Registry, run: Run, located: Located, changes: Mapping[str, Any], pool: str | None
) -> RunRequest:
    """The request of the run once more, with other arguments."""
    given = {**run.arguments, **{each.parameter: each.ref or each.value for each in run.inputs}, **changes}
    request = prepare(registry, located, given, publish=run.publish)
    captured = {**run.captured, **request.captured}
    captured.pop("fork", None)
    return replace(
        request,
        task=run.task,
        pool=pool or request.pool,
        resources=run.resources,
        retries=run.retries,
        app=run.app,
        captured=captured,
    )


def _change(step: Run, to_step: Mapping[str, Any]) -> Change | None:
    if not to_step:
        return None
    taken = {each.parameter for each in step.inputs}
    return Change(
        _place(step),
        {name: value for name, value in to_step.items() if name not in taken},
        {name: value for name, value in to_step.items() if name in taken},
    )
