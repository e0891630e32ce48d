"""Subject tokens: names from outside made safe, and keys put on shards."""

import zlib
from functools import lru_cache

SHARDS = 16
MAX_TOKEN = 200

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class TokenError(ValueError):
    """A name that can't be a subject token: empty, too long, or with control characters."""


@lru_cache(maxsize=1 << 16)
def escape(name: str) -> str:
    """Return a name as a NATS subject token.

    Bytes (UTF-8) other than letters, digits, ``_`` and ``-`` become ``=HH``,
    so no name can hold a ``.``, ``*``, ``>`` or space, and two names never meet.
    Raises TokenError for an empty name, control characters, or more than 200 characters.
    """
    try:
        raw = name.encode()
    except UnicodeEncodeError as err:
        raise TokenError(f"not UTF-8: {name!r}") from err
    if not raw or any(byte < 0x20 or byte == 0x7F for byte in raw):
        raise TokenError(f"empty or with control characters: {name!r}")
    token = "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in raw)
    if len(token) > MAX_TOKEN:
        raise TokenError(f"longer than {MAX_TOKEN}: {name[:40]!r}...")
    return token


def unescape(token: str) -> str:
    """Undo `escape`. Raises TokenError for what `escape` never writes."""
    out = bytearray()
    i = 0
    try:
        while i < len(token):
            if token[i] == "=":
                out.append(int(token[i + 1 : i + 3], 16))
                i += 3
            else:
                out += token[i].encode()
                i += 1
        name = out.decode()
    except ValueError as err:  # no hexadecimal number, one below 0, or not UTF-8
        raise TokenError(f"bad escape: {token!r}") from err
    if escape(name) != token:
        raise TokenError(f"not in canonical form: {token!r}")
    return name


def shard_of(key: str) -> int:
    """Return the shard of a job or node: crc32 of its name, modulo 16."""
    return zlib.crc32(key.encode()) % SHARDS
