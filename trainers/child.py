"""The program in which a task runs: ``python -P -m trainers.child RUN LEASE EPOCH FOLDER``.

It is started by a worker's executor, writes under the run's lease, and leaves its outcome in the folder.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry import connect
from registry.capture.secrets import hide
from registry.crashpoints import reached
from registry.errors import PodiumError
from registry.protocol import Registry
from registry.runs import Run, RunError
from registry.values import Authority, Origin
from trainers.binding import Outcome, bind, store_result
from trainers.checkpoints.preemption import Interrupted
from trainers.checkpoints.series import Checkpoints
from trainers.driving import Driver
from trainers.locating import load_task
from trainers.outcome import describe, write_failure, write_loaded, write_outcome
from trainers.patience import insist
from trainers.progress import NOT_CURVES, say, say_step
from trainers.reports import report
from trainers.secrets import secret_names
from trainers.tasks import Task


def main() -> int:
    run_id, lease, epoch, folder = sys.argv[1:]
    registry = insist(connect)
    run = insist(lambda: registry.runs.get(run_id))
    hide(os.environ.get(name, "") for name in secret_names(run.conditions.secrets))
    origin = Origin(f"run:{run.id}", Authority(lease, int(epoch)), run.causation, run.correlation)
    try:  # whatever a task raises, exit() among it, is how its run ended
        outcome = carry_out(registry.acting(origin), run, Path(folder))
    except Interrupted as interrupted:
        say(str(interrupted))
        return _end_as_asked()
    except BaseException as error:
        cause, described = describe(error)
        print(_told(run, error, described), file=sys.stderr, flush=True)
        write_failure(Path(folder), cause, described)
        return 1
    finally:
        write_loaded(Path(folder))
    write_outcome(Path(folder), outcome)
    return 0


def _told(run: Run, error: BaseException, described: RunError) -> str:
    """What the log says of a failure. Where a recipe refuses what it was given, its code explains nothing."""
    if run.code is None and isinstance(error, PodiumError):
        return f"{described.type}: {described.message}"
    return described.traceback


def carry_out(registry: Registry, run: Run, folder: Path) -> Outcome:
    """Run the task of ``run`` in ``folder``, and store what it returns."""
    task = _load(registry, run, folder / "code")
    checkpoints = Checkpoints(registry, run.id, folder / "checkpoints", say=say)
    report.begin(registry, run.id)
    try:
        outcome = _call(task, run, registry, folder, checkpoints)
    except BaseException:
        checkpoints.close(failed=True)
        raise
    finally:
        report.close()
    checkpoints.close()
    reached("run.uploaded")
    return outcome


def _call(
    task: Task[..., Any], run: Run, registry: Registry, folder: Path, checkpoints: Checkpoints
) -> Outcome:
    bound = insist(lambda: bind(task, run, registry, folder / "inputs"))
    insist(lambda: _say_roles(registry, run, task))
    here = folder / "here"
    here.mkdir()
    os.chdir(here)
    reached("run.started")
    arguments = {**bound, **_provided(task, here, checkpoints)}
    if inspect.iscoroutinefunction(task.function):
        returned = Driver(registry, run, folder).drive(task, arguments)
    else:
        returned = task(**arguments)
    return store_result(task, returned, registry, say)


def _end_as_asked() -> int:
    """End by the signal that asked for it, which says better than a status that nothing went wrong."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    return 1


def _load(registry: Registry, run: Run, code: Path) -> Task[..., Any]:
    digest = run.code
    if digest is None:
        return load_task(run.task)
    insist(lambda: registry.catalog.materialise(digest, code))
    return load_task(run.task, code)


def _say_roles(registry: Registry, run: Run, task: Task[..., Any]) -> None:
    """Who asked for the run by the task's name could not say what its inputs are to the result."""
    roles = {each.parameter: task.parameters[each.parameter].role for each in run.inputs}
    if any(each.role is not roles[each.parameter] for each in run.inputs):
        registry.runs.set_roles(run.id, roles)


def _provided(task: Task[..., Any], here: Path, checkpoints: Checkpoints) -> dict[str, Any]:
    """What a run gives to the tasks that ask for it."""
    provides = {"checkpoints": checkpoints, "output": here / "output", "on_log": _tell_step}
    return {name: provides[name] for name in task.provided}


def _tell_step(step: int, logged: Mapping[str, float]) -> None:
    """A step of a training, to the log and to the curves."""
    say_step(step, logged)
    curves = {name: value for name, value in logged.items() if name not in NOT_CURVES}
    report.log(curves, step=step)


if __name__ == "__main__":
    sys.exit(main())
