"""Several things that a check has seen, brought down to one verdict."""

from dataclasses import dataclass, field

from heeler.health.model import Evidence, Outcome, Verdict

MOST_WORDS = 4  # findings that are named in the sentence; all are in the evidence
MOST_EVIDENCE = 64
_RANK = (Outcome.BAD, Outcome.UNKNOWN, Outcome.WARN)


@dataclass(slots=True)
class Findings:
    """Collects what is wrong. What is bad outranks what can't be told, and that outranks a warning."""

    seen: list[tuple[Outcome, str, Evidence | None]] = field(default_factory=list)
    perf: dict[str, float] = field(default_factory=dict)

    def bad(self, why: str, evidence: Evidence | None = None) -> None:
        """Add something that is broken."""
        self.seen.append((Outcome.BAD, why, evidence))

    def warn(self, why: str, evidence: Evidence | None = None) -> None:
        """Add something that somebody should look at."""
        self.seen.append((Outcome.WARN, why, evidence))

    def unknown(self, why: str, evidence: Evidence | None = None) -> None:
        """Add something that can't be told."""
        self.seen.append((Outcome.UNKNOWN, why, evidence))

    def verdict(self, well: str, *evidence: Evidence) -> Verdict:
        """Return the verdict; `well` is what is said where nothing is wrong."""
        for outcome in _RANK:
            mine = [one for one in self.seen if one[0] is outcome]
            if mine:
                rest = [one for one in self.seen if one[0] is not outcome]
                shown = [one[2] for one in (*mine, *rest) if one[2] is not None][:MOST_EVIDENCE]
                return Verdict(outcome, _words([one[1] for one in mine]), (*shown, *evidence), _gpus(mine), self.perf)
        return Verdict(Outcome.OK, well, evidence, perf=self.perf)


def _words(whys: list[str]) -> str:
    whys = list(dict.fromkeys(whys))
    said = "; ".join(whys[:MOST_WORDS])
    return said if len(whys) <= MOST_WORDS else f"{said}; and {len(whys) - MOST_WORDS} more"


def _gpus(seen: list[tuple[Outcome, str, Evidence | None]]) -> tuple[str, ...]:
    """Return the GPUs that findings are about; none where one of them is about the node as a whole."""
    uuids = [each.gpu_uuid if each else None for _, _, each in seen]
    return () if None in uuids else tuple(dict.fromkeys(uuid for uuid in uuids if uuid))
