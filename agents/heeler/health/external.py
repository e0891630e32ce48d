"""A result that somebody else's script has found, told on the bus like one of ours."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heeler.health.judging import Result
from heeler.health.letters import about, letters
from heeler.health.model import Case, Check, Context, Outcome, Phase, Probe, Verdict, unknown
from heeler.health.origin import origin_of, run_id
from heeler.health.policy import Action
from heeler.health.run import load_site, put
from heeler.health.slurm_env import job_of, node_of
from heeler.health.verdict import NAGIOS, Judged, Run

_BY_OUTCOME: dict[Outcome, Action] = {
    Outcome.OK: "ignore",
    Outcome.WARN: "warn",
    Outcome.BAD: "fail",
    Outcome.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a script says: the name of its check, the outcome, one sentence."""

    check: str
    outcome: Outcome
    why: str
    phase: Phase
    policy: Path
    node: str | None = None
    job_id: str | None = None


def tell(told: Told, env: Mapping[str, str]) -> int:
    """Leave the result in the outbox; return the exit status that a Nagios plug-in has for it. Raises ConfigError."""
    node = told.node or node_of(env, os.uname().nodename)
    policy = load_site(told.policy, node)
    case = Case(told.phase, node, time.time_ns(), job_of(env, told.job_id))
    check = Check(told.check, "Told by a script.", Probe(told.check, _nothing), _never)
    run = run_of(Result(check, Verdict(told.outcome, told.why)))
    origin = origin_of(policy, env, node)
    # The result alone: a run of checks has not taken place.
    put(policy, letters(about(origin, case, run_id(case.now_ns), {}), run, {})[:-1])
    return NAGIOS[run.worst]


def run_of(result: Result) -> Run:
    """Return a run of one result, which no policy judges: whoever told it has judged."""
    action = _BY_OUTCOME[result.verdict.outcome]
    return Run("fail" if action == "fail" else "pass", result.verdict.why, "off", (Judged(result, action),))


def _nothing(_context: Context, _asked: object) -> None:
    return None


def _never(_facts: object, _settings: object, _case: Case) -> Verdict:
    return unknown("told by a script")
