"""`podium card`: a version's model card."""

from __future__ import annotations

from pathlib import Path

import click

from registry.cards.card import card_of
from registry.cli.output import Output, with_output
from registry.errors import InvalidInput


@click.command()
@click.argument("reference")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it there, as README.md for example.",
)
@with_output
def card(out: Output, reference: str, output: Path | None) -> None:
    """Print the model card of a version: lineage, parameters, scores; in the form of the Hugging Face Hub."""
    text = card_of(out.registry, reference)
    if output is None:
        if out.as_json:
            out.show({"card": text}, lambda: "")
        else:
            click.echo(text, nl=False)
        return
    write_card(output, text)
    out.show({"path": str(output.absolute())}, lambda: f"The card of {reference} is in {output}.")


def write_card(path: Path, text: str) -> None:
    """Write a card to a new file.

    Raises:
        InvalidInput: there is a file already, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists already.", remedy="Give the name of a new file.") from error
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}.", remedy="Give another path."
        ) from error
