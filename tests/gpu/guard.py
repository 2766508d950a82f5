"""Run a command that ends after some seconds, and with the process that started it, however that ends.

    python guard.py SECONDS COMMAND...    # 0: as many seconds as it needs

The starter holds the other end of standard input, and nothing writes there: it closes when the starter ends.
Then, as when the time is over, this process kills its process group: itself, the command and its children.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading


def _kill_in_time(seconds: float) -> None:
    select.select([sys.stdin], [], [], seconds or None)
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Return what the command returned; a command that a signal ended ends this process likewise."""
    seconds, *command = sys.argv[1:]
    threading.Thread(target=_kill_in_time, args=(float(seconds),), daemon=True).start()
    status = subprocess.call(command, stdin=subprocess.DEVNULL)
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other way
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
