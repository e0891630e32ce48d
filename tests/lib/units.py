"""systemd's units as tests read them."""

import shlex
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "deploy/systemd"


def keys_of(text: str) -> dict[str, list[str]]:
    """Return the values of each key of a unit, all sections together."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found[key].append(value)
    return found


def env_of(unit: dict[str, list[str]], *files: str) -> dict[str, str]:
    """Return the environment of a service: its own, then what its files say."""
    found = dict(word.split("=", 1) for line in unit["Environment"] for word in line.split())
    for text in files:
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        found |= dict(line.split("=", 1) for line in lines)
    return found


def start_of(unit: dict[str, list[str]], env: dict[str, str]) -> list[str]:
    """Return the command line of a service."""
    (line,) = unit["ExecStart"]
    words = shlex.split(line)
    return [env[word[2:-1]] if word.startswith("${") else word for word in words]
