"""A drainer on a real bus, over a scontrol of the test's own."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from drainsite import Instance, Process, Site, running
from fakescontrol import FakeScontrol
from nats.js.api import KeyValueConfig
from natsserver import NatsServer
from waiting import reading, until

from heeler.bus import Bus, BusSettings, ConsumerSpec
from heeler.bus.admin import init
from heeler.drain.hooks import ExecHook

TTL_S = 3.0


@pytest.fixture
def scontrol(tmp_path: Path) -> FakeScontrol:
    """A program that behaves as scontrol."""
    return FakeScontrol(tmp_path / "slurm")


@pytest.fixture
async def site(bus_settings: BusSettings, scontrol: FakeScontrol) -> AsyncIterator[Site]:
    """A bus whose drain lease is short, with the feed's words."""
    found = await Bus.connect(bus_settings, "test")
    await found.js.create_key_value(KeyValueConfig(bucket="drain_lease", ttl=TTL_S, history=1))
    await init(found, scale=0.002)
    async with reading(found, ConsumerSpec("DRAIN", ("drain.action.*",), start=1)) as actions:
        made = Site(found, actions, scontrol)
        await made.feed()
        yield made
    await found.close()


@pytest.fixture
async def start(site: Site, bus_settings: BusSettings) -> AsyncIterator[Callable[..., Awaitable[Instance]]]:
    """Start drainers in this process; they end with the test."""
    async with AsyncExitStack() as stack:

        async def run(
            name: str = "one",
            *,
            dry_run: bool = False,
            active: bool = True,
            lifecycle: dict[str, Any] | None = None,
            rules: list[dict[str, Any]] | None = None,
            hooks: dict[str, ExecHook] | None = None,
            **limits: Any,
        ) -> Instance:
            drainer = running(bus_settings, site, name, dry_run, limits, lifecycle, rules, hooks)
            instance = await stack.enter_async_context(drainer)
            if active:
                await until(lambda: instance.active, f"{name} active")
            return instance

        yield run


@pytest.fixture
def spawn(tmp_path: Path, nats_server: NatsServer, scontrol: FakeScontrol) -> Iterator[Callable[..., Process]]:
    """Start drainers as processes; they end with the test."""
    with ExitStack() as stack:

        def run(
            name: str,
            drain: str = "allow_root = true\nallow_anonymous_bus = true",
            limits: str = "",
            lifecycle: str = "",
        ) -> Process:
            process = Process(tmp_path / name, nats_server.url, scontrol.program, drain, limits, lifecycle)
            stack.callback(process.close)
            return process

        yield run
