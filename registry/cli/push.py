"""`podium push`, `pull` and `tag`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from registry.cards.card import card_of
from registry.cli.card import write_card
from registry.cli.output import Output, counted, pairs, size_text, with_output
from registry.errors import ArtifactNotFound, InvalidInput, InvalidReference
from registry.outputs import find_made, may_be_made
from registry.values import Parent, Published, Role


class _Place(click.Path):
    """A path that was really given: an empty one, as an unset variable gives, is not the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


_PLACE = _Place(path_type=Path)
_CARD = "README.md"


def parents_from(
    base: str | None, parent: tuple[str, ...], data: tuple[str, ...], of: str | None, on: str | None
) -> list[Parent]:
    """Lineage edges from the options that name them."""
    single = [(base, Role.BASE), (of, Role.SUBJECT), (on, Role.HELD_OUT)]
    edges = [Parent(reference, role) for reference, role in single if reference is not None]
    edges += [Parent(reference, Role.DATA) for reference in data]
    return edges + [Parent(reference, Role.PARENT) for reference in parent]


@click.command()
@click.argument("name")
@click.argument("path", type=_PLACE)
@click.option("--kind", help="adapter, model, dataset, report, dir, file ...; needed for a new name.")
@click.option("--base", metavar="REF", help="Base model that an adapter belongs to.")
@click.option("--data", metavar="REF", multiple=True, help="Data set that it was trained on.")
@click.option("--parent", metavar="REF", multiple=True, help="Anything else that it was made from.")
@click.option("--of", metavar="REF", help="Version that a report judges.")
@click.option("--on", metavar="REF", help="Held-out set that a report was made on.")
@with_output
def push(
    out: Output,
    name: str,
    path: Path,
    kind: str | None,
    base: str | None,
    data: tuple[str, ...],
    parent: tuple[str, ...],
    of: str | None,
    on: str | None,
) -> None:
    """Publish a folder or file as the next version of NAME.

    The same content under the same name is the version that is there already.
    """
    parents = parents_from(base, parent, data, of, on)
    with out.progress("pushing") as progress:
        published = out.registry.catalog.publish(name, path, kind, parents=parents, progress=progress)
    for notice in published.notices:
        out.note(notice)
    out.show(_as_json(published), lambda: _as_text(published))


def _as_json(published: Published) -> dict[str, object]:
    version = published.version
    return {
        "ref": version.ref,
        "digest": version.digest,
        "version": version.number,
        "kind": version.kind,
        "created": published.created,
        "bytes_total": published.bytes_total,
        "bytes_sent": published.bytes_sent,
        "notices": list(published.notices),
    }


def _as_text(published: Published) -> str:
    version = published.version
    sent = f"{size_text(published.bytes_sent)} of {size_text(published.bytes_total)} sent"
    if not published.created:
        return f"{version.ref} has this content already ({sent})."
    return f"{version.ref}  {version.digest[:19]}  {counted(version.files, 'file')}, {sent}"


@click.command()
@click.argument("reference", metavar="REFERENCE|RUN/STEP|ID")
@click.argument("destination", type=_PLACE)
@click.option("--card", "with_card", is_flag=True, help="Write its model card beside them, as README.md.")
@with_output
def pull(out: Output, reference: str, destination: Path, with_card: bool) -> None:
    """Write the files of a version, or of what a run made, into the new folder DESTINATION.

    Every digest is verified. A README.md that belongs to the version stays as it is.
    """
    catalog = out.registry.catalog
    ref, digest = _pulled(out, reference)
    card = _card(out, ref) if with_card else None
    with out.progress("pulling") as progress:
        catalog.materialise(digest, destination, progress=progress)
    manifest = catalog.manifest(digest)
    if card is not None and all(file.path != _CARD for file in manifest.files):
        write_card(destination / _CARD, card)
    data = {"ref": ref, "digest": digest, "path": str(destination.absolute()), "bytes": manifest.size}
    size = f"{counted(len(manifest.files), 'file')}, {size_text(manifest.size)}"
    out.show(data, lambda: f"{ref or digest[:19]} is in {destination} ({size}).")


def _card(out: Output, ref: str | None) -> str:
    if ref is None:
        raise InvalidInput(
            "What has no version has no model card.", remedy="Publish it first: podium publish REFERENCE NAME"
        )
    return card_of(out.registry, ref)


def _pulled(out: Output, reference: str) -> tuple[str | None, str]:
    """The version that is meant, None for what has no name; and the digest of its content."""
    try:  # names come before ids that look like them
        version = out.registry.catalog.resolve(reference)
        return version.ref, version.digest
    except (ArtifactNotFound, InvalidReference):
        if not may_be_made(reference):
            raise
    made = find_made(out.registry, reference)
    return (made.refs[0] if made.refs else None), made.digest


@click.command()
@click.argument("reference")
@click.argument("tags", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_output
def tag(out: Output, reference: str, tags: tuple[str, ...]) -> None:
    """Set tags of a version; KEY= removes one."""
    version = out.registry.catalog.tag(reference, dict(_tag(text) for text in tags))
    out.show(
        {"ref": version.ref, "tags": dict(version.tags)}, lambda: f"{version.ref}: {pairs(version.tags)}"
    )


def _tag(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"'{text[:80]}' is not KEY=VALUE.", remedy="Write for example: team=support")
    return key, value or None
