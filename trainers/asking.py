"""What a driver asks the journal for when its pipeline calls a task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from registry.artifacts import Artifact, StoredContent
from registry.errors import InvalidInput
from registry.protocol import Registry
from registry.runs import Run, RunRequest
from registry.steps import Change, Inside
from trainers.caching import Basis, code_of, lock_digest
from trainers.catalogue import is_recipe
from trainers.patience import insist
from trainers.results import signature_of
from trainers.tasks import Task


class Requests:
    """Requests of one driver's steps."""

    def __init__(self, registry: Registry, run: Run, code: Path) -> None:
        self._registry = registry
        self._run = run
        self._code = code.resolve()
        self._change = change_of(run.captured)
        self._inside = inside_of(run.captured)
        self._earlier = earlier_of(run.captured)
        # What a person asked to have done anew is done, whatever is in the cache.
        self._anew = {run.captured.get("fork", {}).get("begin"), self._inside and self._inside.place}

    def make(self, task: Task[..., Any], given: Mapping[str, Any], place: str) -> RunRequest:
        """The request for one step: checked, with content in the place of names.

        Raises:
            InvalidInput, KindMismatch, NotFound: what it is given cannot be used.
        """
        for change in (*(change_of({"fork": each}) for each in self._earlier), self._change):
            if change is not None and change.place == place:
                given = {**given, **change.arguments, **change.inputs}
        known = {name: _content(name, value) for name, value in given.items() if isinstance(value, Artifact)}
        request = task.request({**given, **{name: content.value for name, content in known.items()}})
        contents = {
            name: known.get(name) or self._resolve(reference) for name, reference in request.inputs.items()
        }
        task.check_kinds({name: content.kind for name, content in contents.items()})
        file = None if is_recipe(task) else self._file(task)
        address = task.name if file is None else f"{file.relative_to(self._code).as_posix()}:{task.name}"
        digests = {name: content.digest for name, content in contents.items()}
        basis = None
        if task.cache is not None:
            # A recipe's code is podium's, whose version is in the lock.
            code = code_of(file, task.function.__name__, self._code) if file else {}
            basis = Basis(address, request.arguments, digests, code, lock_digest())
        request = self._entered(request, place)
        return replace(
            request,
            cache_key=basis.key if basis and place not in self._anew else None,
            captured={**request.captured, **({"cache": basis.to_json()} if basis else {})},
            task=address,
            code=self._run.code if file else None,
            inputs={name: content.value for name, content in contents.items()},
            parent=self._run.id,
            app=self._run.app,
            place=place,
            signature=signature_of(address, request.arguments, digests),
        )

    def _entered(self, request: RunRequest, place: str) -> RunRequest:
        """With what a fork that begins inside this step keeps and changes there, and what earlier ones do."""
        entered = [
            inside for inside in map(_inside_record, self._earlier) if inside and inside.place == place
        ]
        earlier = tuple(fork_record(None, each.change, each.inside) for each in entered)
        inside = self._inside if self._inside is not None and self._inside.place == place else None
        if inside is None and not earlier:
            return request
        own = fork_record(inside.begin, inside.change, inside.inside) if inside else {}
        fork = {"of": self._run.id, **own, **({"earlier": earlier} if earlier else {})}
        kept = inside.kept if inside else request.kept
        return replace(request, kept=kept, captured={**request.captured, "fork": fork})

    def _resolve(self, reference: str) -> StoredContent:
        """Something in the registry that the pipeline's code names."""
        node = insist(lambda: self._registry.lineage.walk(reference, depth=0)).nodes[0]
        return StoredContent(node.value, node.kind, node.digest, node.refs[0] if node.refs else None)

    def _file(self, task: Task[..., Any]) -> Path:
        """Where the task is defined: a child process finds it in the same code by that."""
        file = Path(inspect.unwrap(task.function).__code__.co_filename).resolve()
        if not file.is_relative_to(self._code):
            raise InvalidInput(
                f"The task '{task.name}' is defined in {file}, which is not in the pipeline's code.",
                remedy="Define tasks in the pipeline's file, or in a module of its project.",
            )
        return file


def _content(name: str, given: Artifact) -> StoredContent:
    if given.content is None:
        raise InvalidInput(
            f"'{name}' is {given!r}, which is not stored yet.",
            remedy="Return it from a task of its own; what a step returns is stored.",
        )
    return given.content


def fork_record(begin: str | None, change: Change | None, inside: Inside | None) -> dict[str, Any]:
    """What a forked run does differently, as its record keeps it; `change_of` and `inside_of` read it."""
    found = {
        "begin": begin,
        "change": asdict(change) if change else None,
        "inside": asdict(inside) if inside else None,
    }
    return {name: each for name, each in found.items() if each is not None}


def change_of(captured: Mapping[str, Any]) -> Change | None:
    """What a run that was forked from another does differently at one step, from its record."""
    return _change(captured.get("fork", {}).get("change"))


def earlier_of(captured: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What the forks that a run was forked from did differently, the first one first, from its record."""
    return tuple(captured.get("fork", {}).get("earlier", ()))


def with_earlier(captured: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What a fork of a run does differently because that run did: its own changes after those it had."""
    own = fork_record(None, change_of(captured), inside_of(captured))
    return (*earlier_of(captured), *([own] if own else []))


def inside_of(captured: Mapping[str, Any]) -> Inside | None:
    """The step inside of which a forked run begins, from its record; None where it begins with a step."""
    return _inside(captured.get("fork", {}).get("inside"))


def _inside_record(record: Mapping[str, Any]) -> Inside | None:
    return _inside(record.get("inside"))


def _change(stored: Mapping[str, Any] | None) -> Change | None:
    return Change(**stored) if stored else None


def _inside(stored: Mapping[str, Any] | None) -> Inside | None:
    if not stored:
        return None
    return Inside(
        stored["place"],
        tuple(stored["kept"]),
        stored["begin"],
        _change(stored["change"]),
        _inside(stored["inside"]),
    )
