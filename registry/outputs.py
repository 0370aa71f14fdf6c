"""What runs made: from RUN, RUN/STEP or the beginning of an id to the value that a person means."""

from __future__ import annotations

import re

from registry.errors import ArtifactNotFound, InvalidInput, RunNotFound
from registry.protocol import Registry
from registry.runs import RESULT, Run, RunOutput
from registry.steps import find
from registry.values import LineageNode

_MADE = re.compile(r"[0-9a-f]{4,}(/.+)?|sha256:[0-9a-f]{4,}")


def may_be_made(text: str) -> bool:
    """Whether ``text`` reads as RUN, RUN/STEP, an id or a digest. A name may read so as well."""
    return _MADE.fullmatch(text) is not None


def find_made(registry: Registry, text: str) -> LineageNode:
    """The value that ``text`` names: a reference, RUN or RUN/STEP, or an id or digest or its beginning.

    Raises:
        NotFound: it names nothing.
        InvalidReference: it is none of these, or several begin so.
        InvalidInput: the run made nothing, or several things.
    """
    if "/" in text and may_be_made(text):
        text = output_of(locate_step(registry, text)).value
    try:
        return registry.lineage.walk(text, depth=0).nodes[0]
    except ArtifactNotFound as error:
        try:
            run = registry.runs.get(text)
        except RunNotFound:
            raise error from None
        return registry.lineage.walk(output_of(run).value, depth=0).nodes[0]


def locate_step(registry: Registry, path: str) -> Run:
    """The run that ``RUN``, ``RUN/STEP`` or ``RUN/STEP/STEP`` names.

    Raises:
        RunNotFound, NotFound: there is no such run or step.
    """
    run_id, *steps = path.split("/")
    run = registry.runs.get(run_id)
    for name in steps:
        run = find(registry.steps.of(run.id), name)
    return run


def output_of(run: Run, name: str | None = None) -> RunOutput:
    """The output of that name; the result, or the only one there is, unless a name is given.

    Raises:
        InvalidInput: there is none, or there are several.
    """
    outputs = {output.name: output for output in run.outputs}
    if name is None:
        name = next(iter(outputs)) if len(outputs) == 1 else RESULT
    if name in outputs:
        return outputs[name]
    if not outputs:
        raise InvalidInput(
            f"Run {run.id} ({run.state}) made no artifact.", remedy=f"See 'podium runs show {run.id}'."
        )
    raise InvalidInput(
        f"Run {run.id} ({run.state}) has no output '{name[:80]}'.",
        remedy=f"It has {', '.join(f'{each.name} ({each.value[:12]})' for each in run.outputs)}.",
    )
