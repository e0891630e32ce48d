"""Tables: each collector asks in its turn, and what it says goes out whole or not at all."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakeslurm import FakeSlurm
from heard import running
from slurmdata import answer, job_row, node_row, recorded
from waiting import until

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery, decode, encode, subjects
from heeler.slurm import partitions
from heeler.slurm.agent import Agent
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Lane, Messages, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.publication import Publication
from heeler.slurm.rows import Unreadable
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import SlurmSource

pytestmark = pytest.mark.bus
ROWS: list[dict[str, Any]] = [{"partition": "train", "cpus": 64}, {"partition": "debug"}]
UNABLE = "Unable to contact slurm controller (connect failure)"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    found = FakeSlurm(tmp_path / "bin")
    found.says("scontrol", answer(nodes=[node_row("gn1")]))
    found.says("squeue", answer(jobs=[job_row()]))
    return found


def agent_with(
    bus: Bus, fake: FakeSlurm, *collectors: Collector, intervals: dict[str, float] | None = None, **changes: Any
) -> Agent:
    settings = SlurmSettings(
        bin_dir=str(fake.folder),
        timeout_s=20.0,
        jobs_interval_s=0.2,
        nodes_interval_s=0.2,
        max_backoff_s=0.3,
        intervals={"stats": 0} | ({"jobs": 0, "nodes": 0} if intervals is None else intervals),
        **changes,
    )
    return Agent(
        bus,
        SlurmSource(Clients(settings)),
        settings,
        collectors=collectors,
        clients=Clients(settings),
    )


def collector(
    answer: Callable[[], Table | Messages], name: str = "partitions", *, lane: Lane = "slurmctld", every_s: float = 0.1
) -> Collector:
    async def collect(_clients: Clients) -> Table | Messages:
        return answer()

    return Collector(name, every_s, collect, lane=lane)


async def tables(bus: Bus) -> list[dict[str, Any]]:
    """Return all parts in the stream, in order."""
    found: list[dict[str, Any]] = []

    async def on(delivery: Delivery) -> None:
        found.append(decode("SlurmTable", delivery.data))

    reader = Consumer(bus, ConsumerSpec("TABLES", ("slurm.table.*.*.*",), start=1), on)
    await reader.start()
    watching = asyncio.create_task(reader.watch())
    await reader.caught_up.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return found


async def test_a_table_goes_out_as_columns_with_what_could_not_be_read(bus: Bus, fake: FakeSlurm) -> None:
    table = table_of("partitions", ROWS, absent={"tres": "too old"}, unreadable=[Unreadable("x", "odd")], version="9.9")
    agent = agent_with(bus, fake, collector(lambda: table))
    assert await agent.once()
    (part,) = await tables(bus)
    assert part["columns"]["partition"] == ["train", "debug"]
    assert part["columns"]["cpus"] == [64, None]
    assert (part["table"], part["rows"], part["total_rows"], part["unreadable"]) == ("partitions", 2, 2, 1)
    assert part["absent"] == {"tres": "too old"}
    assert "tres" not in part["columns"]
    assert part["slurm_version"] == "9.9"


async def test_an_empty_table_is_an_answer_and_an_outage_is_none(bus: Bus, fake: FakeSlurm) -> None:
    answers: list[Table | None] = [table_of("partitions", []), None]

    def give() -> Table:
        found = answers.pop(0)
        if found is None:
            raise ParseError("Slurm reports errors", "db down")
        return found

    agent = agent_with(bus, fake, collector(give))
    assert await agent.once()
    assert await agent.once(), "jobs and nodes were answered"
    (part,) = await tables(bus)
    assert (part["rows"], part["total_rows"]) == (0, 0)
    assert agent.metrics()["slurm_outage.partitions"] == 1
    assert agent.metrics()["slurm_up"] == 1, "the controller is there"


async def test_one_answer_feeds_events_and_tables(bus: Bus, fake: FakeSlurm) -> None:
    fake.says("squeue", answer(jobs=[job_row(), job_row(482, "PENDING", tres_req_str="cpu=8,gres/gpu=16")]))
    agent = agent_with(bus, fake, intervals={"jobs": 60, "nodes": 60})
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_answers_total.jobs", 0) >= 4)
    found = {part["table"]: part for part in await tables(bus)}
    assert set(found) == {"jobs", "nodes"}
    assert found["jobs"]["columns"]["job_id"] == ["481", "482"]
    assert found["jobs"]["columns"]["gpus_requested"] == [0, 16]
    assert found["jobs"]["source"] == "squeue --json"
    assert found["nodes"]["columns"]["gpus"] == [8]
    assert len(await tables(bus)) == 2, "one a minute, however often is polled"
    assert (await bus.js.stream_info("EVENTS")).state.messages == 2


async def clusters(bus: Bus) -> list[dict[str, Any]]:
    """Return the newest ClusterState."""
    message = await bus.js.get_last_msg("AGENTS", f"heeler.v1.{bus.cluster}.slurm.cluster.slurm")
    return [decode("ClusterState", message.data or b"")]


async def test_an_outage_a_partial_answer_and_an_empty_cluster_are_three_things(bus: Bus, fake: FakeSlurm) -> None:
    fake.says("squeue", answer(jobs=[]))
    broken: list[Exception] = []

    def give() -> Table:
        if broken:
            raise broken[0]
        return table_of("partitions", ROWS, unreadable=[Unreadable(None, "odd")])

    agent = agent_with(bus, fake, collector(give))
    await agent.once()
    await agent.once()
    (state,) = await clusters(bus)
    assert (state["controller"], state["jobs"]) == ("up", 0), "empty"
    assert state["unreadable"] == {"partitions": 1}
    assert "outages" not in state
    fake.says("squeue", answer(jobs=[job_row(), job_row("x")]))
    broken.append(ParseError("Slurm reports errors", "db down"))
    await agent.once()
    await agent.once()
    (state,) = await clusters(bus)
    assert (state["controller"], state["jobs"], state["unreadable"]["jobs"]) == ("up", 1, 1), "partial"
    assert "db down" in state["outages"]["partitions"]
    fake.says("squeue", "", err=UNABLE, rc=1)
    await agent.once()
    (state,) = await clusters(bus)
    assert (state["controller"], state["jobs"]) == ("down", 1), "what is known stays"
    assert "Unable to contact" in state["outages"]["jobs"]


async def test_a_prolog_brings_the_next_question_for_jobs_forward_and_a_thousand_bring_one(
    bus: Bus, fake: FakeSlurm
) -> None:
    agent = agent_with(bus, fake)
    agent.turns["jobs"].interval_s = 3600.0
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_answers_total.jobs", 0) == 1)
        await asyncio.sleep(0.5)
        for number in range(1000):
            node = f"n{number}"
            event = {"v": 1, "cluster": bus.cluster, "node": node, "ts": 5, "boot": "b", "seq": 1, "event": "started"}
            payload = encode("PrologEvent", {**event, "job_id": "7"})
            await bus.publish(subjects.prolog_event(bus.cluster, node), "PrologEvent", payload)
        await until(lambda: agent.counts.get("slurm_answers_total.jobs", 0) == 2)
        await asyncio.sleep(1.0)
        assert agent.counts["slurm_answers_total.jobs"] == 2


async def test_a_bug_in_one_collector_ends_no_other(bus: Bus, fake: FakeSlurm) -> None:
    def broken() -> Table:
        raise KeyError("oops")

    good = table_of("partitions", ROWS)
    agent = agent_with(bus, fake, collector(broken, "config"), collector(lambda: good))
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_outages_total.config", 0) >= 1)
        await until(lambda: agent.counts.get("slurm_answers_total.partitions", 0) >= 2)
    assert "KeyError" in (agent.turns["table.config"].why or "")


async def test_a_column_that_the_table_lacks_is_refused_as_a_whole(bus: Bus, fake: FakeSlurm) -> None:
    agent = agent_with(bus, fake, collector(lambda: Table({"nonsense": [1]}, 1)))
    await agent.once()
    assert await tables(bus) == []
    assert agent.counts["slurm_refused_messages_total"] == 1


async def test_a_slow_accounting_query_delays_no_question_for_jobs(bus: Bus, fake: FakeSlurm) -> None:
    asked = asyncio.Event()

    async def slow(_clients: Clients) -> Table:
        asked.set()
        await asyncio.sleep(3600)
        raise AssertionError

    agent = agent_with(bus, fake, Collector("users", 0.1, slow, lane="slurmdbd"))
    async with running(agent):
        await asyncio.wait_for(asked.wait(), 20)
        before = agent.counts.get("slurm_answers_total.jobs", 0)
        await until(lambda: agent.counts.get("slurm_answers_total.jobs", 0) >= before + 3)


async def test_collectors_of_one_lane_ask_one_after_the_other(bus: Bus, fake: FakeSlurm) -> None:
    busy, most = 0, 0

    async def ask(_clients: Clients) -> Messages:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.05)
        busy -= 1
        return Messages(())

    agent = agent_with(bus, fake, *(Collector(f"c{number}", 0.05, ask, lane="slurmdbd") for number in range(3)))
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_answers_total.c2", 0) >= 2)
    assert most == 1


async def test_other_messages_are_done_once_the_stream_has_them(bus: Bus, fake: FakeSlurm) -> None:
    done = asyncio.Event()
    record = {"v": 1, "cluster": bus.cluster, "ts": 5, "job_id": "7", "run": "3", "state": "COMPLETED"}
    publication = Publication("JobRecord", f"heeler.v1.{bus.cluster}.slurm.record.7.3", "JobRecord.7.3", record)
    agent = agent_with(bus, fake, collector(lambda: Messages([publication], done.set), "records"))
    await agent.once()
    assert done.is_set()
    assert (await bus.js.stream_info("RECORDS")).state.messages == 1


async def test_intervals_of_the_settings_count_and_zero_is_off(bus: Bus, fake: FakeSlurm) -> None:
    both = [collector(lambda: table_of("partitions", ROWS), name) for name in ("partitions", "config")]
    agent = agent_with(bus, fake, *both, intervals={"config": 0, "partitions": 77})
    assert set(agent.turns) == {"nodes", "jobs", "table.partitions"}
    turn = agent.turns["table.partitions"]
    assert turn.interval_s == 77
    assert turn.due_s - time.monotonic() < 61, "all of them within a minute after the start"


@pytest.mark.parametrize("name", ["24.11/scontrol_show_partitions_json.json", "24.11/scontrol_show_partition.txt"])
def test_partitions_are_read_from_json_and_from_text_alike(name: str) -> None:
    data = recorded(name)
    if name.endswith("txt"):  # recorded with a partition over several lines
        data = "\n".join(" ".join(block.split()) for block in data.split("\n\n"))
    table = (partitions.parse_json if name.endswith("json") else partitions.parse_text)(data.encode())
    assert table.unreadable == ()
    rows = [dict(zip(table.columns, values, strict=True)) for values in zip(*table.columns.values(), strict=True)]
    train = next(row for row in rows if row["partition"] == "train")
    assert (train["state"], train["time_unlimited"], train["max_time_s"]) == ("UP", True, None)
    assert train.get("is_default", table.absent.get("is_default")) in (True, "not told in JSON")
    assert len(train["nodes"]) == train["node_count"] == 12
    assert train["tres"]["gres/gpu"] == 96


TEXT = (
    "PartitionName=train Default=YES Hidden=NO PreemptMode=REQUEUE MaxTime=1-00:00:00 State=UP TotalCPUs=64 "
    "TotalNodes=1 Nodes=gn1 TRES=cpu=64"
)


async def test_partitions_are_asked_as_text_which_alone_says_all_of_them(fake: FakeSlurm, bus: Bus) -> None:
    fake.says("scontrol", TEXT)
    agent = agent_with(bus, fake, partitions.COLLECTOR)
    for _ in range(2):
        table = await partitions.collect(agent.clients)
        assert (table.columns["max_time_s"], table.source) == ([86400], "scontrol")
        told = [table.columns[name] for name in ("is_default", "hidden", "preempt_mode")]
        assert told == [[True], [False], ["REQUEUE"]]
    assert [("--json" in call) for call in fake.calls] == [False, False], "and there is no second question"
    fake.says("scontrol", "", err=UNABLE, rc=1)
    with pytest.raises(Exception, match="Unable to contact"):
        await partitions.collect(agent.clients)
    assert len(fake.calls) == 3, "a controller that is away is asked once"


def test_what_slurmrestd_leaves_out_of_partitions_is_taken_from_the_text() -> None:
    said = partitions.parse_json(recorded("24.11/scontrol_show_partitions_json.json").encode())
    assert said.absent["is_default"] == "not told in JSON"
    whole = partitions.filled(said, partitions.parse_text(TEXT.encode()))
    names = list(whole.columns["partition"])
    assert len(names) > 1
    at = names.index("train")
    for name, value in (("is_default", True), ("hidden", False), ("preempt_mode", "REQUEUE")):
        assert name not in whole.absent
        assert whole.columns[name] == [value if row == at else None for row in range(len(names))], "null where not told"
    assert whole.columns["max_time_s"] == said.columns["max_time_s"], "what was told stays"


async def test_while_the_controller_is_away_its_tables_keep_no_question_for_jobs_waiting(
    bus: Bus, fake: FakeSlurm
) -> None:
    asked = 0

    def count() -> Table:
        nonlocal asked
        asked += 1
        return table_of("partitions", ROWS)

    agent = agent_with(bus, fake, collector(count))
    async with running(agent):
        await until(lambda: asked >= 2)
        for program in ("squeue", "scontrol"):
            fake.says(program, "", err=UNABLE, rc=1)
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= 1)
        during = asked
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= 4)
        assert asked == during
        fake.says("scontrol", answer(nodes=[node_row("gn1")]))
        fake.says("squeue", answer(jobs=[job_row()]))
        await until(lambda: asked >= during + 2)


async def test_sums_go_out_with_the_jobs_and_cost_no_question(bus: Bus, fake: FakeSlurm) -> None:
    agent = agent_with(bus, fake, intervals={"jobs": 0, "nodes": 0, "stats": 1})
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_published_total.slurmtable", 0) >= 2)
    found = await tables(bus)
    assert {part["table"] for part in found} == {"stats"}
    columns = found[-1]["columns"]
    assert list(zip(columns["scope"], columns["partition"], columns["account"], strict=True)) == [
        ("account", None, "lab"),
        ("cluster", None, None),
        ("partition", "train", None),
        ("partition_account", "train", "lab"),
    ]
    assert columns["nodes"] == [None, 1, 1, None]
    assert columns["jobs_running"] == [1, 1, 1, 1]
    assert columns["ended_in_failure"] == [None] * 4, "nobody asked accounting"
    assert {call.split()[0] for call in fake.calls} == {"squeue", "scontrol"}
    polls = sum(agent.counts[f"slurm_answers_total.{name}"] for name in ("jobs", "nodes"))
    assert len(fake.calls) <= polls + 3, "an answer each (and one that was under way), and what asks for the version"


async def test_while_nodes_are_not_answered_sums_over_them_are_unknown(bus: Bus, fake: FakeSlurm) -> None:
    agent = agent_with(bus, fake, intervals={"jobs": 0, "nodes": 0, "stats": 1})
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_published_total.slurmtable", 0) >= 1)
        fake.says("scontrol", "", err=UNABLE, rc=1)
        await until(lambda: agent.counts.get("slurm_outages_total.nodes", 0) >= 1)
        before = agent.counts["slurm_published_total.slurmtable"]
        await until(lambda: agent.counts["slurm_published_total.slurmtable"] >= before + 2)
        fake.says("squeue", "", err=UNABLE, rc=1)
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= 1)
        silent = agent.counts["slurm_published_total.slurmtable"]
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= 4)
        assert agent.counts["slurm_published_total.slurmtable"] == silent, "without jobs there are no sums"
    last = (await tables(bus))[-1]["columns"]
    at = last["scope"].index("cluster")
    assert (last["nodes"][at], last["gpus"][at], last["jobs_running"][at]) == (None, None, 1)
