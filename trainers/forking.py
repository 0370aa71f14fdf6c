"""Going on with a run, and running it anew from one of its steps on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from registry.errors import InvalidInput, PodiumError
from registry.protocol import Registry
from registry.runs import Run, RunRequest
from registry.steps import Change, find, kept, names
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

    ``changes`` are arguments of that step or of the pipeline by parameter. One that the pipeline handed on to
    the step is changed in the pipeline.

    Raises:
        NotFound, InvalidInput: there is no such step or parameter; the message lists those that there are.
    """
    found = registry.runs.get(run)
    steps = registry.steps.of(found.id)
    step = find(steps, start) if start is not None else None
    reused = [each.id for each in kept(steps, step)] if step is not None else []
    with ExitStack() as stack:
        located = None if recorded_code else _as_it_is_now(registry, found)
        changed = () if located is None else _changed_tasks(registry, found, located)
        notices = () if located is None else (*located.notices, _tell(changed))
        located = located or _recorded(registry, found, stack)
        to_pipeline, to_step = _divide(found, step, located, changes or {})
        request = _request(registry, found, located, to_pipeline, pool)
    change = _change(step, to_step)
    fork = {
        "of": found.id,
        "from": names(steps)[step.id] if step is not None else None,
        "set": {name: str(value) for name, value in (changes or {}).items()},
        **({"change": asdict(change)} if change else {}),
    }
    request = replace(request, captured={**request.captured, "fork": fork})
    return Resumed(registry.steps.fork(request, reused), notices, changed)


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
    run: Run, step: Run | None, located: Located, changes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Which changes are the pipeline's, and which the step's."""
    task = load_task(step.task, located.root) if step is not None else None
    to_pipeline, to_step = {}, {}
    for name, value in changes.items():
        if task is not None and step is not None and name in task.parameters:
            if _handed_on(run, step, name, located.task):
                to_pipeline[name] = value
            else:
                to_step[name] = _read(task, name, value)
        elif name in located.task.parameters:
            to_pipeline[name] = value
        else:
            raise InvalidInput(
                f"There is no parameter '{name[:80]}'.", remedy=_parameters(located.task, task)
            )
    return to_pipeline, to_step


def _read(task: Task[..., Any], name: str, value: Any) -> Any:
    """An argument as a record keeps it: plain JSON, or a reference."""
    parameter = task.parameters[name]
    return value if parameter.artifacts else to_plain(parameter.read(value), parameter.annotation)


def _handed_on(run: Run, step: Run, name: str, pipeline: Task[..., Any]) -> bool:
    """Whether the pipeline gave to the step what it was given itself under that name."""
    if name not in pipeline.parameters:
        return False
    mine, its = ({each.parameter: each.digest for each in r.inputs} for r in (run, step))
    if name in mine or name in its:
        return mine.get(name) == its.get(name)
    given = run.arguments.get(name, pipeline.parameters[name].default)
    return name in step.arguments and given == step.arguments[name]


def _parameters(pipeline: Task[..., Any], step: Task[..., Any] | None) -> str:
    said = f"The pipeline '{pipeline.name}' has {', '.join(pipeline.parameters) or 'none'}"
    return said + (f"; the step '{step.name}' has {', '.join(step.parameters)}." if step else ".")


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


def _change(step: Run | None, to_step: Mapping[str, Any]) -> Change | None:
    if step is None or step.place is None or not to_step:
        return None
    taken = {each.parameter for each in step.inputs}
    return Change(
        step.place,
        {name: value for name, value in to_step.items() if name not in taken},
        {name: value for name, value in to_step.items() if name in taken},
    )
