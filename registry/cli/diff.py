"""`podium diff`: what changed between two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, counted, size_text, with_output
from registry.content.diff import Change, ContentDiff, Print

_MOST_TENSORS = 40  # a merged model changes hundreds; the rest is counted


@click.command()
@click.argument("before")
@click.argument("after")
@with_output
def diff(out: Output, before: str, after: str) -> None:
    """Say what changed between two versions, down to tensors."""
    catalog = out.registry.catalog
    old, new = catalog.resolve(before), catalog.resolve(after)
    found = catalog.diff(old.ref, new.ref)
    out.show(
        {"before": old.ref, "after": new.ref, **asdict(found)}, lambda: _as_text(out, found, old.ref, new.ref)
    )


def _as_text(out: Output, found: ContentDiff, old: str, new: str) -> RenderableType:
    if found.is_empty:
        return f"{old} and {new} have the same content."
    files = [[f.change.value, f.path, _size(f.old_size), _size(f.new_size)] for f in found.files]
    parts: list[RenderableType] = [out.table(["", "file", f">{old}", f">{new}"], files)]
    if found.tensors:
        tensors = [
            [t.change.value, t.name, _form(t.old), _form(t.new)] for t in found.tensors[:_MOST_TENSORS]
        ]
        parts.append(out.table(["", "tensor", old, new], tensors))
    hidden = len(found.tensors) - _MOST_TENSORS
    if hidden > 0:
        parts.append(Text(f"... and {counted(hidden, 'more tensor')}."))
    return out.page([Text(f"{old} -> {new}: {_summary(found)}"), *parts])


def _summary(found: ContentDiff) -> str:
    """``1 file changed, 2 added; 210 tensors changed, 3 the same; 1.2 MB new, 20 kB shared``."""
    files = _kinds("file", [each.change for each in found.files])
    tensors = _kinds("tensor", [each.change for each in found.tensors])
    same = f"{found.tensors_same} the same" if found.tensors_same else ""
    about_tensors = ", ".join(part for part in (tensors, same) if part)
    sizes = f"{size_text(found.bytes_new)} new, {size_text(found.bytes_shared)} shared"
    return "; ".join(part for part in (files, about_tensors, sizes) if part)


def _kinds(noun: str, changes: Sequence[Change]) -> str:
    """How many of a noun there are of each kind of change; the noun once."""
    counts = Counter(change.value for change in changes)
    first, *others = [*counts] or [""]
    if not first:
        return ""
    return ", ".join([f"{counted(counts[first], noun)} {first}", *(f"{counts[o]} {o}" for o in others)])


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)


def _form(tensor: Print | None) -> str | None:
    return None if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
