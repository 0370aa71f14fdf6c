"""`podium token`, `approve` and `protect`: who may do what."""

from __future__ import annotations

import click

from registry.cli.amount import AMOUNT
from registry.cli.output import Output, with_output
from registry.identity.roles import TeamRole
from registry.identity.tokens import Token, is_of_browser

_ROLES = click.Choice([role.value for role in TeamRole])


@click.group()
def token() -> None:
    """Make, list and revoke the tokens that a server knows its users by."""


@token.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default="viewer", show_default=True, help="What it may do.")
@click.option("--pattern", default="*", show_default=True, help="Names of the artifacts that it may change.")
@click.option("--days", type=AMOUNT, help="How long it is good for; until it is revoked unless given.")
@with_output
def add(out: Output, name: str, role: str, pattern: str, days: float | None) -> None:
    """Make a token for NAME. It is shown this once."""
    issued = out.registry.identity.issue(name, TeamRole(role), pattern=pattern, days=days)
    out.show({**_as_json(issued.token), "token": issued.secret}, lambda: issued.secret)
    out.note(f"Its id is {issued.token.id}. It cannot be shown again; set it as PODIUM_TOKEN.")


@token.command(name="list")
@with_output
def list_(out: Output) -> None:
    """List all tokens, without their secrets."""
    found = out.registry.identity.tokens()
    columns = ["id", "name", "role", "may change", "made", "by", "good until", "revoked"]
    rows = [
        [
            t.id,
            t.name,
            t.role.value,
            t.pattern,
            t.created_at,
            t.created_by,
            t.expires_at and f"{t.expires_at:%F}",
            t.revoked_at,
        ]
        for t in found
    ]
    out.show([_as_json(t) for t in found], lambda: out.table(columns, rows, empty="There are no tokens."))
    if any(is_of_browser(t) for t in found):
        out.note("NAME@browser is a session that the link of 'podium up' or 'podium server' opened.")


@token.command()
@click.argument("token")
@with_output
def revoke(out: Output, token: str) -> None:
    """End TOKEN, which is an id or the name of its only holder. It is refused from then on."""
    revoked = out.registry.identity.revoke(token)
    out.show(_as_json(revoked), lambda: f"The token {revoked.id} of {revoked.name} is revoked.")


def _as_json(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "pattern": token.pattern,
        "created_at": token.created_at.isoformat(),
        "created_by": token.created_by,
        "expires_at": token.expires_at and token.expires_at.isoformat(),
        "revoked_at": token.revoked_at and token.revoked_at.isoformat(),
    }


@click.command()
@click.argument("reference")
@click.argument("alias")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the approval.")
@with_output
def approve(out: Output, reference: str, alias: str, reason: str) -> None:
    """Say that the version REFERENCE may become ALIAS, for gates that ask for an approval."""
    given = out.registry.identity.approve(reference, alias, reason=reason)
    data = {
        "ref": f"{given.artifact}:v{given.version}",
        "alias": given.alias,
        "by": given.actor,
        "role": given.role.value,
    }
    out.show(data, lambda: f"{data['ref']} is approved for {alias} by {given.actor}.")


@click.command()
@click.argument("name")
@click.argument("alias")
@click.option("--role", type=_ROLES, default="admin", show_default=True, help="Who may move it.")
@with_output
def protect(out: Output, name: str, alias: str, role: str) -> None:
    """Let only ROLE move ALIAS of the artifacts NAME, which may be a glob; promoter ends that."""
    given = out.registry.identity.protect(name, alias, TeamRole(role))
    data = {"artifact": given.artifact, "alias": given.alias, "role": given.role.value}
    out.show(data, lambda: f"'{name}:{alias}' is moved by the role {role} and above.")
