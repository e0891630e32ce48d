"""Small states in files: written aside, synced and renamed, so that a file is whole or the one before."""

import json
import os
from pathlib import Path
from typing import Any


def save(path: Path, value: Any) -> None:
    """Write a value as JSON. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w") as out:
            json.dump(value, out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load(path: Path) -> Any:
    """Return a file's value, None where there is no file or no JSON in it. Raises OSError."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
