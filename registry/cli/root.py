"""The root of the command line: finds commands by entry point, and turns every error into a message."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version

import click

from registry.cli.output import debugging, print_error, wants_json
from registry.errors import PodiumError, Unavailable
from registry.suggesting import did_you_mean

_GROUP = "podium.commands"
_INTERRUPTED = 130  # as a shell reports a process that SIGINT ended


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Every command of the installed rooms, by name. Nothing of theirs is imported yet."""
    return {entry.name: entry for entry in entry_points(group=_GROUP)}


class _Rooms(click.Group):
    """Commands that are imported when they are used: `podium promote` never loads torch."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_entry_points())

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = _entry_points().get(name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if arguments[0].startswith("-") or arguments[0] in _entry_points():
            return super().resolve_command(context, arguments)
        meant = did_you_mean(arguments[0], _entry_points())
        raise click.UsageError(f"There is no command '{arguments[0][:40]}'. {meant}".rstrip(), context)


@click.group(
    cls=_Rooms,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 done, 1 refused by a rule, 2 wrong use or bad input, 3 a part is not reachable, "
    "70 a fault of podium's own.",
)
@click.version_option(version("podium"), prog_name="podium")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def podium(debug: bool) -> None:
    """Keep the versions of what post-training makes, promote them, and roll them out."""
    if debug:
        debugging.set(True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    _open_standard_streams()
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_standard_streams() -> None:
    """Open those that the caller has closed: else the next file or socket got what children print."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def run(arguments: list[str]) -> int:
    """Run a command line; its exit status. No traceback leaves here, unless ``--debug`` asks for it."""
    try:
        result = podium.main(arguments, prog_name="podium", standalone_mode=False)
    except PodiumError as error:
        return print_error(error, as_json=wants_json(arguments))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _print_usage_error(error, as_json=wants_json(arguments))
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # or Python would report the same pipe once more at exit
        return 0
    except OSError as error:
        if debugging.get():
            raise
        return _print_trouble(error, as_json=wants_json(arguments))
    except Exception as error:
        if debugging.get():
            raise
        return print_error(_unexpected(error), as_json=wants_json(arguments))
    return result if isinstance(result, int) else 0


def _print_usage_error(error: click.ClickException, *, as_json: bool) -> int:
    from registry.errors import InvalidInput

    context = getattr(error, "ctx", None)
    remedy = f"See '{context.command_path} --help'." if context else ""
    return print_error(InvalidInput(error.format_message(), remedy=remedy), as_json=as_json)


def _print_trouble(error: OSError, *, as_json: bool) -> int:
    """What the operating system refuses is no fault of podium's: a disk that is full, a closed terminal."""
    where = f" ({error.filename})" if error.filename else ""
    said = f"The operating system says: {error.strerror or error}{where}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) and not error.filename:
        _forget_output()
        as_json = False  # there is nowhere left to print it to
    return print_error(Unavailable(said, remedy="Make that possible and run it again."), as_json=as_json)


def _forget_output() -> None:
    """Let what could not be printed go, or Python would try, and fail, once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: Exception) -> PodiumError:
    return PodiumError(
        f"podium met an error that it does not know: {type(error).__name__}: {error}",
        remedy="Run it again as 'podium --debug ...' to see where, and report it.",
    )
