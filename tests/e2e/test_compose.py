"""docker-compose.yml: complete and hardened as written, and, where an engine runs, brought up for real."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy/docker"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AGENTS = sorted(name for name in SERVICES if name.startswith("agent-"))
PROCESSORS = ("enrich", "detect", "drain", "otlp", "otlp-in", "summary", "lemon")
DEFAULT = sorted(name for name, service in SERVICES.items() if "profiles" not in service)
OWN = sorted(name for name, service in SERVICES.items() if "build" in service)
OTHERS = sorted(set(SERVICES) - set(OWN))
DOCKERFILES = ("heeler.Dockerfile", "go.Dockerfile")
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+[\w.-]*")  # a version, no moving tag such as latest
SECONDS = re.compile(r"(\d+)s")


def by_default(text: str) -> str:
    """Return a text with its ${NAME:-default} replaced by the defaults."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)


def dockerfile(service: dict[str, Any]) -> str:
    text: str = (ROOT / service["build"]["dockerfile"]).read_text()
    return text


def stage_of(service: dict[str, Any]) -> str:
    """Return the lines of the Dockerfile that make a service's image, with those of the stages it comes from."""
    stages: dict[str, tuple[str, str]] = {}
    name = ""
    for line in dockerfile(service).splitlines():
        if match := re.match(r"FROM (\S+)(?: AS (\S+))?", line):
            name = match[2] or "last"
            stages[name] = (match[1], "")
        elif name:
            parent, text = stages[name]
            stages[name] = (parent, f"{text}{line}\n")
    name, text = service["build"].get("target", "last"), ""
    while name in stages:
        parent, own = stages[name]
        name, text = parent, own + text
    return text


def test_everything_that_a_complete_cluster_needs_starts_by_default() -> None:
    assert {"nats", "bus-init", "fleet", "receiver", "console", *PROCESSORS} <= set(DEFAULT)
    assert len(AGENTS) >= 3
    assert set(AGENTS) <= set(DEFAULT)


def test_images_of_others_are_in_a_profile_and_pinned_by_version() -> None:
    assert {"otel-collector", "prometheus", "grafana"} == set(OTHERS)
    for name in OTHERS:
        assert SERVICES[name]["profiles"] == ["observability"], name
        assert PINNED.fullmatch(SERVICES[name]["image"]), name


@pytest.mark.parametrize("file", DOCKERFILES)
def test_bases_of_our_images_are_arguments_pinned_by_version(file: str) -> None:
    text = (DOCKER / file).read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE)
    arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)", text, re.MULTILINE))
    assert arguments
    for base in bases:
        assert base in stages or base.strip("${}") in arguments, base
    for image in arguments.values():
        assert re.fullmatch(r"(python|golang):\d+\.\d+-(slim-)?bookworm|debian:bookworm-slim", image), image


def test_compose_and_dockerfiles_name_the_same_bases() -> None:
    for name in OWN:
        arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)", dockerfile(SERVICES[name]), re.MULTILINE))
        given = {key: by_default(value) for key, value in SERVICES[name]["build"]["args"].items() if "IMAGE" in key}
        assert given == arguments, name


@pytest.mark.parametrize("name", OWN)
def test_our_image_runs_as_a_user_without_rights(name: str) -> None:
    users = re.findall(r"^USER (\S+)", stage_of(SERVICES[name]), re.MULTILINE)
    assert users
    assert users[-1] == "10001:10001"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_no_rights_and_stays_within_limits(name: str) -> None:
    service = SERVICES[name]
    assert not service["user"].startswith(("0", "root"))
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["init"] is True
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"bus-init"}))
def test_a_service_comes_back_by_itself_and_is_given_time_to_end(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    match = SECONDS.fullmatch(service["stop_grace_period"])
    assert match
    assert int(match[1]) >= 15


@pytest.mark.parametrize("name", sorted(set(DEFAULT) - {"bus-init"}))
def test_a_service_says_whether_it_is_healthy(name: str) -> None:
    service = SERVICES[name]
    check = service.get("healthcheck", {})
    assert "test" in check or "HEALTHCHECK" in stage_of(service)


def test_what_the_health_check_of_the_python_image_asks_is_listening() -> None:
    for name in (*PROCESSORS, "console", "otlp-collector", "fleet"):
        assert '["healthy", "9464"]' in stage_of(SERVICES[name])
        assert any(word.endswith("0.0.0.0:9464") for word in SERVICES[name]["command"]), name


def test_services_that_are_scaled_have_no_name_or_port_of_their_own() -> None:
    for name in (*PROCESSORS, "otlp-collector"):
        assert not {"container_name", "ports", "hostname"} & set(SERVICES[name]), name


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_processors_wait_for_the_streams() -> None:
    for name in (*PROCESSORS, "console", "fleet", *AGENTS):
        assert SERVICES[name]["depends_on"]["bus-init"]["condition"] == "service_completed_successfully", name
    assert SERVICES["bus-init"]["depends_on"]["nats"]["condition"] == "service_healthy"
    assert SERVICES["bus-init"]["restart"] == "on-failure"


def test_each_agent_is_a_node_of_its_own_with_its_own_files() -> None:
    mirrors = dict(
        word.removeprefix("--mirror=").split("=") for word in SERVICES["fleet"]["command"] if "mirror" in word
    )
    assert len(AGENTS) == len(mirrors)
    for name in AGENTS:
        node = name.removeprefix("agent-")
        service = SERVICES[name]
        settings = dict(word.split("=", 1) for word in service["command"] if "=" in word)
        assert settings["node"] == node
        assert settings["kmsg.path"] == f"{mirrors[node]}/kmsg"
        assert settings["proc"] == f"{mirrors[node]}/proc"
        assert settings["sys"] == f"{mirrors[node]}/sys"
        assert service["environment"]["HEELER_FAKE_NVML"] == f"{mirrors[node]}/nvml.scenario"
        assert f"{name}:/var/lib/heeler-agent" in service["volumes"]


def test_scripted_faults_hit_nodes_with_a_real_agent() -> None:
    nodes = {name.removeprefix("agent-") for name in AGENTS}
    story = tomllib.loads((DOCKER / "config/faults.toml").read_text())["fault"]
    assert {fault["kind"] for fault in story} == {"thermal", "ib_flap", "gpu_lost"}
    assert all(set(fault["target"]["among"]) == nodes for fault in story)


def test_the_drainer_only_tries() -> None:
    path = ROOT / COMPOSE["configs"]["drain"]["file"]
    assert tomllib.loads(path.read_text())["drain"]["dry_run"] is True


def test_every_configuration_and_volume_that_is_named_is_there() -> None:
    for name, service in SERVICES.items():
        for config in service.get("configs", ()):
            assert (ROOT / COMPOSE["configs"][config["source"]]["file"]).is_file(), name
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in COMPOSE["volumes"], name


def test_prometheus_and_grafana_read_what_is_given_to_them() -> None:
    prometheus = yaml.safe_load((DOCKER / "config/prometheus.yml").read_text())
    asked = [job["dns_sd_configs"][0]["names"] for job in prometheus["scrape_configs"] if "dns_sd_configs" in job]
    assert set(asked[0]) <= set(SERVICES)
    collector = yaml.safe_load((DOCKER / "config/otel-collector.yaml").read_text())
    for pipeline in collector["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(collector[part])
    datasource = yaml.safe_load((DOCKER / "grafana/datasource.yaml").read_text())["datasources"][0]
    mounted = {config["target"] for config in SERVICES["grafana"]["configs"]}
    for path in (DOCKER / "grafana/dashboards").glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        assert {panel["datasource"]["uid"] for panel in panels} == {datasource["uid"]}
        assert f"/etc/grafana/dashboards/{path.name}" in mounted
    rules = {f"/etc/prometheus/{name}" for name in prometheus["rule_files"]}
    assert rules <= {config["target"] for config in SERVICES["prometheus"]["configs"]}


def test_the_build_context_holds_what_the_images_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    for file in DOCKERFILES:
        for words in re.findall(r"^COPY (?!--from)(.+)$", (DOCKER / file).read_text(), re.MULTILINE):
            for source in words.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def no_engine() -> str | None:
    """Return why the stack can't be brought up here, or None."""
    if os.environ.get("HEELER_TRY_DOCKER") != "1":
        return "HEELER_TRY_DOCKER=1 is not set"
    if shutil.which("docker") is None:
        return "docker is not installed"
    for command in (["docker", "version"], ["docker", "compose", "version"]):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return f"`{' '.join(command)}` fails: no engine answers, or no compose plugin"
    return None


@pytest.mark.timeout(1800)
def test_detectors_that_are_killed_in_containers_lose_nothing() -> None:
    if why := no_engine():
        pytest.skip(why)
    done = subprocess.run([DOCKER / "try.sh"], capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    verdict = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    assert verdict["ok"]
    assert len(verdict["faults"]) == 3
    assert verdict["findings_opened"] == 3
    assert verdict["samples"] > 0
    assert verdict["samples_lost"] == 0
