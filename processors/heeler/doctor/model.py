"""What the doctor says: one line for each thing that was looked at."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How a thing is. `unknown` was looked at and can't be told; it is never as good as `ok`."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at: how it is, in words, and what to do."""

    area: str  # bus, slurm, node
    what: str
    grade: Grade
    says: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the line as a map."""
        return {"area": self.area, "what": self.what, "grade": self.grade, "says": self.says, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class Desk:
    """Writes the lines of one area."""

    area: str

    def ok(self, what: str, says: str) -> Line:
        """Say that it is as it should be."""
        return Line(self.area, what, Grade.OK, says)

    def warn(self, what: str, says: str, advice: str) -> Line:
        """Say that it works, though not as it should."""
        return Line(self.area, what, Grade.WARN, says, advice)

    def bad(self, what: str, says: str, advice: str) -> Line:
        """Say that it does not work."""
        return Line(self.area, what, Grade.BAD, says, advice)

    def unknown(self, what: str, says: str, advice: str = "") -> Line:
        """Say that it can't be told."""
        return Line(self.area, what, Grade.UNKNOWN, says, advice)


BAD_STATUS, UNKNOWN_STATUS = 1, 3


def exit_status(lines: Iterable[Line]) -> int:
    """Return 1 if anything is bad, else 3 if anything could not be told, else 0."""
    grades = {line.grade for line in lines}
    if Grade.BAD in grades:
        return BAD_STATUS
    return UNKNOWN_STATUS if Grade.UNKNOWN in grades else 0
