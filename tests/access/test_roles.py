"""Roles by their rights alone."""

from pathlib import Path

import pytest
import yaml

from heeler.access.rights import Rights
from heeler.access.roles import (
    AGENT_WRITES,
    ROLES,
    agent_rights,
    durables_of,
    health_rights,
    operator_rights,
    rights_of,
    wildcard,
)
from heeler.doctor.bus import matches

SUBJECTS = Path(__file__).resolve().parents[2] / "schemas/subjects.yaml"
TEMPLATE = Path(__file__).resolve().parents[2] / "deploy/nats/agent-permissions.conf"
PROGRAMS = {"slurm": "heeler-slurm", **{name: name for name in ("enrich", "detect", "drain", "summary", "lemon")}}


def may(rights: Rights, subject: str) -> bool:
    if any(matches(pattern, subject) for pattern in rights.deny_publish):
        return False
    return any(matches(pattern, subject) for pattern in rights.publish)


def of(name: str) -> Rights:
    found = rights_of(name, ["north"], durables_of(["collector"]))
    assert found is not None
    return found


def subject(kind: str, cluster: str = "north") -> str:
    return f"heeler.v1.{cluster}.{wildcard(kind).replace('*', 'x')}"


@pytest.mark.parametrize("name", [name for name in ROLES if name != "admin"])
def test_a_role_may_write_the_messages_of_which_the_contract_names_it_a_writer_and_no_others(name: str) -> None:
    messages = yaml.safe_load(SUBJECTS.read_text())["messages"]
    contract = {kind for kind, one in messages.items() if PROGRAMS.get(name) in one["writers"]}
    engine = {"DeadLetter"} if name in ("enrich", "detect", "drain", "otlp", "summary", "lemon") else set()
    assert {kind for kind in messages if may(of(name), subject(kind))} == contract | engine


def test_an_operator_may_write_what_the_contract_says_under_his_own_name() -> None:
    messages = yaml.safe_load(SUBJECTS.read_text())["messages"]
    rights = operator_rights("x", ["north"], durables_of(["collector"]))
    contract = {kind for kind, one in messages.items() if {"operator", "console"} & {*one["writers"]}}
    assert {kind for kind in messages if may(rights, subject(kind))} == contract
    assert not any(may(rights, f"heeler.v1.north.drain.{what}.y") for what in ("command", "question"))


def test_the_agent_may_write_what_the_contract_says_and_what_its_outbox_passes_on() -> None:
    messages = yaml.safe_load(SUBJECTS.read_text())["messages"]
    assert set(AGENT_WRITES) == {
        k for k, one in messages.items() if {"heeler-agent", "heeler-health"} & {*one["writers"]}
    }


def test_the_template_for_agents_says_the_same_as_the_role() -> None:
    text = TEMPLATE.read_text().replace("CLUSTER", "north").replace("NODE", "n1")
    rights = agent_rights("north", "n1")
    quoted = {word for line in text.splitlines() if not line.startswith("#") for word in line.split('"')[1::2]}
    assert quoted == {*rights.publish, *rights.subscribe}


@pytest.mark.parametrize("name", ["reader", "subscriber", "otlp-in", "console"])
def test_who_only_looks_may_write_no_message_and_no_bucket(name: str) -> None:
    own = [pattern for pattern in of(name).publish if not pattern.startswith(("$JS.API.", "$SYS.REQ.USER.INFO"))]
    assert own == []
    verbs = {pattern.removeprefix("$JS.API.").rsplit(".", 1)[0] for pattern in of(name).publish}
    assert not any(
        word in verb for verb in verbs for word in ("PURGE", "STREAM.DELETE", "STREAM.UPDATE", "STREAM.CREATE")
    )


@pytest.mark.parametrize("name", [name for name in ROLES if name != "admin"])
def test_no_one_takes_messages_of_the_shared_consumers_of_others(name: str) -> None:
    for stream, durables in durables_of(["collector"]).items():
        for durable in durables:
            own = durable.startswith(f"{name}-")
            for taking in (f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}", f"$JS.ACK.{stream}.{durable}.1.1.1.1.1"):
                assert may(of(name), taking) == own, (name, taking)
            assert not may(of(name), f"$JS.API.CONSUMER.DELETE.{stream}.{durable}")


def test_programs_of_one_cluster_write_for_no_other() -> None:
    for name in ("slurm", "drain"):
        for kind in ROLES[name].writes:
            assert may(of(name), subject(kind))
            assert not may(of(name), subject(kind, "south"))
        for bucket in ROLES[name].puts:
            assert may(of(name), f"$KV.{bucket}.north.x")
            assert not may(of(name), f"$KV.{bucket}.south.x")


def test_names_with_dots_and_wildcards_are_single_words() -> None:
    for node in ("n1.example", "*", ">"):
        for rights in (agent_rights("north", node), health_rights("north", node)):
            assert not may(rights, subject("GpuSample"))
            assert not any(matches(pattern, "heeler.v1.north.health.request.n2") for pattern in rights.subscribe)
            assert not any(
                node in pattern.split(".") for pattern in (*rights.publish, *rights.subscribe[1:]) if node != ">"
            )
