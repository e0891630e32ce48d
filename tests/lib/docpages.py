"""The pages of the repository, as what can be checked of them: links, headings, code."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "agent-go/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)
_FENCE = re.compile(r"^ *```(\w*)\s*$")
_LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$")
_BREAKS = frozenset(("|", ">", ">>", "<", "&&", "||", ";", "&"))


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code: where it begins, what language its fence names, its lines."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def split(page: Path) -> tuple[list[tuple[int, str]], list[Code]]:
    """Return a page's lines of prose with their numbers, and its blocks of code."""
    prose: list[tuple[int, str]] = []
    blocks: list[Code] = []
    lines = page.read_text().splitlines()
    at, before_blank = 0, True
    while at < len(lines):
        line, begin = lines[at], at
        if fence := _FENCE.match(line):
            at += 1
            while at < len(lines) and not _FENCE.match(lines[at]):
                at += 1
            blocks.append(Code(name(page), begin + 1, fence[1], _dedent(lines[begin + 1 : at])))
            at += 1
        elif before_blank and line.startswith("    ") and line.strip():
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            blocks.append(Code(name(page), begin + 1, "", _dedent(lines[begin:at])))
        else:
            prose.append((at + 1, line))
            at += 1
        before_blank = (at > 0 and not lines[at - 1].strip()) or bool(fence)
    return prose, blocks


def _dedent(lines: list[str]) -> str:
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[least:] for line in lines).strip("\n") + "\n"


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the links of a page, with the number of their line."""
    prose, _ = split(page)
    for number, line in prose:
        for target in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
            yield number, target


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in split(page)[0]:
        if heading := _HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            count = 0
            while (one := f"{slug}-{count}" if count else slug) in found:
                count += 1
            found.add(one)
    return found


def commands(block: Code, program: str) -> Iterator[list[str]]:
    """Yield the command lines of a program in a block, without comments, pipes and redirections."""
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        at = re.search(rf"(?:^|[|;&] *|exec [\w-]+ ){program} ", line)
        if at is None:
            continue
        try:
            words = shlex.split(line[at.end() :], comments=True)
        except ValueError as err:
            raise AssertionError(f"{block}: {line.strip()}: {err}") from err
        stop = next((place for place, word in enumerate(words) if word in _BREAKS), len(words))
        yield words[:stop]
