"""Runs as they go: a list, and one with its steps, its log and what it made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from registry.http.authorising import Asker
from registry.identity.roles import TeamRole
from registry.pages.rendering import Pages
from registry.pages.tones import RUN_TONES
from registry.pages.visiting import visitor
from registry.protocol import Registry
from registry.runs import ENDED, Run, RunOutput, RunState
from trainers.cli.shown import result_of
from trainers.pages.wording import duration, seconds_of
from trainers.trees import Node, tree_of

_MOST = 100
_LONGEST = 200
_LOG_PARTS = 200
_LOG_LINES = 300
_CURVE_PARTS = 500
_Visitor = Annotated[Asker, Depends(visitor)]


def add_looking(router: APIRouter, pages: Pages) -> None:
    @router.get("/runs")
    def list_(
        request: Request,
        who: _Visitor,
        state: Annotated[str, Query(max_length=_LONGEST)] = "",
        task: Annotated[str, Query(max_length=_LONGEST)] = "",
    ) -> Response:
        asked = RunState(state) if state in list(RunState) else None
        found = who.registry.runs.list(state=asked, task=task.strip() or None, limit=_MOST)
        return pages.show(
            request,
            "runs.html",
            who,
            runs=found,
            is_cut=len(found) == _MOST,
            states=list(RunState),
            filters={"state": asked or "", "task": task.strip()},
            tones=RUN_TONES,
            took=lambda run: duration(seconds_of(run)),
        )

    @router.get("/runs/{run}")
    def one(request: Request, who: _Visitor, run: str) -> Response:
        top = tree_of(who.registry, run)
        return pages.show(
            request,
            "run.html",
            who,
            **_shown(who.registry, top),
            may=who.may("runs.cancel", TeamRole.TRAINER),
        )

    @router.get("/runs/{run}/curves")
    def curves(
        who: _Visitor, run: str, after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0
    ) -> Mapping[str, Any]:
        """Points that were reported after the part ``after``: a page asks for what it has not drawn."""
        parts = who.registry.measures.of(run, after=after, limit=_CURVE_PARTS)
        return {
            "after": parts[-1].sequence if parts else after,
            "points": [(each.step, dict(each.numbers)) for part in parts for each in part.measures],
            "more": len(parts) == _CURVE_PARTS,
        }


def _shown(registry: Registry, top: Node) -> Mapping[str, Any]:
    run = top.run
    return {
        "run": run,
        "name": top.name,
        "lives": run.state not in ENDED,
        "steps": [(depth, node) for depth, node in top.walk() if depth],
        "arguments": dict(_arguments(run)),
        "inputs": {each.parameter: each.ref or each.value for each in run.inputs},
        "outputs": run.outputs,
        "nameless": [each.name for each in run.outputs if each.ref is None and _is_publishable(each)],
        "result": _plain(result_of(run)) if run.state is RunState.SUCCEEDED and not run.outputs else "",
        "attempts": registry.runs.attempts(run.id),
        "log": _log(registry, run.id),
        "tones": RUN_TONES,
        "duration": duration,
        "took": duration(top.seconds),
        "source": run.captured.get("source", {}),
    }


def _arguments(run: Run) -> Iterator[tuple[str, str]]:
    for name, value in run.arguments.items():
        yield name, _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_publishable(output: RunOutput) -> bool:
    return output.kind != "report"


def _log(registry: Registry, run: str) -> str:
    """The end of what it printed."""
    parts = registry.runs.log(run, limit=_LOG_PARTS, newest=True)
    text = b"".join(part.data for part in parts).decode(errors="backslashreplace")
    # A progress bar writes one line over and over: what a terminal would show is what came last.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return "\n".join(lines[-_LOG_LINES:])
