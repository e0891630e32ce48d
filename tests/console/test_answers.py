"""Questions to the bus: the same one is asked once, a failed one again, and few at a time."""

import asyncio

import pytest

from heeler.console.answers import AT_ONCE, Answers
from heeler.console.hub import HELD, Hub


class Bus:
    """Counts how often it was asked, and how many asked at once."""

    def __init__(self) -> None:
        self.asked = self.now = self.most = 0
        self.fails = 0
        self.go = asyncio.Event()

    async def answer(self) -> int:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            if self.fails:
                self.fails -= 1
                raise TimeoutError
            return self.asked
        finally:
            self.now -= 1


async def test_who_asks_the_same_shares_the_answer_for_a_while() -> None:
    bus, answers = Bus(), Answers()
    both = [asyncio.create_task(answers.ask(("node", "n1"), 60.0, bus.answer)) for _ in range(2)]
    await asyncio.sleep(0)
    bus.go.set()
    assert await asyncio.gather(*both) == [1, 1]
    assert await answers.ask(("node", "n1"), 60.0, bus.answer) == 1
    assert await answers.ask(("node", "n2"), 0.0, bus.answer) == 2
    assert await answers.ask(("node", "n2"), 60.0, bus.answer) == 3  # that one was not to be kept


async def test_a_failure_is_told_and_not_kept() -> None:
    bus, answers = Bus(), Answers()
    bus.go.set()
    bus.fails = 1
    with pytest.raises(TimeoutError):
        await answers.ask(("node", "n1"), 60.0, bus.answer)
    assert await answers.ask(("node", "n1"), 60.0, bus.answer) == 2


async def test_a_page_that_goes_away_does_not_take_the_answer_from_others() -> None:
    bus, answers = Bus(), Answers()
    first, second = (asyncio.create_task(answers.ask(("node", "n1"), 60.0, bus.answer)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    bus.go.set()
    assert await second == 1


async def test_few_questions_run_at_once() -> None:
    bus, answers = Bus(), Answers()
    many = [asyncio.create_task(answers.ask(("node", str(n)), 60.0, bus.answer)) for n in range(20)]
    await asyncio.sleep(0.01)
    bus.go.set()
    await asyncio.gather(*many)
    assert bus.most == AT_ONCE


async def test_a_page_that_falls_behind_is_cut_and_the_others_are_not() -> None:
    cut: list[str] = []
    hub = Hub(2)
    slow, quick = hub.join(lambda: cut.append("slow")), hub.join(lambda: cut.append("quick"))
    assert slow is not None
    assert quick is not None
    assert hub.join(lambda: None) is None  # there are two
    for number in range(HELD + 1):
        hub.send(b"%d" % number)
        assert await quick.queue.get() == b"%d" % number
    assert (cut, hub.dropped, hub.clients) == (["slow"], 1, {quick})
    assert await slow.queue.get() is None
