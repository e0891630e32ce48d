"""Replace this process by a command, unless the lease is too short by now; run as a script, not imported.

    guard.py DEADLINE TIMEOUT[:NEEDED] COMMAND [ARGUMENT...]

DEADLINE is when the lease ends, on CLOCK_MONOTONIC, which all processes of a machine share. If less than NEEDED
seconds are left (TIMEOUT unless said), the command is not run and the exit status is 75. Otherwise an alarm goes with
the command through exec, so that it ends after TIMEOUT seconds even when nobody is left to kill it. No imports but the
fewest: this stands between the last look at the node and the command.
"""

import os
import signal
import sys
import time

TOO_LATE = 75
SAID = "heeler: lease too short, not run"


def main(argv: list[str]) -> None:
    """Check the lease a last time, then become the command."""
    timeout, _, needed = argv[2].partition(":")
    deadline, timeout_s, command = float(argv[1]), float(timeout), argv[3:]
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    if deadline - time.monotonic() < float(needed or timeout):
        sys.stderr.write(SAID + "\n")
        sys.exit(TOO_LATE)
    os.execvp(command[0], command)  # noqa: S606 - an argv list, no shell


if __name__ == "__main__":
    main(sys.argv)
