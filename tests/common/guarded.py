"""Become another program, which the kernel ends when the process that started it ends.

Usage: ``python guarded.py PARENT_PID SIGNAL USER PROGRAM [ARGUMENT...]``; ``USER`` may be empty.

A test run that is killed cannot stop the servers it started; ``PR_SET_PDEATHSIG`` (prctl(2)) does it for it.
It is set here, in the child, and not in a ``preexec_fn``, because the parent has threads and may not run
Python between fork and exec. Only the standard library, and no import of the project: this file is run alone.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, signal_number: int, user: str, command: list[str]) -> None:
    """Take on ``user``, ask for ``signal_number`` at the parent's death, become ``command``."""
    if user:
        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    # After the change of user: the kernel clears the request when credentials change.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request stood
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
