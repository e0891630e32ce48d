"""docs/health-checks.md, made from the table of checks: nothing about a check is written down twice.

What a check reads is its probe's first line, what it says its judge's words, and what a setting means stands behind it
in the code.
"""

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from heeler.health.model import Check
from heeler.health.policy import Profile
from heeler.health.table import CHECKS, PROFILES

HEAD = """# Health checks

Made by `make gen` from the table of checks ([table.py](../agents/heeler/health/table.py)); how they are run, what a
policy can say and what happens around Slurm's jobs is in [health.md](health.md).

A check says **ok**, **warn**, **bad**, **unknown** or **off**. What could not be read is unknown with the reason, never
ok and never bad: a tool that is missing, denied, ends with 126 or 127, does not answer in time or prints something else
than it should. "May fail a job" means that its bad is evidence against the hardware, so that a policy may enforce it in
a prolog or epilog; by default nothing is enforced. Checks that need settings mean nothing without those of the site.

Checks of PCIe, Ethernet, InfiniBand and drives compare with a manifest, where there is one:
`/etc/heeler/manifest.toml`, `/etc/heeler/manifest.json` or `/etc/manifest.json`, with the keys of GCM's. Make it on a
machine that is known to be good, read what it leaves out, and put it on all machines of that kind:

    heeler-health manifest --out /etc/heeler/manifest.json
"""
_COMMENT = re.compile(r"^    (\w+): [^#]*?#\s*(.+?)\s*$", re.MULTILINE)


def reference(checks: Sequence[Check], profiles: Mapping[str, Profile]) -> str:
    """Return the page."""
    families: dict[str, list[Check]] = {}
    for check in checks:
        families.setdefault(_about(inspect.getmodule(check.judge)), []).append(check)
    parts = [HEAD, _summary(checks, profiles)]
    for about, mine in families.items():
        parts.append(f"## {about}\n")
        parts += [_one(check, profiles) for check in mine]
    return "\n".join(parts).rstrip() + "\n"


def _summary(checks: Sequence[Check], profiles: Mapping[str, Profile]) -> str:
    lines = [f"{len(checks)} checks:\n", "| check | | runs by default in |", "|---|---|---|"]
    for check in checks:
        places = [name for name, profile in profiles.items() if check.name in profile.checks]
        lines.append(
            f"| [{check.name}](#{check.name}) | {_cell(check.about)} | {', '.join(places) or 'where it is named'} |"
        )
    return "\n".join(lines) + "\n"


def _one(check: Check, profiles: Mapping[str, Profile]) -> str:
    places = [name for name, profile in profiles.items() if check.name in profile.checks]
    marks = ["needs settings"] if check.needs_settings else []
    marks += ["may fail a job"] if check.hardware else []
    lines = [
        f"### {check.name}\n",
        f"{check.about}" + (f" ({', '.join(marks)})" if marks else "") + "\n",
        f"- reads: {_first(check.probe.read)} At most {check.probe.timeout_s:g} s.",
        f"- says: {_text(inspect.getdoc(check.judge))}",
    ]
    if places:
        lines.append(f"- runs by default in: {', '.join(places)}")
    return "\n".join(lines) + "\n" + _settings(check)


def _settings(check: Check) -> str:
    mine = fields(check.settings)
    if not mine:
        return ""
    comments = dict(_COMMENT.findall(inspect.getsource(check.settings)))
    lines = ["", "| setting | default | |", "|---|---|---|"]
    for field in mine:
        about = comments.get(field.name, "")
        lines.append(f"| `{field.name}` | {_default(field)} | {_cell(about)} |")
    return "\n".join(lines) + "\n"


def _default(field: "Field[Any]") -> str:
    if field.default_factory is not MISSING:
        value: Any = field.default_factory()
    elif field.default is MISSING:
        return "must be given"
    else:
        value = field.default
    return "not set" if value is None else f"`{_toml(value)}`".replace("|", "\\|")


def _toml(value: Any) -> str:
    """Return a value as the policy's file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple | frozenset):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _about(module: Any) -> str:
    first = (inspect.getdoc(module) or "").partition("\n")[0].rstrip(".")
    words = re.sub(r"^Checks (?:of|by) ", "", first).partition(":")[0].strip() or "others"
    return words[0].upper() + words[1:]


def _first(function: Any) -> str:
    return _text((inspect.getdoc(function) or "what its probe says").partition("\n\n")[0])


def _text(text: str | None) -> str:
    said = " ".join((text or "").split())
    return said if said.endswith(".") or not said else f"{said}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page to the path that is given, or say with --check whether it is up to date."""
    path = Path(sys.argv[-1])
    text = reference(CHECKS, PROFILES)
    if "--check" in sys.argv:
        sys.exit(0 if path.exists() and path.read_text() == text else f"{path}: make gen changes it")
    path.write_text(text)


if __name__ == "__main__":
    main()
