"""Where code came from: git's commit, branch and remote, and what was changed since."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from registry.capture.secrets import REMOVED, is_secret_file, scrub

LARGEST_DIFF = 2**20  # characters
MOST_UNTRACKED = 200
_GIT_SECONDS = 20


def describe_source(root: Path) -> dict[str, Any]:
    """Commit, branch, remote, uncommitted diff and untracked files of the work tree that holds ``root``.

    Empty where there is no git or no commit. Everything is scrubbed; the diff of a file that holds secrets is
    left out, and a diff of more than 1 MB is cut.
    """
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return {}
    diff = _git(
        root,
        "diff",
        "HEAD",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    )
    untracked = (_git(root, "ls-files", "--others", "--exclude-standard", "-z") or "").split("\0")
    remote = _git(root, "remote", "get-url", "origin")
    return {
        "commit": commit.strip(),
        "branch": (_git(root, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "remote": scrub(remote.strip()) if remote else None,
        "dirty": bool(diff),
        "diff": _shorten(scrub(without_secret_files(diff or ""))),
        "untracked": [path for path in untracked if path][:MOST_UNTRACKED],
    }


def ignored_by_git(root: Path, paths: Sequence[str]) -> set[str]:
    """Those of ``paths`` (relative to ``root``) that git ignores; none where there is no git."""
    answer = _git(root, "check-ignore", "-z", "--stdin", given="".join(f"{path}\0" for path in paths))
    return set(filter(None, (answer or "").split("\0")))


def without_secret_files(diff: str) -> str:
    """A diff without what it says of files that are known to hold secrets."""
    return "".join(_without_content(part) for part in _file_parts(diff))


def _file_parts(diff: str) -> Iterator[str]:
    starts = [match.start() for match in re.finditer(r"^diff --git ", diff, re.MULTILINE)]
    for start, end in pairwise([*starts, len(diff)]):
        yield diff[start:end]


def _without_content(part: str) -> str:
    heading, _, _ = part.partition("\n")
    # "diff --git a/OLD b/NEW": either name may be the secret one, and names may have spaces.
    names = re.split(r"\"? \"?b/", heading.removeprefix("diff --git ").lstrip('"').removeprefix("a/"))
    if any(is_secret_file(name.rstrip('"')) for name in names):
        return f"{heading}\n{REMOVED}\n"
    return part


def _shorten(diff: str) -> str:
    if len(diff) <= LARGEST_DIFF:
        return diff
    return diff[:LARGEST_DIFF] + f"\n[... {len(diff) - LARGEST_DIFF:,} characters are not kept ...]\n"


def _git(root: Path, *arguments: str, given: str | None = None) -> str | None:
    """What a git command prints; None when there is no git, no repository, or it fails."""
    # Reading must not take the lock that a user's own git waits for, nor ask for a password.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            input=None if given is None else given.encode(),
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            env=environment,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
