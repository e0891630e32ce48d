"""How long something has been so: readings in time, of which a few may be good or missing. Pure."""

from collections import deque
from dataclasses import dataclass, field

from heeler.detect.findings import SECOND_NS


@dataclass(frozen=True, slots=True)
class Patience:
    """When something is said and when it is over. `amount`: errors within `span_s`; 0: it must last `after_s`."""

    after_s: float
    clear_s: float
    span_s: float
    amount: float = 0.0
    share: float = 0.8  # of the readings since it began

    @property
    def memory_s(self) -> float:
        """How far back a cold start must read."""
        return max(self.span_s, self.clear_s) + 60.0  # a window more, so that the last bad one is still there


@dataclass(slots=True)
class Marks:
    """Readings of one thing: (server time, how bad); 0 is good, and what could not be read leaves no mark."""

    all: deque[tuple[int, float]] = field(default_factory=deque)

    def add(self, now_ns: int, bad: float, patience: Patience, *, watched: bool) -> None:
        """Take a reading in. Unless something is open, marks begin with a bad one."""
        self.all.append((now_ns, bad))
        since = now_ns - int(patience.memory_s * SECOND_NS)
        while self.all and (self.all[0][0] <= since or not (watched or self.all[0][1])):
            self.all.popleft()

    def since(self, patience: Patience, window_ns: int, after_ns: int) -> int | None:
        """Return since when it has been bad, if that is long enough to say so; only what came after a time counts."""
        begin = (self.all[-1][0] if self.all else 0) - int(patience.span_s * SECOND_NS)
        marks = [(ts, bad) for ts, bad in self.all if ts > max(after_ns, begin)]
        while marks and not marks[0][1]:
            marks.pop(0)
        if not marks or not marks[-1][1]:
            return None
        if patience.amount:
            return marks[0][0] if sum(bad for _, bad in marks) >= patience.amount else None
        lasted = marks[-1][0] - marks[0][0] + window_ns >= patience.after_s * SECOND_NS
        enough = len(marks) >= 3 and sum(bad > 0 for _, bad in marks) >= patience.share * len(marks)
        return marks[0][0] if lasted and enough else None

    def clear(self, patience: Patience, now_ns: int) -> bool:
        """Say whether it has been good for long enough, with readings that say so."""
        last_bad = max((ts for ts, bad in self.all if bad), default=0)
        good = [ts for ts, _ in self.all if ts > last_bad]
        return len(good) >= 3 and now_ns - (last_bad or good[0]) >= patience.clear_s * SECOND_NS
