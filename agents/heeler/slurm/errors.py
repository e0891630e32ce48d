"""What can go wrong with Slurm.

SlurmError
 +- ParseError          text that is not what Slurm writes
 +- CommandError        a command gave no answer
     +- CommandMissingError   no such program
     +- CommandTimeoutError   no answer in time; its process group was killed
     +- OutputTooLargeError   more output than the cap; its process group was killed
     +- CommandFailedError    it ended with an exit status other than 0
 +- OutageError         several ways to ask, and each gave no answer
 +- RestError           slurmrestd gave no answer
     +- RestTlsError         no connection that can be trusted; nothing was sent, the token neither
"""

SHOWN = 200  # characters of an offending text that a message repeats


class SlurmError(Exception):
    """Anything that goes wrong with Slurm."""


class ParseError(SlurmError, ValueError):
    """Text that is not what Slurm writes; names the offending part."""

    def __init__(self, what: str, text: object) -> None:
        shown = text if isinstance(text, str) else repr(text)
        if len(shown) > SHOWN:
            shown = shown[:SHOWN] + "..."
        super().__init__(f"{what}: {shown!r}")
        self.what = what
        self.text = shown


class CommandError(SlurmError):
    """A Slurm command gave no answer."""

    def __init__(self, argv: tuple[str, ...], why: str) -> None:
        super().__init__(f"{' '.join(argv)}: {why}")
        self.argv = argv
        self.why = why


class CommandMissingError(CommandError):
    """There is no such program, or it may not be run."""


class CommandTimeoutError(CommandError):
    """No answer in time; the command and its children were killed."""


class OutputTooLargeError(CommandError):
    """More output than the cap; the command and its children were killed."""


class CommandFailedError(CommandError):
    """The command ended with an exit status other than 0."""

    def __init__(self, argv: tuple[str, ...], rc: int, stderr: str) -> None:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        super().__init__(argv, f"exit status {rc}: {lines[-1] if lines else 'no message'}")
        self.rc = rc
        self.stderr = stderr


class OutageError(SlurmError):
    """Several ways to ask gave no answer; the words of all."""


class RestError(SlurmError):
    """No answer of slurmrestd. `missing`: it is not there, or does not offer what was asked for."""

    def __init__(self, why: str, *, status: int | None = None, missing: bool = False) -> None:
        super().__init__(f"slurmrestd: {why}")
        self.status = status
        self.missing = missing


class RestTlsError(RestError):
    """No TLS to slurmrestd that can be trusted. Nothing was sent to it, the token neither."""
