"""The Helm chart: what it makes is right for Kubernetes and for our programs, and every value does something."""

import importlib
import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helmchart import CHART, ROOT, VALUES, ChartError, Objects, build, of_kind, over, pods, render, render_each, toml_of
from needs import need

from heeler.cli.run import PROGRAMS
from heeler.engine.process import Program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]  # the first one builds what renders

PLAIN: dict[str, Any] = {"cluster": "north"}
PEER = {"podSelector": {"matchLabels": {"app": "x"}}}
PLACED = {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "resources": {"limits": {"memory": "3Gi"}},
}
EVERYTHING: dict[str, Any] = {
    "cluster": "north",
    "imagePullSecrets": [{"name": "pull"}],
    "nats": {"auth": "tls", "urls": ["tls://a:4222", "tls://b:4222"]},
    "processor": {
        "podLabels": {"team": "gpu"},
        "podAnnotations": {"note": "x"},
        "priorityClassName": "high",
        "affinity": {"nodeAffinity": {}},
    },
    "processors": {
        **{name: {"enabled": True, "replicas": 3} for name in VALUES["processors"]},
        "drain": {
            "replicas": 2,
            "settings": {
                "drain": {
                    "dry_run": False,
                    "backend": "slurmrestd",
                    "rest_url": "https://head:6820",
                    "rest_user": "heeler-drain",
                    "token_file": "/etc/heeler/slurm/token",
                    "limits": {"drained_min": 5, "drained_ratio": 0.05, "opt_out_nodes": ["n1", "n2"]},
                    "rules": [{"kind": "gpu_lost", "action": "drain_now", "codes": [79]}],
                }
            },
            "volumes": [{"name": "slurm", "secret": {"secretName": "slurm"}}],
            "volumeMounts": [{"name": "slurm", "mountPath": "/etc/heeler/slurm"}],
            "env": [{"name": "A", "value": "b"}],
            **PLACED,
        },
        "otlp": {"settings": {"otlp": {"every_s": 0.5, "batch_points": 16777216, "slurm": {"users": True}}}},
        "slurm": {"enabled": True, "replicas": 2, "settings": {"slurm": {"rest_url": "unix:///run/slurmrestd.socket"}}},
    },
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "page", "annotations": {"a": "b"}},
    "agent": {
        "settings": {"interval": "2s", "outbox": {"max_files": 5000}},
        "outboxHostPath": "/var/spool/heeler/outbox",
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "gpu"},
        "podAnnotations": {"note": "x"},
        "priorityClassName": "system-node-critical",
    },
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [PEER],
        "pageFrom": [PEER],
        "otlpFrom": [PEER],
        "egress": [{"ports": [{"port": 4317}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
BARE: dict[str, Any] = {
    "cluster": "north",
    "busInit": {"enabled": False},
    "agent": {"runtimeClassName": "", "kernelLog": {"enabled": False}, "stateHostPath": "", "nodeSelector": {}},
    "podDisruptionBudget": {"enabled": False},
    "processors": {name: {"replicas": 1} for name in VALUES["processors"]},
}
CREDS: dict[str, Any] = {
    "cluster": "north",
    "nats": {"auth": "creds", "secret": "bus-NAME"},
    "agent": {"kernelLog": {"resource": "squat.ai/kmsg"}},
    "serviceMonitor": {"enabled": True},
    "networkPolicy": {"enabled": True},
}
README: dict[str, Any] = yaml.safe_load(
    (CHART / "README.md").read_text().partition("    # my.yaml\n")[2].partition("\n\n")[0]
)
ALL = {"plain": PLAIN, "everything": EVERYTHING, "bare": BARE, "creds": CREDS, "readme": README}
SLURM_FEED = "slurm"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Objects]:
    """What is made of each of the values above."""
    build()
    return {name: render(values, tmp_path_factory.mktemp(name)) for name, values in ALL.items()}


@pytest.mark.parametrize("name", ALL)
def test_kubernetes_knows_every_field_and_no_object_is_made_twice(made: dict[str, Objects], name: str) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in made[name]]
    assert len(names) == len(set(names)) > 10
    assert all(len(name) <= 63 for _, name in names)


def test_every_processor_can_be_deployed_and_the_usual_ones_are(made: dict[str, Objects]) -> None:
    assert set(VALUES["processors"]) == {*PROGRAMS, SLURM_FEED}
    assert set(of_kind(made["plain"], "Deployment")) == set(PROGRAMS) - {"otlp-in"}
    found = of_kind(made["everything"], "Deployment")
    assert set(found) == {*PROGRAMS, SLURM_FEED}
    for name, one in found.items():
        (container,) = one["spec"]["template"]["spec"]["containers"]
        words = [*container.get("command", ["heeler"]), *container["args"]]
        start = ["heeler-slurm"] if name == SLURM_FEED else ["heeler", "run", name]
        assert words == [*start, "--config", f"/etc/heeler/{name}.toml", "--listen", "0.0.0.0:9464"]


@pytest.mark.parametrize(
    ("values", "name"),
    [(values, name) for values in ALL for name in sorted(PROGRAMS) if values == "everything" or name != "otlp-in"],
)
def test_a_processor_takes_the_settings_that_are_made_for_it(
    made: dict[str, Objects], name: str, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [key for key in os.environ if key.startswith("HEELER_")]:
        monkeypatch.delenv(variable)
    program = importlib.import_module(PROGRAMS[name]).PROGRAM
    assert isinstance(program, Program)
    (tmp_path / "x.toml").write_text(toml_of(made[values], name))
    program.load(tmp_path / "x.toml")


def test_numbers_stay_what_they_are(made: dict[str, Objects]) -> None:
    otlp = tomllib.loads(toml_of(made["everything"], "otlp"))["otlp"]
    assert (otlp["every_s"], otlp["batch_points"], type(otlp["batch_points"])) == (0.5, 16777216, int)
    drain = tomllib.loads(toml_of(made["everything"], "drain"))["drain"]
    assert drain == EVERYTHING["processors"]["drain"]["settings"]["drain"]
    assert [type(code) for code in drain["rules"][0]["codes"]] == [int]


@pytest.mark.parametrize("values", ["plain", "everything", "bare", "creds"])
def test_the_agent_takes_the_settings_that_are_made_for_it(
    made: dict[str, Objects], values: str, tmp_path: Path
) -> None:
    need("agent")
    (tmp_path / "agent.toml").write_text(toml_of(made[values], "agent"))
    here = ["-set", "node=n1", "-set", "proc=/proc", "-set", "sys=/sys"]
    agent = str(ROOT / "bin/heeler-agent")
    command = [agent, "config", "check", "-config", str(tmp_path / "agent.toml"), *here]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("well: cluster north")


@pytest.mark.parametrize("values", ALL)
def test_pods_have_no_rights(made: dict[str, Objects], values: str) -> None:
    for part, pod in pods(made[values]).items():
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["resources"]["limits"]["memory"]
        if part == "agent":
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod["volumes"])


def test_the_agent_has_the_rights_that_the_kernel_log_needs_and_no_more(made: dict[str, Objects]) -> None:
    with_device, without = pods(made["creds"])["agent"], pods(made["bare"])["agent"]
    security = with_device["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG"]}
    assert "privileged" not in security
    assert with_device["containers"][0]["resources"]["limits"]["squat.ai/kmsg"] == 1
    security = without["containers"][0]["securityContext"]
    assert (security["runAsUser"], security["capabilities"]) == (10001, {"drop": ["ALL"]})
    assert {volume["hostPath"]["path"] for volume in without["volumes"] if "hostPath" in volume} == {"/proc", "/sys"}
    writable = {
        mount["name"]
        for mount in pods(made["everything"])["agent"]["containers"][0]["volumeMounts"]
        if not mount.get("readOnly")
    }
    assert writable == {"state", "control", "outbox"}


def test_what_is_mounted_is_there(made: dict[str, Objects]) -> None:
    for objects in made.values():
        for pod in pods(objects).values():
            volumes = {volume["name"] for volume in pod["volumes"]}
            (container,) = pod["containers"]
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_a_process_has_a_secret_of_its_own(made: dict[str, Objects]) -> None:
    found = {
        part: volume["secret"]["secretName"]
        for part, pod in pods(made["creds"]).items()
        for volume in pod["volumes"]
        if volume["name"] == "nats"
    }
    assert found == {part: f"bus-{part}" for part in [*of_kind(made["creds"], "Deployment"), "agent", "admin"]}


def test_what_selects_pods_finds_those_of_its_part(made: dict[str, Objects]) -> None:
    objects = made["everything"]
    for part, one in of_kind(objects, "Deployment").items():
        labels = one["spec"]["template"]["metadata"]["labels"].items()
        ports = {port["name"] for port in one["spec"]["template"]["spec"]["containers"][0]["ports"]}
        service = of_kind(objects, "Service")[part]
        policy = of_kind(objects, "NetworkPolicy")[part]
        chosen = [service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"]]
        chosen += [one["spec"]["selector"]["matchLabels"]]
        chosen += [of_kind(objects, "PodDisruptionBudget")[part]["spec"]["selector"]["matchLabels"]]
        for selector in chosen:
            assert selector.items() <= labels
            assert selector["app.kubernetes.io/component"] == part
        assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert allowed == ports
    services = [one["metadata"]["labels"].items() for one in of_kind(objects, "Service").values()]
    monitor = next(one for one in objects if one["kind"] == "ServiceMonitor")
    assert all(monitor["spec"]["selector"]["matchLabels"].items() <= labels for labels in services)
    assert {dict(labels)[monitor["spec"]["jobLabel"]] for labels in services} == {"heeler-processors"}


def test_the_page_answers_to_the_name_of_the_ingress(made: dict[str, Objects]) -> None:
    assert tomllib.loads(toml_of(made["everything"], "console"))["console"]["hosts"] == ["heeler.example.org"]
    assert "hosts" not in tomllib.loads(toml_of(made["plain"], "console"))["console"]


def test_an_outage_of_the_bus_kills_no_pod(made: dict[str, Objects]) -> None:
    for part in PROGRAMS:
        (container,) = pods(made["everything"])[part]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/metrics"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({}, "cluster"),
        ({**PLAIN, "clutser": "x"}, "clutser"),
        ({**PLAIN, "processors": {"detekt": {"replicas": 2}}}, "detekt"),
        ({**PLAIN, "processors": {"detect": {"replica": 2}}}, "replica"),
        ({**PLAIN, "nats": {"auth": "password"}}, "auth"),
        ({**PLAIN, "processors": {"detect": {"replicas": "two"}}}, "replicas"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], word: str, tmp_path: Path) -> None:
    build()
    with pytest.raises(ChartError, match=word):
        render(values, tmp_path)


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        # What settings hold is the processes' own; what else is open has been filled in above.
        if isinstance(value, dict) and value and key not in ("settings", "resources", "nodeSelector"):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


OTHER: dict[str, Any] = {
    "affinity": {"podAffinity": {}},
    "pullPolicy": "Always",
    "auth": "creds",
    "logLevel": "debug",
    "replicas": 5,
    "scale": 0.5,
    "interval": "7s",
    "urls": ["nats://other:1"],
    "settings": {"log": {"level": "debug"}},
    "tolerations": [{"key": "other"}],
    "resources": {"limits": {"memory": "7Gi"}},
    "maxUnavailable": 3,
}


def otherwise(key: str, value: Any) -> Any:
    """Return another value of the same kind."""
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int):
        return value + 1
    return {"other": "one"} if isinstance(value, dict) else []


def test_every_value_changes_what_is_made(made: dict[str, Objects], tmp_path: Path) -> None:
    base = over(VALUES, EVERYTHING)
    known = [path for path, _ in leaves(VALUES)]
    usual = made["everything"]

    def changed(path: tuple[str, ...]) -> dict[str, Any]:
        at: Any = base
        for key in path:
            at = at[key]
        change: Any = otherwise(path[-1], at)
        for key in reversed(path):
            change = {key: change}
        return over(EVERYTHING, change)

    found = render_each([changed(path) for path in known], tmp_path)
    assert [".".join(path) for path, objects in zip(known, found, strict=True) if objects == usual] == []


def test_the_readme_names_every_value() -> None:
    text = (CHART / "README.md").read_text()
    for path, _ in leaves(VALUES):
        names = {".".join(path), ".".join(path[:-1]) + ".*", f"processors.NAME.{path[-1]}"}
        assert any(f"`{name}`" in text for name in names), path


def test_the_chart_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (CHART / "Chart.yaml").read_text()
    assert f'appVersion: "{version}"' in text
    assert f"version: {version}\n" in text
