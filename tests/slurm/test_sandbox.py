"""The Slurm of the tests: accounting and slurmrestd are real and answer."""

import json
import socket
from http.client import HTTPConnection
from typing import Any

from slurmsandbox import Sandbox


def get(connection: HTTPConnection, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    return answer.status, json.loads(body) if answer.status == 200 else {}


def test_a_job_of_another_user_is_accounted_with_its_gpus(accounted: Sandbox) -> None:
    job = accounted.submit("true", "--gres=gpu:2", user="nobody")
    accounted.wait_job(job, "COMPLETED")

    def said() -> str:
        return accounted.run("sacct", "-nXP", "-j", job, "-o", "user,account,alloctres")

    # slurmctld tells slurmdbd in the background.
    accounted.wait_for("slurmdbd", lambda: "gres" in said())
    assert said().startswith("nobody|research|")
    assert "gres/gpu=2" in said()
    assert "gres/gpu:h100=2" in said()


def test_slurmrestd_answers_root_on_its_socket_and_a_token_on_tcp(accounted: Sandbox) -> None:
    unix = HTTPConnection("localhost")
    unix.sock = socket.socket(socket.AF_UNIX)
    unix.sock.connect(str(accounted.rest.socket))
    _, spec = get(unix, "/openapi/v3")
    version = max(path.split("/")[2] for path in spec["paths"] if path.startswith("/slurm/v"))
    tcp = HTTPConnection("127.0.0.1", accounted.rest.port)
    names = {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": accounted.rest.token()}
    status, qos = get(tcp, f"/slurmdb/{version}/qos", **names)
    assert status == 200
    assert [row["name"] for row in qos.get("qos") or qos["QOS"]] == ["normal"]
    refused = HTTPConnection("127.0.0.1", accounted.rest.port)
    assert get(refused, f"/slurm/{version}/nodes", **{**names, "X-SLURM-USER-TOKEN": "none"})[0] in (401, 500, 511), (
        "22.05 says 500, 24.11 says 511"
    )


def test_slurmdbd_can_be_away_and_come_back(accounted: Sandbox) -> None:
    accounted.accounting.stop_dbd()
    assert not accounted.succeeds("sacctmgr", "-nP", "list", "cluster")
    assert accounted.succeeds("scontrol", "ping"), "the controller goes on"
    accounted.accounting.start_dbd()
    assert "sandbox" in accounted.run("sacctmgr", "-nP", "list", "cluster")
