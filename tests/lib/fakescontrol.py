"""A program that behaves as scontrol does, over a folder of its own; and as a broken one, when told so."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT = """#!{python} -IS
import json, os, pathlib, pwd, signal, sys, time
home = pathlib.Path({home!r})
book = home / "nodes.json"
how = (home / "how").read_text().split()
argv = sys.argv[1:]
with (home / "calls").open("a") as calls:
    calls.write(json.dumps(argv) + "\\n")
nodes = json.loads(book.read_text())

def fail(text, rc=1):
    sys.stderr.write(text + "\\n")
    sys.exit(rc)

def put(name, **facts):
    nodes[name].update(facts)
    fresh = book.with_suffix(".new")
    fresh.write_text(json.dumps(nodes))
    fresh.rename(book)

if argv[:2] == ["show", "node"]:
    if "show-down" in how or ("deaf-after" in how and (home / "drained").exists()):
        fail("slurm_load_node error: Unable to contact slurm controller (connect failure)")
    if argv[2] not in nodes:
        fail(f"Node {{argv[2]}} not found")
    node = nodes[argv[2]]
    line = f"NodeName={{argv[2]}} Arch=x86_64 CoresPerSocket=32 Gres=gpu:h100:8 NodeAddr=127.0.0.1"
    line += f" State={{node['state']}} ThreadsPerCore=1 Partitions={{node['partitions']}} BootTime=None"
    if node.get("reason"):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(node["ts"]))
        line += f" Reason={{node['reason']}} [{{node['user']}}@{{stamp}}]"
    print(line)
elif argv[:1] == ["update"]:
    said = dict(word.split("=", 1) for word in argv[1:])
    if "denied" in how:
        fail("slurm_update error: Invalid user id")
    name = said["nodename"]
    if said["state"] == "undrain":
        if "lie" in how:
            sys.exit(0)
        if "kill-before" in how:
            os.kill(os.getppid(), signal.SIGKILL)
            sys.exit(1)
        if "redrained" in how:
            put(name, reason="ADMIN: psu swap", user="ops", ts=int(time.time()))
            sys.exit(0)
        put(name, state=nodes[name]["state"].replace("+DRAIN", ""), reason="")
        if "kill-parent" in how:
            os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(0)
    if "hang" in how:
        time.sleep(600)
    if "late-hang" not in how and "lie" in how:
        sys.exit(0)
    user = pwd.getpwuid(os.getuid()).pw_name
    state = nodes[name]["state"].split("+")  # a node with jobs keeps them
    put(name, state="+".join(dict.fromkeys([*state, "DRAIN"])), reason=said["reason"], user=user, ts=int(time.time()))
    (home / "drained").touch()
    if "foreign-after" in how:
        put(name, reason="ADMIN: psu swap", user="ops", ts=int(time.time()))
    if "kill-parent" in how:
        os.kill(os.getppid(), signal.SIGKILL)
    if "late-hang" in how:
        time.sleep(600)
else:
    fail(f"invalid keyword: {{argv}}")
"""


class FakeScontrol:
    """The program and the nodes it knows."""

    def __init__(self, home: Path, nodes: int = 60) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.program = home / "scontrol"
        self.program.write_text(SCRIPT.format(python=sys.executable, home=str(home)))
        self.program.chmod(0o755)
        self._book = home / "nodes.json"
        self._write({f"n{n:03d}": {"state": "ALLOCATED", "partitions": "train"} for n in range(1, nodes + 1)})
        self.behave()

    def behave(self, *how: str) -> None:
        """Behave well, or in these ways."""
        (self.home / "how").write_text(" ".join(how))

    def __getitem__(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._book.read_text())[name]
        return found

    def put(self, name: str, **facts: Any) -> None:
        """Change a node, as an operator would."""
        nodes = json.loads(self._book.read_text())
        nodes[name].update(facts)
        self._write(nodes)

    def drained_by_hand(self, name: str, reason: str) -> None:
        """Drain a node as an operator."""
        self.put(name, state="IDLE+DRAIN", reason=reason, user="ops", ts=int(time.time()))

    def _write(self, nodes: dict[str, Any]) -> None:
        fresh = self._book.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(nodes))
        fresh.rename(self._book)

    @property
    def calls(self) -> list[list[str]]:
        """Every call so far, as its arguments."""
        path = self.home / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def updates(self) -> list[str]:
        """The nodes of the update calls."""
        return [call[1].removeprefix("nodename=") for call in self.calls if call[0] == "update"]
