"""A large JSON answer piece by piece: the rows of its one long list as they come, and at the end the rest.

An answer of a hundred thousand jobs is half a gigabyte, which is never needed as a whole. What stands between two rows
is learned from the first ones, and a piece that ends there is decoded at once. That this was no such place after all
(a name that looks like it) shows in the piece itself: its brackets don't match. Then, and where msgspec can't decode
what Slurm writes (bare Infinity, raw newlines), the rows are found one by one, by their brackets and strings.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from heeler.slurm import jsonfix
from heeler.slurm.errors import ParseError

PIECE = 1 << 20  # bytes that are decoded at a time
# Strings as a whole, so that no bracket in one counts; a quote by itself is a string that has not ended yet.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
_OPENING = re.compile(rb'[\s]*(\{\s*"[^"\\]*"\s*:)')
_AFTER_KEY = re.compile(rb"\s*:\s*\[")
_BETWEEN = re.compile(rb"\s*([,\]])")
_SPACE = re.compile(rb"\s*")
_PLAIN = re.compile(rb"[^,\]\s]+(?=\s*[,\]])")  # a row that is no object, such as null

Decode = Callable[[Any], Sequence[Any]]


class ListReader:
    """Takes an answer in pieces of any size, and gives the rows of the list `key` to `take` some at a time.

    `decode` gets a JSON list of whole rows and returns them; it raises msgspec.DecodeError or UnicodeDecodeError for
    what is none.
    """

    def __init__(self, key: str, decode: Decode, take: Callable[[Sequence[Any]], None]) -> None:
        """Begin before the answer."""
        self._key, self._decode, self._take = f'"{key}"'.encode(), decode, take
        self._name = key
        self._buffer = bytearray()
        self._head: bytes | None = None  # what stood before the list
        self._in_tail = False
        self._at, self._depth = -1, 0  # how far the head was looked through; -1: its noise not yet
        self._mark = b""
        self._enough = PIECE

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next piece. Raises ParseError for what can't be JSON."""
        self._buffer += data
        if self._head is None:
            self._find_list()
        if self._head is not None and not self._in_tail and len(self._buffer) >= self._enough:
            before = len(self._buffer)
            self._take_rows()
            # A row that does not end is not looked through again with each piece.
            self._enough = PIECE if len(self._buffer) < before else 2 * before

    def end(self) -> Mapping[str, Any]:
        """Return the answer with its list emptied. Raises ParseError where it is none, or has no such list."""
        if self._head is not None and not self._in_tail:
            self._take_rows()
            self._one_by_one(len(self._buffer))
            if not self._in_tail:
                raise ParseError("not JSON (it ends within its list)", _shown(self._buffer[-80:]))
        value = jsonfix.loads(bytes((self._head or b"") + self._buffer)).value
        if self._head is not None and value.get(self._name) != []:
            raise ParseError(f"two lists of {self._name} in one answer", "")
        return value

    def _find_list(self) -> None:
        """Look for the list: a key of the outermost object."""
        buffer = self._buffer
        if self._at < 0:
            self._at = _skip_noise(buffer)
        while self._at >= 0 and (token := _TOKEN.search(buffer, self._at)):
            word = token[0]
            if word == b'"':
                return
            if word == self._key and self._depth == 1:
                if len(buffer) - token.end() < 64 and not _AFTER_KEY.match(buffer, token.end()):
                    return  # what follows has not come yet, or is no list: then the end will tell
                if after := _AFTER_KEY.match(buffer, token.end()):
                    self._head = bytes(buffer[: after.end()])
                    del buffer[: after.end() - 1]  # the buffer begins with the bracket
                    return
            self._depth += (word in b"{[") - (word in b"}]")
            self._at = token.end()

    def _take_rows(self) -> None:
        """Take all whole rows but the last."""
        buffer = self._buffer
        if not self._mark:
            first = _OPENING.match(buffer, 1)
            self._mark = first[1] if first else b""
        at = buffer.rfind(self._mark) if self._mark else 0
        comma = _comma_before(buffer, at)
        if comma < 1:
            self._one_by_one(len(buffer))  # no row begins as the first did, or this is a very long one
            return
        buffer[comma] = 0x5D
        try:
            with memoryview(buffer) as whole, whole[: comma + 1] as piece:
                rows = self._decode(piece)
        except (msgspec.DecodeError, UnicodeDecodeError):
            buffer[comma] = 0x2C
            self._one_by_one(comma)
            return
        buffer[comma] = 0x5B
        del buffer[:comma]
        self._take(rows)

    def _one_by_one(self, until: int) -> None:
        """Take the rows that begin before `until`, as far as they are there, and what ends the list."""
        buffer, at = self._buffer, 1
        rows: list[Any] = []
        while at <= until:
            start = _end_of_space(buffer, at)
            if at == 1 and buffer[start : start + 1] == b"]":
                end, after = start, _BETWEEN.match(buffer, start)
            else:
                end = _end_of_row(buffer, start)
                after = _BETWEEN.match(buffer, end) if end > 0 else None
            if after is None:
                break
            if end > start:
                rows.append(self._row(bytes(buffer[start:end])))
            at = after.end()
            if after[1] == b"]":
                self._in_tail = True
                break
        if self._in_tail:
            del buffer[: at - 1]  # with the bracket: the head has the other
        elif at > 1:
            buffer[at - 1] = 0x5B
            del buffer[: at - 1]
        self._take(rows)

    def _row(self, text: bytes) -> Any:
        try:
            return self._decode(b"[" + text + b"]")[0]
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
            return jsonfix.loads(b'{"row":' + text + b"}").value["row"]


_SPACES = frozenset(b" \t\r\n")


def _skip_noise(buffer: bytearray) -> int:
    """Return where the object begins; -1 while only other lines are there. Warnings may stand before it."""
    at = 0
    while at < len(buffer):
        start = _end_of_space(buffer, at)
        if buffer[start : start + 1] == b"{":
            return start
        at = buffer.find(b"\n", start) + 1
        if not at:
            return -1
    return -1


def _comma_before(buffer: bytearray, at: int) -> int:
    """Return where the comma before a row is, 0 where there is none."""
    at -= 1
    while at > 0 and buffer[at] in _SPACES:
        at -= 1
    return at if at > 0 and buffer[at] == 0x2C else 0


def _end_of_space(buffer: bytearray, at: int) -> int:
    found = _SPACE.match(buffer, at)
    return found.end() if found else at


def _end_of_row(buffer: bytearray, at: int) -> int:
    """Return where the value that begins at `at` ends; -1 where it is not there as a whole."""
    if bytes(buffer[at : at + 1]) not in (b"{", b"[", b'"'):
        plain = _PLAIN.match(buffer, at)
        return plain.end() if plain else -1
    depth = 0
    for token in _TOKEN.finditer(buffer, at):
        word = token[0]
        if word == b'"':
            return -1
        depth += (word in b"{[") - (word in b"}]")
        if not depth:
            return token.end()
    return -1


def _shown(data: bytes | bytearray) -> str:
    return data.decode(errors="replace")
