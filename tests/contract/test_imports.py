"""What writes messages to a folder needs no client, and has no time to import one."""

import subprocess
import sys


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_encoding_a_message_imports_neither_the_client_nor_logs() -> None:
    slow = ("nats", "structlog", "asyncio", "tenacity", "ssl")
    code = f"import sys, heeler.bus\nheeler.bus.encode\nprint([name for name in {slow!r} if name in sys.modules])"
    assert python(code) == "[]"


def test_names_of_the_client_come_when_asked_for() -> None:
    assert python("from heeler.bus import consume, Bus; print(callable(consume), Bus.__name__)") == "True Bus"
    assert python("import heeler.bus; print(heeler.bus.ConfigError.__mro__[1].__name__)") == "ValueError"
