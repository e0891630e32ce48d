"""Slurm, read for the doctor."""

import re
import time
from dataclasses import dataclass

from heeler.doctor.slurm import NS_PER_S, Accounting, SlurmFacts, parse_config
from heeler.slurm.command import run_slurm, slurm_env
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.nodes import parse_nodes_text
from heeler.slurm.times import local_zone, parse_timestamp

TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Commands:
    """Where Slurm's commands and slurm.conf are."""

    bin_dir: str | None = None
    conf: str | None = None

    def run(self, *argv: str) -> str:
        """Return what a command printed. Raises SlurmError."""
        return run_slurm(argv, TIMEOUT_S, slurm_env(bin_dir=self.bin_dir, conf=self.conf)).check().text


def read(commands: Commands) -> SlurmFacts:
    """Read everything; what can't be read says so."""
    try:
        text = commands.run("scontrol", "show", "config")
    except SlurmError as err:
        return SlurmFacts(error=str(err))
    now_ns = time.time_ns()
    config = parse_config(text)
    ping = _ping(commands)
    nodes, nodes_why = None, ""
    try:
        nodes = parse_nodes_text(commands.run("scontrol", "show", "node", "-o"), local_zone()).nodes
    except SlurmError as err:
        nodes_why = str(err)
    accounting = _accounting(commands) if "slurmdbd" in config.get("AccountingStorageType", "") else None
    return SlurmFacts(None, config, ping, offset_s(text, now_ns), nodes, nodes_why, accounting)


def offset_s(text: str, now_ns: int) -> float | None:
    """Return how far this machine's clock is ahead of the time at the head of `scontrol show config`."""
    match = re.search(r"^Configuration data as of (\S+)", text, re.MULTILINE)
    try:
        stamp = parse_timestamp(match[1], local_zone()) if match else None
    except ParseError:
        stamp = None
    if stamp is None:
        return None
    return (now_ns - stamp) / NS_PER_S - 0.5  # the second is cut: half of one is what is not known


def _ping(commands: Commands) -> str:
    try:
        return commands.run("scontrol", "ping")
    except SlurmError as err:
        return str(err)


def _accounting(commands: Commands) -> Accounting:
    try:
        commands.run("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster")
    except SlurmError as err:
        return Accounting(str(err))
    try:
        match = re.search(r"DBD Agent queue size:\s*(\d+)", commands.run("sdiag"))
    except SlurmError:
        match = None
    return Accounting(None, int(match[1]) if match else None)
