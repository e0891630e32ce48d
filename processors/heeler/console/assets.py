"""The files of the page, held in memory: nothing else can be asked for."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    data: bytes
    zipped: bytes
    kind: str
    etag: str


def load() -> Mapping[str, Asset]:
    """Return all files by name."""
    found = {}
    for path in files("heeler.console").joinpath("static").iterdir():
        suffix = path.name[path.name.rfind(".") :]
        if suffix not in TYPES:
            continue
        data = path.read_bytes()
        etag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
        found[path.name] = Asset(data, gzip.compress(data, mtime=0), TYPES[suffix], etag)
    return found
