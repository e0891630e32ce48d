"""Entries that wait to be told in the order of their time: pure."""

import heapq

from heeler.console.timeline import Entry, Memory


class Held:
    """Holds entries back, joins twins, and lets the oldest go where there are too many."""

    def __init__(self, most: int) -> None:
        self.left_out = 0
        self.most = most  # 0: no bound
        self._entries: dict[int, tuple[float, Entry]] = {}  # by number: when it came, and what it is
        self._oldest: list[tuple[int, int]] = []  # (ts, number)
        self._by_id: dict[str, int] = {}
        self._told = Memory()
        self._count = 0

    def add(self, entry: Entry, now_s: float) -> None:
        """Take an entry. Of twins the one that names jobs counts, if it comes before the other was told."""
        if entry.id:
            if (entry.id,) in self._told:
                return
            number = self._by_id.get(entry.id)
            if number is not None:
                came, held = self._entries[number]
                self._entries[number] = (came, entry if entry.jobs else held)
                return
        self._count += 1
        self._entries[self._count] = (now_s, entry)
        heapq.heappush(self._oldest, (entry.ts, self._count))
        if entry.id:
            self._by_id[entry.id] = self._count
        if self.most and len(self._entries) > self.most:
            self._drop_oldest()

    def release(self, came_until_s: float) -> list[Entry]:
        """Return what came before a time, the oldest first."""
        due = [number for number, (came, _) in self._entries.items() if came <= came_until_s]
        found = sorted((self._take(number) for number in due), key=lambda entry: entry.ts)
        self._oldest = [item for item in self._oldest if item[1] in self._entries]
        heapq.heapify(self._oldest)
        return found

    def _take(self, number: int) -> Entry:
        _, entry = self._entries.pop(number)
        if entry.id:
            self._by_id.pop(entry.id, None)
            self._told.swap((entry.id,), True)
        return entry

    def _drop_oldest(self) -> None:
        while self._oldest:
            _, number = heapq.heappop(self._oldest)
            if number in self._entries:
                self._take(number)
                self.left_out += 1
                return
