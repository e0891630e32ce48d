"""What writes messages to a folder needs no client, and has no time to import one."""

import subprocess
import sys
import tomllib
from pathlib import Path


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_encoding_a_message_imports_neither_the_client_nor_logs() -> None:
    slow = ("nats", "structlog", "asyncio", "tenacity", "ssl")
    code = f"import sys, heeler.bus\nheeler.bus.encode\nprint([name for name in {slow!r} if name in sys.modules])"
    assert python(code) == "[]"


def test_names_of_the_client_come_when_asked_for() -> None:
    assert python("from heeler.bus import consume, Bus; print(callable(consume), Bus.__name__)") == "True Bus"
    assert python("import heeler.bus; print(heeler.bus.ConfigError.__mro__[1].__name__)") == "ValueError"


def test_a_run_of_health_checks_imports_nothing_slow() -> None:
    slow = (
        "nats",
        "structlog",
        "asyncio",
        "tenacity",
        "ssl",
        "click",
        "opentelemetry",
        "importlib.metadata",
        "email.message",
    )
    code = (
        f"import sys, heeler.health.cli, heeler.health.run\nprint([name for name in {slow!r} if name in sys.modules])"
    )
    assert python(code) == "[]"


def test_health_knows_its_version() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert python("import heeler.health; print(heeler.health.VERSION)") == project["project"]["version"]
