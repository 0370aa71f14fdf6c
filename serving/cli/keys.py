"""`podium deployments keys`: who is answered."""

from __future__ import annotations

import click
from rich.text import Text

from registry.cli.output import Output, with_output
from registry.operations import ClientKey

__all__ = ["keys"]


@click.group()
def keys() -> None:
    """Keys that clients show, as 'Authorization: Bearer KEY'. Without any, whoever reaches it is answered."""


@keys.command()
@click.argument("name")
@click.option("--label", default="", metavar="TEXT", help="For whom it is.")
@with_output
def add(out: Output, name: str, label: str) -> None:
    """Make a key for NAME and print it, this once. From the first on, nobody is answered without one."""
    made = out.registry.client_keys.add(name, label)
    out.show({**_data(made.key), "secret": made.secret}, lambda: made.secret)
    out.note(f"Key {made.key.id} of {name}. It is shown only now: keep it where secrets are kept.")


@keys.command("list")
@click.argument("name")
@with_output
def list_(out: Output, name: str) -> None:
    """List the keys of NAME; of each no more than its id."""
    found = out.registry.client_keys.list(name)
    columns = ["key", "label", "made", "by", "revoked"]
    empty = f"{name} has no keys: whoever reaches it is answered."
    out.show([_data(key) for key in found], lambda: out.table(columns, [_row(k) for k in found], empty=empty))


@keys.command()
@click.argument("name")
@click.argument("key")
@with_output
def revoke(out: Output, name: str, key: str) -> None:
    """Answer nobody any more who shows the key with the id KEY."""
    revoked = out.registry.client_keys.revoke(name, key)
    left = sum(each.revoked_at is None for each in out.registry.client_keys.list(name))
    closing = (
        "" if left else " No key is good now, so nobody is answered: see 'podium deployments keys open'."
    )
    out.show(_data(revoked), lambda: f"Key {key} of {name} is revoked.{closing}")


@keys.command("open")
@click.argument("name")
@with_output
def open_(out: Output, name: str) -> None:
    """Forget all keys of NAME: whoever reaches it is answered again."""
    out.registry.client_keys.open(name)
    out.show({"deployment": name, "keys": None}, lambda: f"{name} answers whoever reaches it.")


def _row(key: ClientKey) -> list[object]:
    revoked = Text("yes", "red") if key.revoked_at else None
    return [key.id, key.label or None, key.created_at, key.created_by, revoked]


def _data(key: ClientKey) -> dict[str, object]:
    return {
        "deployment": key.deployment,
        "key": key.id,
        "label": key.label,
        "created_at": key.created_at.isoformat(),
        "created_by": key.created_by,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
