"""`podium diff`: what changed between two versions."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import RenderableType
from rich.text import Text

from registry.cli.output import Output, counted, size_text, with_output
from registry.content.diff import ContentDiff, Print

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
    parts.append(Text(_summary(found)))
    return out.page(parts)


def _summary(found: ContentDiff) -> str:
    hidden = len(found.tensors) - _MOST_TENSORS
    more = f"{counted(hidden, 'more tensor')} changed. " if hidden > 0 else ""
    same = f"{counted(found.tensors_same, 'tensor')} the same. " if found.tensors_same else ""
    return f"{more}{same}{size_text(found.bytes_shared)} shared, {size_text(found.bytes_new)} new."


def _size(size: int | None) -> str | None:
    return None if size is None else size_text(size)


def _form(tensor: Print | None) -> str | None:
    return None if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
