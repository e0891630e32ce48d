"""A site's own checks: a package that others can take as their example."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, bad, ok


@dataclass(frozen=True, slots=True)
class MotdSettings:
    """What the message of the day must not say."""

    forbidden: tuple[str, ...] = ("maintenance",)


def read_motd(context: Context, _asked: Sequence[Any]) -> str:
    """Return /etc/motd."""
    try:
        return (context.root / "etc/motd").read_text()
    except OSError as err:
        raise ProbeError("missing", f"/etc/motd: {err.strerror}") from None


def judge_motd(text: str, settings: MotdSettings, _case: Case) -> Verdict:
    """Look for words that should not be there."""
    found = [word for word in settings.forbidden if word in text]
    return bad(f"it says {found[0]!r}", Evidence("motd", found[0])) if found else ok("it says nothing that matters")


CHECKS = (Check("motd", "The message of the day is harmless.", Probe("motd", read_motd), judge_motd, MotdSettings),)
