"""The README's program for other teams runs as it is printed."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from goldens import good
from natsserver import NatsServer

from heeler.bus import Bus, decode, subjects

pytestmark = pytest.mark.bus
README = Path(__file__).resolve().parents[2] / "README.md"


async def test_the_program_of_the_readme_prints_each_finding(bus: Bus, nats_server: NatsServer) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    payload = next(payload for case, payload, _ in good("Finding") if case == "typical")
    finding = decode("Finding", payload)
    url = "nats://127.0.0.1:4222"
    assert url in program
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", program.replace(url, nats_server.url), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        subject = subjects.finding("north", finding["kind"], finding["node"], finding["id"])
        for attempt in range(100):  # it reads what comes after its start
            await bus.publish_acked(subject, "Finding", payload, f"f{attempt}")
            try:
                line = await asyncio.wait_for(process.stdout.readline(), 0.3)
            except TimeoutError:
                continue
            if b"bus_connected" in line:
                continue
            assert line.decode().strip() == f"{finding['state']} {finding['summary']}"
            return
        pytest.fail("it never printed the finding")
    finally:
        process.kill()
        await process.wait()
