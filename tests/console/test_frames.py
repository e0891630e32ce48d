"""Snapshot and changes: a page that follows the changes sees what a page sees that comes now."""

import random

from consolekit import T0, Page, S, action, finding, inbound, job_event, node_state, sample

from heeler.console.frames import Frames
from heeler.console.model import Model
from heeler.console.settings import ConsoleSettings


def fresh() -> tuple[Model, Frames]:
    model = Model(ConsoleSettings())
    return model, Frames(model)


def test_changes_lead_to_the_same_as_a_fresh_snapshot() -> None:
    rng = random.Random(7)
    model, frames = fresh()
    frames.advance(T0, {})
    page = Page(frames.snapshot({}))
    reloads = 0
    for second in range(1, 120):
        for _ in range(rng.randrange(6)):
            node = f"n{rng.randrange(12)}"
            job = rng.choice([None, "81", "82", "83"])
            kind, data = rng.choice(
                [
                    ("JobSample", sample(node, second, rng.choice([4, 8, 8, 8, 10]), job, mean={"temp_c": None})),
                    ("JobSample", sample(node, second, 8, job, state=rng.choices(["ok", "lost", None], k=8))),
                    ("NodeState", node_state(node, second, flags=rng.choice([[], ["DRAIN"]]))),
                    ("JobEvent", job_event(job or "84", (node,), second, event=rng.choice(["started", "ended"]))),
                    ("Finding", finding(f"f{rng.randrange(4)}", second, state=rng.choice(["open", "closed"]))),
                    ("DrainAction", action(node, second)),
                ]
            )
            model.on(inbound(kind, data))
        change = frames.advance(T0 + second * S, {})
        now = Page(frames.snapshot({}))
        if now.epoch != page.epoch:
            page, reloads = now, reloads + 1
            continue
        page.apply(change)
        assert page.same(now), f"second {second}"
    assert 0 < reloads < 20


def test_nothing_new_is_a_small_change() -> None:
    model, frames = fresh()
    for number in range(200):
        model.on(inbound("JobSample", sample(f"n{number:03}", at=1)))
    frames.advance(T0 + S, {})
    assert len(frames.advance(T0 + 2 * S, {})) < 300


def test_only_nodes_that_look_different_are_told() -> None:
    model, frames = fresh()
    for number in range(200):
        model.on(inbound("JobSample", sample(f"n{number:03}", at=1)))
    frames.advance(T0 + S, {})
    for number in range(200):  # a fraction of a degree is not seen
        model.on(inbound("JobSample", sample(f"n{number:03}", at=2, mean={"temp_c": [60.2] * 8})))
    model.on(inbound("JobSample", sample("n007", at=3, mean={"temp_c": [61.0] * 8})))
    assert 300 < len(frames.advance(T0 + 3 * S, {})) < 500


def test_sums_say_unknown_where_nothing_is_known() -> None:
    model, frames = fresh()
    model.on(inbound("JobSample", sample("n1", state=["ok", "ok", "lost", "hung", None, "ok", "ok", "ok"])))
    model.on(inbound("NodeState", node_state("n2", flags=["DRAIN"])))
    frames.advance(T0, {})
    counts = Page(frames.snapshot({})).head["counts"]
    assert counts["gpus"] == {"all": 8, "unknown": 1, "ok": 5, "lost": 1, "hung": 1, "stale": 0}
    assert counts["ok"] == {"in_job": 5, "free": 0}
    assert counts["nodes"] == {"all": 2, "unknown": 1, "draining": 1}


def test_a_process_that_was_started_anew_is_told_from_the_one_before() -> None:
    model = Model(ConsoleSettings())
    one, other = Frames(model, "a"), Frames(model, "b")
    one.advance(T0, {})
    other.advance(T0, {})
    assert Page(one.snapshot({})).epoch != Page(other.snapshot({})).epoch


def test_what_slurm_says_again_of_a_node_is_not_told_again() -> None:
    model, frames = fresh()
    model.on(inbound("NodeState", node_state(at=1)))
    frames.advance(T0 + S, {})
    model.on(inbound("NodeState", node_state(at=2, cpu_load=3.0)))
    assert b'"nodes":{"number"' not in frames.advance(T0 + 2 * S, {})
    model.on(inbound("NodeState", node_state(at=3, flags=["DRAIN"])))
    assert b'"nodes":{"number"' in frames.advance(T0 + 3 * S, {})
