"""Claims on a real bucket: what stands there, all of it, and in which revision."""

import pytest

from heeler.bus import Bus, BusError
from heeler.bus.claims import Claims

pytestmark = pytest.mark.bus


async def test_all_returns_what_stands_in_the_revision_that_the_next_change_needs(bus: Bus) -> None:
    claims = await Claims.open(bus, "drain_intent")
    first = await claims.set("north.n001", b"one", None)
    await claims.set("north.n001", b"two", first)
    await claims.set("north.n002", b"three", None)
    await claims.set("south.n001", b"four", None)
    await (await bus.bucket("drain_intent")).delete("north.n002")
    (found,) = await claims.all("north.")
    assert (found.key, found.value) == ("north.n001", b"two")
    assert await claims.get("north.n001") == found
    assert await claims.set("north.n001", b"five", found) is not None
    assert await claims.set("north.n001", b"six", found) is None


async def test_nothing_in_a_bucket_is_an_empty_list_and_no_bucket_is_said(bus: Bus) -> None:
    assert await (await Claims.open(bus, "drain_intent")).all("") == []
    with pytest.raises(BusError, match="no bucket nowhere: run `heeler bus init`"):
        await Claims.open(bus, "nowhere")
