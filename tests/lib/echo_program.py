"""A processor for tests of the live engines: one finding for every agent status, by a step with bounded memory.

python echo_program.py standby|shared URL
"""

import os
import signal
import sys
from collections.abc import Iterable

from heeler.bus import subjects
from heeler.engine import Event, Inbound, Input, Result
from heeler.engine.process import Context, Program, run
from heeler.engine.shared import Shared
from heeler.engine.standby import Standby


class Echo:
    """Says of every sample which three came before it, so that a lost or doubled one shows in the next too."""

    name = "echo"
    inputs = (Input("IbSample"),)
    tick_s = 1.0
    memory_s = 20.0

    def keys(self, message: Inbound) -> Iterable[str]:
        return (f"node:{message.data['node']}",)

    def on(self, key: str, state: tuple[int, ...] | None, message: Inbound, now_ns: int) -> Result:
        node, seq = message.data["node"], message.data["seq"]
        if message.data.get("boot") == "poison":
            raise RuntimeError("a bug that this message shows")
        if message.data.get("boot") == "killer":
            os.kill(os.getpid(), signal.SIGKILL)
        state = (*(state or ()), seq)[-4:]
        finding_id = f"{node}-{seq}"
        finding = {
            "v": 1, "cluster": "c", "id": finding_id, "kind": "echo", "state": "open", "severity": "info",
            "confidence": 1.0, "entity": {"type": "node", "node": node}, "first_ts": message.ts_ns, "ts": now_ns,
            "evidence": [], "advice": "none", "summary": ",".join(map(str, state)), "node": node,
        }  # fmt: skip
        return state, (Event("Finding", subjects.finding("c", "echo", node, finding["id"]), finding, finding["id"]),)

    def tick(self, key: str, state: tuple[int, ...], now_ns: int) -> Result:
        return state, ()


async def standby(context: Context) -> None:
    engine = Standby(context.bus, Echo(), context.instance)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


async def shared(context: Context) -> None:
    engine = Shared(context.bus, Echo(), context.instance, ack_wait_s=2.0)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


if __name__ == "__main__":
    os.environ["HEELER_NATS_URL"] = sys.argv[2]
    os.environ["HEELER_CLUSTER"] = "c"
    program = Program("echo", "test", {"standby": standby, "shared": shared}[sys.argv[1]])
    sys.exit(run(program, listen=sys.argv[3] if len(sys.argv) > 3 else None))
