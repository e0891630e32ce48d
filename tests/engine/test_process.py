"""A process from outside: what it answers about itself."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from natsserver import NatsServer, free_port
from waiting import status, until_sync


@pytest.mark.bus
def test_a_process_that_waits_for_the_bus_says_so_from_the_start(tmp_path: Path) -> None:
    server, port = NatsServer(tmp_path / "nats"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "heeler.enrich", "--listen", f"127.0.0.1:{port}"]
    env = os.environ | {"HEELER_NATS_URL": server.url}
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        until_sync(lambda: status(f"{url}/healthz") == 503, "it answers", 60)
        with urlopen(f"{url}/metrics", timeout=5) as answer:
            assert answer.read() == b'heeler_bus_connected{process="enrich"} 0\n'
        server.start()
        server.init_bus(0.002)
        until_sync(lambda: status(f"{url}/healthz") == 200, "it is on the bus", 60)
        with urlopen(f"{url}/metrics", timeout=5) as answer:
            assert b'heeler_bus_connected{process="enrich"} 1\n' in answer.read()
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        server.kill()
