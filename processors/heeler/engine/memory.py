"""The engine without a bus: steps over a sequence of messages.

It is what `heeler replay` runs, what tests of steps run, and the twin that the live engine is compared with.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.bus import encode
from heeler.engine.intake import Refused, intake
from heeler.engine.step import Counters, Event, Inbound, Sleeper, Step

MAX_TICKS_AT_ONCE = 120
EVERYONE = 64  # every so many ticks are for sleeping keys too: some have to be forgotten


@dataclass(slots=True)
class Ticker:
    """Ticks of the stream's own time, at whole multiples of the interval, so that every instance has the same."""

    every_ns: int
    last_ns: int = 0

    def due(self, now_ns: int) -> Iterator[int]:
        """Yield the ticks up to a time. After a long gap only the newest are made up for."""
        if not self.every_ns:
            return
        newest = now_ns - now_ns % self.every_ns
        if self.last_ns == 0:
            self.last_ns = newest
            return
        first = max(self.last_ns + self.every_ns, newest - (MAX_TICKS_AT_ONCE - 1) * self.every_ns)
        for tick in range(first, newest + 1, self.every_ns):
            self.last_ns = tick
            yield tick


class Keyed:
    """A step and the state of its keys. Time never runs backwards for it."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.states: dict[str, Any] = {}
        self.now_ns = 0
        self.ticker = Ticker(int((step.tick_s or 0) * 1e9))
        self._asleep = step.asleep if isinstance(step, Sleeper) else None
        self._awake: dict[str, None] = {}  # with `asleep`, the keys that ticks are for
        self._ticks = 0

    def on(self, message: Inbound, *, context: bool = False) -> list[tuple[str, Event]]:
        """Return (key, event) for a message, ticks before it included.

        Context that is read before any history (`context`) does not move time.
        """
        made = [] if context or message.ts_ns <= self.now_ns else self.advance(message.ts_ns)
        states, step = self.states, self.step
        for key in step.keys(message):
            state = states.get(key)
            kept, events = step.on(key, state, message, self.now_ns)
            if kept is not state:
                self._keep(key, kept)
            if self._asleep is not None and not self._asleep(kept):
                self._awake[key] = None
            if events:
                made += [(key, event) for event in events]
        return made

    def advance(self, now_ns: int) -> list[tuple[str, Event]]:
        """Let time pass: return (key, event) of every tick that is due."""
        made: list[tuple[str, Event]] = []
        if now_ns <= self.now_ns:
            return made
        self.now_ns = now_ns
        for tick in self.ticker.due(now_ns):
            self._ticks += 1
            everyone = self._asleep is None or self._ticks % EVERYONE == 0
            for key in list(self.states if everyone else self._awake):
                made += self._tick(key, tick)
        return made

    def _tick(self, key: str, tick: int) -> list[tuple[str, Event]]:
        state = self.states.get(key)
        if state is None:
            self._awake.pop(key, None)
            return []
        kept, events = self.step.tick(key, state, tick)
        if kept is not state:
            self._keep(key, kept)
        if self._asleep is not None and self._asleep(kept):
            self._awake.pop(key, None)
        return [(key, event) for event in events]

    def _keep(self, key: str, state: Any) -> None:
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state


class Pipeline:
    """Steps chained in memory: what one publishes, the later and the same ones read."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.stages = [Keyed(step) for step in steps]
        self.counters = Counters()
        self.refused: list[tuple[str, Refused]] = []

    def feed(self, subject: str, headers: dict[str, str] | None, payload: bytes, ts_ns: int) -> Iterator[Inbound]:
        """Take a message from outside; yield every message that the steps publish, as the bus would deliver it."""
        self.counters.received += 1
        try:
            message = intake(subject, headers, payload, ts_ns)
        except Refused as err:
            self.counters.dead += 1
            self.refused.append((subject, err))
            return
        yield from self._run(deque([message]))

    def finish(self, now_ns: int) -> Iterator[Inbound]:
        """Let time pass to the end, so that silence and open windows are judged."""
        for stage in self.stages:
            made = [self._deliver(event, now_ns) for _, event in stage.advance(now_ns)]
            self.counters.events += len(made)
            yield from made
            yield from self._run(deque(made))

    def _run(self, waiting: deque[Inbound]) -> Iterator[Inbound]:
        seen_ids: set[str] = set()
        outputs: list[Inbound] = []
        while waiting:
            message = waiting.popleft()
            for stage in self.stages:
                if not any(inp.kind == message.kind for inp in stage.step.inputs):
                    # Not for this step, but time passes for it all the same.
                    fresh = stage.advance(message.ts_ns)
                else:
                    fresh = stage.on(message)
                for _, event in fresh:
                    if event.id and event.id in seen_ids:
                        continue
                    seen_ids.add(event.id)
                    self.counters.events += 1
                    made = self._deliver(event, max(message.ts_ns, stage.now_ns))
                    outputs.append(made)
                    waiting.append(made)
        yield from outputs

    @staticmethod
    def _deliver(event: Event, ts_ns: int) -> Inbound:
        payload = event.data if isinstance(event.data, bytes) else encode(event.kind, event.data)
        return intake(event.subject, None, payload, ts_ns)


def run(step: Step, messages: Iterable[Inbound], *, until_ns: int | None = None) -> list[Event]:
    """Return all events of one step over some messages: the short form for tests."""
    keyed = Keyed(step)
    events = [event for message in messages for _, event in keyed.on(message)]
    if until_ns is not None:
        events += [event for _, event in keyed.advance(until_ns)]
    return events
