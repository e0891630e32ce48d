"""Send one change to slurmrestd and end: `guard.py` becomes this, as it becomes scontrol, once the lease is checked.

Standard input: one JSON object with url, user, token_file, ca_file, path, body and timeout_s. The answer goes to
standard output; exit status 1 and words on standard error where there is none.
"""

import json
import sys

from heeler.slurm.errors import SlurmError
from heeler.slurm.rest import Rest


def main() -> None:
    """Read the order, send it, print the answer."""
    order = json.load(sys.stdin)
    rest = Rest(order["url"], order["user"], order["token_file"], order["ca_file"])
    try:
        answer = rest.post(order["path"], json.dumps(order["body"]).encode(), order["timeout_s"])
    except SlurmError as err:
        sys.stderr.write(f"{err}\n")
        sys.exit(1)
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
