"""Whether a command line of the documents is one of Heeler's: its command exists and its help has the options."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "heeler": "heeler.cli.main",
    "heeler-health": "heeler.health.cli",
    "heeler-slurm": "heeler.slurm.agent",
}
AGENT = ROOT / "agent-go/cmd/heeler-agent/main.go"


@cache
def help_of(program: str, commands: tuple[str, ...]) -> str | None:
    """Return the help of a command; None where there is no such command."""
    start = f"import sys; sys.argv[0] = {program!r}; from {MODULES[program]} import main; main()"
    argv = [sys.executable, "-c", start, *commands, "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - our own
    return done.stdout if done.returncode == 0 else None


@cache
def agent_help() -> str:
    """Return what heeler-agent prints of itself."""
    return AGENT.read_text()


def fault(line: str) -> str | None:
    """Return what is wrong with a command line; None where nothing is."""
    program, *words = line.split()
    if program == "heeler-agent":
        return None if f"heeler-agent {words[0]}" in agent_help() else f"{line}: no such command"
    if program not in MODULES:
        return f"{line}: not a program of ours"
    commands: list[str] = []
    text = help_of(program, ())
    for word in words:
        lines = (text or "").partition("\nCommands:")[2] or (text or "").partition("positional arguments:")[2]
        if word.startswith("-") or not re.search(rf"^ {{2,4}}{re.escape(word)}\b", lines, re.MULTILINE):
            break
        commands.append(word)
        text = help_of(program, tuple(commands))
    if text is None:
        return f"{line}: {' '.join([program, *commands])} has no help"
    if words and not commands and not words[0].startswith("-"):
        return f"{line}: {program} has no command {words[0]}"
    for word in words[len(commands) :]:
        option = word.partition("=")[0]
        if re.match("--?[a-z]", option) and not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
            return f"{line}: {' '.join([program, *commands])} has no option {option}"
    return None
