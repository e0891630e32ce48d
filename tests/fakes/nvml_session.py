"""A process that uses nvidia-ml-py on behalf of a test, one expression at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the process runs: names of pynvml without their prefix, errors as codes, structures as dictionaries.
PROGRAM = """
import json, sys, threading, time
import pynvml as n

def gpu(index):
    return n.nvmlDeviceGetHandleByIndex(index)

def code(call):
    try:
        call()
    except n.NVMLError as e:
        return e.value
    return 0

def fields(handle, *ids):
    member = {1: "uiVal", 3: "ullVal", 5: "siVal"}
    return {str(v.fieldId): [v.nvmlReturn, getattr(v.value, member[v.valueType])]
            for v in n.nvmlDeviceGetFieldValues(handle, list(ids))}

def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_ if name != "device"}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, n.nvmlFriendlyObject):
        return plain(value.__dict__)
    return value

space = globals()
for line in sys.stdin:
    mode, text = json.loads(line)
    try:
        answer = {"value": plain(eval(text, space))} if mode == "eval" else {"value": exec(text, space)}
    except n.NVMLError as e:
        answer = {"nvml": e.value}
    except Exception as e:
        answer = {"error": repr(e)}
    print(json.dumps(answer), flush=True)
"""


class NvmlFailed(Exception):  # noqa: N818
    """A call returned this nvmlReturn_t."""

    def __init__(self, code: int) -> None:
        super().__init__(f"nvmlReturn_t {code}")
        self.code = code


class NvmlSession:
    """The process; `get` evaluates an expression in it and `do` runs statements."""

    def __init__(self, env: Mapping[str, str], *, init: bool = True) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(env),
        )
        self.stderr = ""
        if init:
            self.do("n.nvmlInit()")

    def get(self, expression: str) -> Any:
        """The value of a Python expression, as JSON knows it."""
        return self._ask("eval", expression)

    def do(self, statements: str) -> None:
        """Run Python statements."""
        self._ask("exec", statements)

    def code(self, expression: str) -> int:
        """The nvmlReturn_t of a call, 0 for success."""
        value = self.get(f"code(lambda: {expression})")
        assert isinstance(value, int)
        return value

    def close(self) -> None:
        """End the process, also while one of its threads hangs; `stderr` is complete then."""
        self._process.kill()
        self.stderr += self._process.communicate()[1]

    def _ask(self, mode: str, text: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([mode, text]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "nvml" in answer:
            raise NvmlFailed(answer["nvml"])
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
