"""Tools by argv: an answer or a reason, whatever a tool does; and nothing of it is left when its time is over."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from healthkit import case, tool

from heeler.health.checks.tool import find_tool, run_tool
from heeler.health.model import Context, Probe, ProbeError, Unread
from heeler.health.runner import run_probes


def context(root: Path, timeout_s: float = 5.0, **env: str) -> Context:
    return Context(case(), root, env, path=str(root / "bin"), timeout_s=timeout_s)


def run(root: Path, script: str, *args: str, timeout_s: float = 5.0, env: dict[str, str] | None = None) -> Any:
    tool(root / "bin", "it", script)
    return run_tool(context(root, timeout_s, **(env or {})), ("it", *args))


def test_what_a_tool_says_and_its_status_are_told(tmp_path: Path) -> None:
    done = run(tmp_path, 'echo "out $2"; echo err >&2; exit 3', "a", "b; rm -rf $HOME `x`")
    assert (done.rc, done.stdout, done.stderr) == (3, "out b; rm -rf $HOME `x`\n", "err\n")
    with pytest.raises(ProbeError, match="it ended with 3: err"):
        done.checked()


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("exit 127", "missing", "could not be run"),
        ("exit 126", "missing", "could not be run"),
        ("sleep 60", "timeout", "did not answer"),
        ("trap '' TERM; while :; do sleep 1; done", "timeout", "did not answer"),
        ("yes", "unreadable", "wrote more than"),
    ],
)
def test_a_tool_that_does_not_really_answer_is_an_error_of_its_kind(
    tmp_path: Path, script: str, kind: str, words: str
) -> None:
    started = time.monotonic()
    with pytest.raises(ProbeError, match=words) as raised:
        run(tmp_path, script, timeout_s=20.0 if kind == "unreadable" else 1.0)
    assert raised.value.kind == kind
    assert time.monotonic() - started < 15


def test_a_tool_that_is_missing_or_may_not_be_run(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="nothing is not installed") as raised:
        run_tool(context(tmp_path), ("nothing",))
    assert raised.value.kind == "missing"
    tool(tmp_path / "bin", "it", "exit 0").chmod(0o644)
    assert find_tool(context(tmp_path), "it") is None
    done = run(tmp_path, "echo 'it: must be root' >&2; exit 1")
    assert done.failed().kind == "denied"


def test_a_status_by_signal_is_no_answer(tmp_path: Path) -> None:
    done = run(tmp_path, "kill -9 $$")
    assert done.rc == -9
    with pytest.raises(ProbeError):
        done.checked()


def test_a_child_of_the_tool_that_holds_its_pipes_costs_no_more_than_a_moment(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(tmp_path, "sleep 60 & echo $! > pid; echo said", timeout_s=30.0)
    assert done.stdout == "said\n"
    assert time.monotonic() - started < 10
    os.kill(int(Path("pid").read_text()), 9)


def test_much_on_both_pipes_is_read(tmp_path: Path) -> None:
    line = "x" * 40
    script = f"i=0; while [ $i -lt 3000 ]; do echo $i {line}; echo $i {line} >&2; i=$((i+1)); done"
    done = run(tmp_path, script, timeout_s=20.0)
    assert len(done.stdout.splitlines()) == len(done.stderr.splitlines()) == 3000


def test_what_steers_slurms_tools_does_not_reach_them(tmp_path: Path) -> None:
    env = {"SINFO_FORMAT": "%n", "SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "LANG": "de_DE"}
    said = run(tmp_path, 'echo "$SINFO_FORMAT|$SLURM_JOB_ID|$SLURM_CONF|$LC_ALL"', env=env).stdout
    assert said == "||/c|C\n"


def test_the_runner_ends_a_tool_and_all_that_it_has_started(tmp_path: Path) -> None:
    tool(tmp_path / "bin", "it", f"sleep 60 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/own; sleep 60")

    def read(inner: Context, _asked: Sequence[Any]) -> str:
        try:
            run_tool(inner, ("it",), timeout_s=0.5)
        except ProbeError:
            time.sleep(60)  # the probe itself hangs afterwards
        return ""

    probe = Probe("it", read, timeout_s=1.5)
    found = run_probes({"it": (probe, [])}, context(tmp_path), time.monotonic() + 5)
    assert isinstance(found["it"].facts, Unread)
    time.sleep(0.2)
    for name in ("child", "own"):
        pid = int((tmp_path / name).read_text())
        state = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if Path(f"/proc/{pid}").exists()
            else "X"
        )
        assert state in "XZ", name


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
