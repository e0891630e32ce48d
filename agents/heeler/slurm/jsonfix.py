"""JSON as Slurm writes it: with bare ``Infinity`` or ``nan``, raw control characters, and warnings before it."""

import json
import re
from dataclasses import dataclass
from typing import Any

from heeler.slurm.errors import ParseError

# A string as a whole, so that nothing inside one is touched; or a bare word that JSON doesn't have.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])[+-]?(?:Infinity|infinity|Inf|inf|NaN|nan)(?![\w.])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object and the lines before it that were none."""

    value: dict[str, Any]
    unparsed: tuple[str, ...] = ()


def loads(text: str | bytes) -> Json:
    """Return the JSON object in an output.

    Bare infinities become float infinity, NaN becomes None. Bytes that are not UTF-8 become U+FFFD.
    Raises ParseError for anything else than one object, possibly with whole lines of other text before it.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    body, unparsed = _skip_noise(text)
    try:
        value = _load(body)
    except ValueError:
        try:
            value = _load(_TOKEN.sub(_plain, body))
        except ValueError as err:
            at = getattr(err, "pos", 0)
            raise ParseError(f"not JSON ({err})", body[max(at - 40, 0) : at + 40]) from None
    if not isinstance(value, dict):
        raise ParseError("not a JSON object", body)
    return Json(value, unparsed)


def _skip_noise(text: str) -> tuple[str, tuple[str, ...]]:
    lines: list[str] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        if line.lstrip().startswith("{"):
            return text[at:], tuple(lines)
        if line.strip():
            lines.append(line.strip())
        at = len(text) if end < 0 else end + 1
    raise ParseError("no JSON object" if text.strip() else "empty answer", text.strip())


def _load(text: str) -> Any:
    try:
        # strict=False: names of jobs hold raw newlines and tabs in some versions.
        return json.loads(text, strict=False, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _constant(word: str) -> float | None:
    return None if word == "NaN" else float(word)


def _plain(match: re.Match[str]) -> str:
    word = match[0]
    if word.startswith('"'):
        return word
    if "n" in word.lower()[:2] and "nan" in word.lower():
        return "NaN"
    return "-Infinity" if word.startswith("-") else "Infinity"
