"""Become another program, which the kernel ends when the process that started it ends.

Usage: ``python guarded.py PARENT_PID PROGRAM [ARGUMENT...]``. A ``podium up`` that is killed cannot stop its
server; ``PR_SET_PDEATHSIG`` (prctl(2)) does it. It is set here and not between fork and exec, because the
parent has threads. Only the standard library, and no import of the project: this file is run alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Ask for SIGTERM at the parent's death, then become ``command``."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before the request stood
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
