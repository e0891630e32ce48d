"""The units of the processors: complete, shut in, and what starts from them works."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from natsserver import NatsServer, free_port
from needs import need
from units import FOLDER, env_of, keys_of, start_of
from waiting import status, until_sync

from heeler.cli.run import PROGRAMS
from heeler.engine.process import Program

ROOT = FOLDER.parents[1]
SETTINGS = ROOT / "deploy/packages/processors"
NAMES = sorted(PROGRAMS)


def maker() -> ModuleType:
    path = ROOT / "deploy/dev/units.py"
    spec = importlib.util.spec_from_file_location("units_maker", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def program(name: str) -> Program:
    found = importlib.import_module(PROGRAMS[name]).PROGRAM
    assert isinstance(found, Program)
    return found


def instance(name: str, number: int = 1) -> dict[str, list[str]]:
    return keys_of((FOLDER / f"heeler-{name}@.service").read_text().replace("%i", str(number)))


def test_the_files_are_what_their_maker_makes() -> None:
    made = maker().made()
    assert {name: (FOLDER / name).read_text() for name in made} == made, "run deploy/dev/units.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_service_is_right_in_the_eyes_of_systemd(name: str, tmp_path: Path) -> None:
    need("systemd")
    # Alone and as of this machine, which has neither the program nor the page.
    text = (FOLDER / f"heeler-{name}@.service").read_text().replace("/usr/bin/heeler", "/bin/true")
    unit = tmp_path / f"heeler-{name}@1.service"
    unit.write_text(text.replace("PartOf=heeler.target\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    said = [
        line for line in done.stderr.splitlines() if unit.name in line and not re.search(r"Unknown key.*Restart", line)
    ]
    assert said == []
    run = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_no_right_and_a_user_that_is_made(name: str) -> None:
    unit = instance(name)
    users = re.findall(r"^u (\S+)", (FOLDER / "heeler.sysusers").read_text(), re.MULTILINE)
    assert unit["User"] == unit["Group"] == ["heeler-drain" if name == "drain" else "heeler"]
    assert unit["User"][0] in users
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == [""]


def test_no_two_services_want_the_same_port() -> None:
    ports = [env_of(instance(name, number))["HEELER_LISTEN"] for name in NAMES for number in (1, 2, 9)]
    assert len(set(ports)) == len(ports)
    assert all(int(port.rpartition(":")[2]) < 32768 for port in ports), "the kernel gives these to clients"


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_that_come_with_a_service_are_accepted_and_change_nothing_unsaid(name: str) -> None:
    found = program(name).load(SETTINGS / f"{name}.toml")
    usual = program(name).load(None)
    written = tomllib.loads((SETTINGS / f"{name}.toml").read_text())
    changed = {section for section in found if found[section] != usual[section]}
    assert changed <= {section for section, table in written.items() if table}
    assert changed <= {"otlp", "otlp_in"}, "they are the program's own"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_commented_out_in_the_settings_would_be_accepted(name: str, tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z_]+ = |\[)", "", (SETTINGS / f"{name}.toml").read_text(), flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)
    program(name).load(tmp_path / "all.toml")


@pytest.mark.bus
def test_each_processor_starts_as_its_service_says(nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.init_bus(0.002)
    running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(str(tmp_path / "notify"))
    (tmp_path / "etc").mkdir()
    for path in SETTINGS.glob("*.toml"):
        shutil.copy(path, tmp_path / "etc")
    text = (tmp_path / "etc/otlp-in.toml").read_text()
    (tmp_path / "etc/otlp-in.toml").write_text(re.sub(r":1431[78]", ":0", text))
    (tmp_path / "etc/console.toml").write_text('[console]\nlisten = "127.0.0.1:0"\n')
    try:
        for name in NAMES:
            unit = instance(name)
            port = free_port()
            env = env_of(unit, f"HEELER_NATS_URL={nats_server.url}\n", f"HEELER_LISTEN=127.0.0.1:{port}\n")
            words = [word.replace("/etc/heeler", str(tmp_path / "etc")) for word in start_of(unit, env)]
            assert words[0] == "/usr/bin/heeler"
            command = [sys.executable, "-m", "heeler.cli.main", *words[1:]]
            env = os.environ | env | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
            with (tmp_path / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            running[name] = process, f"http://127.0.0.1:{port}"
        for name, (process, url) in running.items():

            def healthy(process: subprocess.Popen[bytes] = process, url: str = url) -> bool:
                assert process.poll() is None
                return status(f"{url}/healthz") == 200

            until_sync(healthy, f"{name}: {(tmp_path / f'{name}.log').read_text()}", 90)
            with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                assert f'heeler_bus_connected{{process="{name}"}} 1' in answer.read().decode()
        said = [ear.recv(4096) for _ in NAMES]
        assert any(b"READY=1" in one for one in said)
        for process, _ in running.values():
            process.terminate()
        assert {name: process.wait(60) for name, (process, _) in running.items()} == dict.fromkeys(NAMES, 0)
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()
        ear.close()
