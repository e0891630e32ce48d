"""The bus, read for the doctor."""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from heeler.bus import Bus, DecodeError, decode, snapshot
from heeler.bus.admin import stream_config
from heeler.bus.client import RETRYABLE
from heeler.bus.subjects_gen import BUCKETS, STREAMS
from heeler.doctor.bus import NS, BusFacts, Made

ASK = "$SYS.REQ.USER.INFO"  # the server's time, and what this user may do; needs no rights of an administrator
COMPARED = ("subjects", "max_age", "max_bytes", "max_msgs_per_subject", "duplicate_window")
NOT_FOUND = 404
ANSWER_S = 3.0


async def read(bus: Bus) -> BusFacts:
    """Read everything; what can't be read says so."""
    told = await _ask(bus)
    version = str(bus.client.connected_server_version).removeprefix("<nats server ").removesuffix(">")
    return BusFacts(
        servers=bus.settings.servers,
        version=version,
        offset_s=told.get("offset_s"),
        within_s=told.get("within_s"),
        permissions=told.get("permissions"),
        streams={name: await _stream(bus, name) for name in STREAMS},
        buckets={name: await _bucket(bus, name) for name in BUCKETS},
        agents_ts_ns=await _agents(bus),
        now_ns=time.time_ns() - int(told.get("offset_s", 0.0) * NS),
    )


async def _ask(bus: Bus) -> dict[str, Any]:
    """Ask the server for its time and this user's permissions; empty where it does not answer."""
    try:
        asked = time.time()
        answer = await bus.client.request(ASK, b"", timeout=ANSWER_S)
        answered = time.time()
        value = json.loads(answer.data)
        server = datetime.fromisoformat(value["server"]["time"]).timestamp()
    except (*RETRYABLE, ValueError, KeyError, TypeError):
        return {}
    data = value.get("data")
    permissions = (data.get("permissions") or {}) if isinstance(data, Mapping) else None
    return {"offset_s": (asked + answered) / 2 - server, "within_s": (answered - asked) / 2, "permissions": permissions}


async def _stream(bus: Bus, name: str) -> Made:
    wanted = stream_config(STREAMS[name], replicas=1, scale=1.0)
    declared = {key: _plain(getattr(wanted, key)) for key in COMPARED}
    try:
        found = (await bus.js.stream_info(name)).config
    except RETRYABLE as err:
        return _none(declared, err)
    return Made(declared, {key: _plain(getattr(found, key)) for key in COMPARED})


async def _bucket(bus: Bus, name: str) -> Made:
    declared = {"ttl": BUCKETS[name].ttl or 0}
    try:
        found = (await bus.js.stream_info(f"KV_{name}")).config
    except RETRYABLE as err:
        return _none(declared, err)
    return Made(declared, {"ttl": found.max_age or 0})


def _none(declared: Mapping[str, Any], err: BaseException) -> Made:
    if getattr(err, "code", None) == NOT_FOUND:
        return Made(declared, None)
    return Made(declared, None, why=f"{type(err).__name__}: {err}")


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list | tuple) else value or 0


async def _agents(bus: Bus) -> dict[str, int] | None:
    try:
        found = await snapshot(bus, "AGENTS", ("agent.status.*",))
    except (TimeoutError, *RETRYABLE):
        return None
    heard: dict[str, int] = {}
    for delivery in found:
        try:
            message = decode("AgentStatus", delivery.data)
        except DecodeError:
            continue
        if message["cluster"] == bus.cluster:
            heard[message["node"]] = delivery.ts_ns
    return heard
