"""Completion in real shells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from heelercli import HEELER, heeler
from needs import need

ROOT = Path(sys.executable).parent


def shell(*argv: str, text: str) -> str:
    if argv[0] != "bash":
        need(argv[0])
    env = {**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"}
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(words: str, at: int) -> list[str]:
    script = heeler("completion", "bash").stdout
    ask = f'COMP_WORDS=({words})\nCOMP_CWORD={at}\n_heeler_completion heeler\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    return shell("bash", "--norc", text=script + ask).split()


def test_bash_completes_commands_options_and_choices() -> None:
    assert completed("heeler re", 1) == ["record", "replay", "report"]
    assert completed("heeler why n", 2) == ["node"]
    assert {"--since", "--json", "--follow"} <= set(completed("heeler events --", 2))
    assert completed("heeler bus st", 2) == ["status"]
    assert completed("heeler events --kind dr", 3) == ["drain"]


@pytest.mark.parametrize(("name", "check"), [("zsh", ("zsh", "-n")), ("fish", ("fish", "-n", "/dev/stdin"))])
def test_the_script_of_other_shells_is_good(name: str, check: tuple[str, ...]) -> None:
    script = heeler("completion", name).stdout
    assert "_HEELER_COMPLETE" in script
    shell(*check, text=script)


def test_fish_completes_commands() -> None:
    script = heeler("completion", "fish").stdout
    found = shell("fish", "--no-config", text=f"{script}\ncomplete -C 'heeler re'\n")
    assert [line.split("\t")[0] for line in found.splitlines()] == ["record", "replay", "report"]


def test_completing_a_command_imports_no_command() -> None:
    code = (
        "import os, sys\n"
        "os.environ |= {'_HEELER_COMPLETE': 'bash_complete', 'COMP_WORDS': 'heeler re', 'COMP_CWORD': '1'}\n"
        "from heeler.cli.main import heeler\n"
        "try:\n    heeler(prog_name='heeler', complete_var='_HEELER_COMPLETE')\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'rich', 'opentelemetry', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "[]"
    assert "plain,report" in done.stdout


def test_an_unknown_shell_is_2() -> None:
    heeler("completion", "csh", code=2)
    assert HEELER.exists()
