"""What tests of more than one folder need: a real bus."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from natsserver import NatsServer

from heeler.bus import Bus, BusSettings
from heeler.bus.admin import init

# A loaded machine is no finding: examples have no deadline.
settings.register_profile("heeler", deadline=None)
settings.load_profile("heeler")


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server of this test's own, running."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def bus_settings(nats_server: NatsServer) -> BusSettings:
    """How to reach it; impatient, so that tests are quick."""
    return BusSettings(servers=(nats_server.url,), cluster="north", connect_timeout_s=2.0, reconnect_wait_s=0.05)


@pytest.fixture
async def bus(bus_settings: BusSettings) -> AsyncIterator[Bus]:
    """A connection to it, with all streams and buckets."""
    found = await Bus.connect(bus_settings, "test")
    await init(found, scale=0.002)
    yield found
    await found.close()
