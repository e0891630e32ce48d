"""The programs of docs/subscribing.md run as they are printed."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from goldens import good
from natsserver import NatsServer
from needs import need

from heeler.bus import Bus, decode, encode, subjects

pytestmark = pytest.mark.bus
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/subscribing.md").read_text()
URL = "nats://127.0.0.1:4222"
BUILD_S = 300.0


def program(language: str, url: str) -> str:
    """Return the page's one program in a language, for a server."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert URL in text
    return str(text).replace(URL, url)


@asynccontextmanager
async def lines_of(argv: Sequence[str | Path], cwd: Path) -> AsyncIterator[asyncio.StreamReader]:
    """Run a program and give what it prints; end it with all that it started."""
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)
        await process.wait()


async def line_with(lines: asyncio.StreamReader, words: str, timeout_s: float) -> str:
    """Return the first line with these words."""
    async with asyncio.timeout(timeout_s):
        while line := (await lines.readline()).decode():
            if words in line:
                return line.strip()
    pytest.fail(f"it ended without {words!r}")


async def say(bus: Bus, state: str, summary: str) -> None:
    """Publish a finding in a state."""
    payload = next(payload for case, payload, _ in good("Finding") if case == "typical")
    finding = {**decode("Finding", payload), "state": state, "summary": summary}
    subject = subjects.finding("north", finding["kind"], finding["node"], finding["id"])
    await bus.publish_acked(subject, "Finding", encode("Finding", finding), f"{state}-{summary}")


async def test_the_program_in_python_tells_what_stands_and_what_changes(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    await say(bus, "open", "slow since noon")
    argv = [sys.executable, "-u", "-c", program("python", nats_server.url)]
    async with lines_of(argv, tmp_path) as lines:
        assert (await line_with(lines, "slow since noon", 30)).startswith("1 open ")
        await say(bus, "closed", "as fast as its peers")
        assert (await line_with(lines, "as fast as its peers", 30)).startswith("0 closed ")


async def test_the_program_in_go_tells_what_stands_and_what_changes(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    need("agent")  # and so Go
    source = tmp_path / "main.go"
    source.write_text(program("go", nats_server.url))
    argv: list[str | Path] = ["go", "build", "-o", tmp_path / "findings", source]
    built = await asyncio.create_subprocess_exec(*argv, cwd=ROOT / "agent-go")
    assert await asyncio.wait_for(built.wait(), BUILD_S) == 0
    await say(bus, "open", "slow since noon")
    async with lines_of([tmp_path / "findings"], tmp_path) as lines:
        assert await line_with(lines, "slow since noon", 30) == "open slow since noon"
        await say(bus, "closed", "as fast as its peers")
        assert await line_with(lines, "as fast as its peers", 30) == "closed as fast as its peers"
