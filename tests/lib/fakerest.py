"""A slurmrestd of a newer Slurm on a unix socket: nodes that can be read and changed, as v0.0.40 does it."""

import json
import os
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class FakeRest(socketserver.ThreadingUnixStreamServer):
    """The server and its nodes. `how`: "silent", "denied", "lie", "old", "broken"."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.how = ""
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.nodes: dict[str, dict[str, Any]] = {"n001": {"state": ["IDLE"], "reason": ""}}
        super().__init__(str(path), _Handler)
        self.url = f"unix://{path}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeRest

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: Any) -> None:
        pass

    def _say(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        version = "38" if self.server.how == "old" else "40"
        if self.path.startswith("/openapi"):
            self._say({"paths": {f"/slurm/v0.0.{version}/nodes": {}}})
            return
        name = self.path.rpartition("/")[2]
        if name not in self.server.nodes:
            self._say({"nodes": [], "errors": [{"error": "Node not found", "description": f"{name} not found"}]}, 500)
            return
        self._say({"nodes": [self._row(name)], "errors": [], "warnings": []})

    def _row(self, name: str) -> dict[str, Any]:
        node = self.server.nodes[name]
        when = {"set": bool(node.get("ts")), "infinite": False, "number": node.get("ts", 0)}
        row = {
            "name": name,
            "hostname": name,
            "state": node["state"],
            "reason": node["reason"],
            "partitions": ["train"],
        }
        row |= {"reason_changed_at": when, "reason_set_by_user": node.get("user", ""), "features": []}
        return row | {"boot_time": {"set": True, "infinite": False, "number": 1_700_000_000}, "gres": "gpu:8"}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("/")[2]
        self.server.posts.append((self.path, body))
        if self.server.how == "silent":
            time.sleep(30)
            return
        if self.server.how == "denied":
            self._say({"errors": [{"error_number": 2002, "description": "Access/permission denied"}]}, 500)
            return
        if self.server.how == "complains":
            self._say({"errors": [{"error_number": 2002, "description": "Access/permission denied"}]})
            return
        node = self.server.nodes[name]
        if self.server.how != "lie" and body["state"] == ["DRAIN"]:
            flags = dict.fromkeys([*node["state"], "DRAIN"])
            node.update(state=list(flags), reason=body["reason"], user="heeler", ts=int(time.time()))
        elif self.server.how != "lie" and body["state"] == ["UNDRAIN"]:
            node.update(state=[word for word in node["state"] if word != "DRAIN"], reason="", user="", ts=0)
        self._say({"errors": [], "warnings": []})


def socket_path(folder: Path) -> Path:
    """A path that is short enough for a unix socket."""
    return Path(os.path.relpath(folder / "rest.sock")) if len(str(folder)) > 90 else folder / "rest.sock"
