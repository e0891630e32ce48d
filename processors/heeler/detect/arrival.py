"""Which samples of one source count: not twice, not late, not from the future, and in order.

A node's clock may be wrong by minutes and its samples are still good: then every one of them is off by the same
amount. A backlog that is sent at once after an outage, or a single stray message, is not.
"""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "twin", "late", "future", "old_boot"]


@dataclass(slots=True)
class Arrival:
    """What was last accepted from one source. Times are nanoseconds; lag = server's stamp - source's stamp."""

    boot: str = ""
    old_boot: str = ""
    ts: int = 0
    server_ns: int = 0
    offset_ns: int = 0  # the source's clock error, 0 while it is small
    odd_lag_ns: int | None = None  # lag of the last sample that was refused for it
    odd_ts: int = 0

    def accept(self, boot: str, ts: int, server_ns: int, ahead_ns: int, late_ns: int) -> Verdict:
        """Say whether a sample counts; "ok" moves on to it. A clock up to `ahead_ns` fast is not worth correcting."""
        if server_ns <= self.server_ns and self.server_ns:
            return "twin"  # redelivered, or stepped over by a newer one
        if boot != self.boot:
            if boot == self.old_boot:
                return "old_boot"
            self._start(boot)
        lag = server_ns - ts
        if ts > self.ts and -ahead_ns <= lag - self.offset_ns <= late_ns:
            return self._take(ts, server_ns)
        return self._odd(ts, server_ns, lag, ahead_ns, late_ns)

    def _start(self, boot: str) -> None:
        self.old_boot, self.boot = self.boot, boot
        self.ts, self.offset_ns, self.odd_lag_ns, self.odd_ts = 0, 0, None, 0

    def _take(self, ts: int, server_ns: int) -> Verdict:
        self.ts, self.server_ns, self.odd_lag_ns = ts, server_ns, None
        return "ok"

    def _odd(self, ts: int, server_ns: int, lag: int, ahead_ns: int, late_ns: int) -> Verdict:
        normal = -ahead_ns <= lag <= late_ns
        slack = ahead_ns // 4  # a backlog's lags differ by a whole window, a wrong clock's do not
        far = abs(lag - self.offset_ns) > slack
        if normal and self.offset_ns and far:  # the clock was set right
            self.offset_ns = 0
            return self._take(ts, server_ns)
        before, before_ts = self.odd_lag_ns, self.odd_ts
        self.odd_lag_ns, self.odd_ts = lag, ts
        steady = before is not None and abs(lag - before) <= slack and ts > before_ts
        if steady and far and not normal:
            self.offset_ns = lag
            return self._take(ts, server_ns)
        if ts <= self.ts and self.ts:
            return "twin"
        return "future" if lag - self.offset_ns < 0 else "late"
