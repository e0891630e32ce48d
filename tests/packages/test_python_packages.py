"""heeler-health and heeler-slurm as packages: they carry their own Python, and run on a machine that has none."""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import build
from needs import need
from packagekit import DIST, ROOT, overlaid, package, run

NAMES = ("heeler-health", "heeler-slurm")
DEB_HERE, RPM_HERE = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}.get(
    platform.machine(), ("unknown", "unknown")
)
PINS = ROOT / "deploy/packages/python"
OLDEST_GLIBC = (2, 28)  # RHEL 8
# Where a package might leave something behind; the two users stay, and so does what dpkg writes down about itself.
KEPT = ("usr/bin", "usr/lib", "usr/share", "etc", "run", "var/spool", "var/lib/heeler-slurm")
C_LIBRARY = {f"lib{name}" for name in ("c.so.6", "m.so.6", "pthread.so.0", "dl.so.2", "rt.so.1", "util.so.1")}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A machine without any Python."""
    need("python_packages")
    need("overlay")
    with overlaid(tmp_path) as root:
        for path in [*root.glob("usr/bin/python*"), *root.glob("usr/local/bin/python*")]:
            path.unlink()
        for path in root.glob("usr/lib/python3*"):
            shutil.rmtree(path)
        assert inside(root, "sh", "-c", "command -v python3").returncode != 0
        yield root


def inside(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the machine with an environment of its own."""
    given = [f"{key}={value}" for key, value in {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env}.items()]
    command = ["chroot", str(root), "env", "-i", *given, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def health_works(root: Path) -> None:
    """Checks are listed, eight fake GPUs are checked, and the results lie in the outbox."""
    assert "gpu_xid" in inside(root, "heeler-health", "list").stdout
    assert "Usage" in inside(root, "heeler-health", "serve", "--help").stdout
    (root / "tmp/nvml").mkdir()
    shutil.copy(build(), root / "tmp/nvml/libnvidia-ml.so.1")
    (root / "tmp/scenario").write_text("gpus 8\n")
    done = inside(
        root,
        *("heeler-health", "run", "gpu_reachable", "gpu_temperature", "uptime", "--json"),
        HEELER_FAKE_NVML="/tmp/scenario",
        LD_LIBRARY_PATH="/tmp/nvml",
    )
    assert done.returncode in (0, 1), done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    reachable = next(line for line in lines if line.get("check") == "gpu_reachable")
    assert reachable["outcome"] == "ok", reachable
    letters = [path.name for path in (root / "var/spool/heeler/outbox").iterdir()]
    assert any("HealthRun" in name for name in letters)
    for script in ("prolog", "epilog", "healthcheck", "task_prolog"):
        path = root / f"usr/share/heeler/slurm/{script}.sh"
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o755, 0)
    assert inside(root, "sh", "/usr/share/heeler/slurm/prolog.sh", SLURM_JOB_ID="1").returncode == 0


def slurm_works(root: Path) -> None:
    """The agent starts as its user, and parses."""
    assert "Publish what Slurm says" in inside(root, "heeler-slurm", "--help").stdout
    user = ("setpriv", "--reuid=heeler-slurm", "--regid=heeler-slurm", "--clear-groups")
    printed = inside(root, *user, "heeler-slurm", "--config", "/etc/heeler/slurm.toml", "--print-config")
    assert printed.returncode == 0, printed.stderr
    (root / "tmp/gres").write_text("gpu:h100:4(IDX:0-3)\n")
    parsed = inside(root, *user, "sh", "-c", "heeler slurm parse gres </tmp/gres")
    assert (parsed.returncode, parsed.stderr) == (0, "")
    assert json.loads(parsed.stdout), parsed.stdout
    lacking = inside(root, *user, "heeler", "run", "detect")
    assert lacking.returncode == 1
    assert lacking.stderr.startswith("Error: heeler run detect needs a package that is not here"), lacking.stderr


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_they_run_on_a_machine_without_python(machine: Path, kind: str) -> None:
    for name in NAMES:
        shutil.copy(package(name, kind, DEB_HERE if kind == "deb" else RPM_HERE), machine / f"tmp/{name}.{kind}")
        install = ("dpkg", "-i") if kind == "deb" else ("rpm", "-i", "--nodeps")
        run("chroot", machine, *install, f"/tmp/{name}.{kind}")
    health_works(machine)
    slurm_works(machine)
    for name in NAMES:
        verified = inside(machine, "systemd-analyze", "verify", f"{name}.service")
        assert (verified.returncode, verified.stderr) == (0, "")
        wants = machine / "etc/systemd/system/multi-user.target.wants" / f"{name}.service"
        assert not wants.is_symlink(), "it is enabled before it is configured"
        run("chroot", machine, *(("dpkg", "-r") if kind == "deb" else ("rpm", "-e")), name)
        if kind == "deb":
            assert (machine / "etc/heeler" / f"{name.removeprefix('heeler-')}.toml").exists(), "the settings are gone"
            run("chroot", machine, "dpkg", "-P", name)
    left = [path for folder in KEPT for path in (machine / folder).rglob("*heeler*")]
    assert left == []


def test_an_upgrade_keeps_the_policy(machine: Path) -> None:
    shutil.copy(package("heeler-health", "deb", DEB_HERE), machine / "tmp/health.deb")
    run("chroot", machine, "dpkg", "-i", "/tmp/health.deb")
    policy = machine / "etc/heeler/health.toml"
    policy.write_text('cluster = "north"\n')
    run("chroot", machine, "dpkg", "-i", "/tmp/health.deb")
    assert policy.read_text() == 'cluster = "north"\n'


@pytest.mark.parametrize("name", NAMES)
def test_nothing_inside_asks_for_a_newer_c_library(name: str) -> None:
    need("python_packages")
    tree = ROOT / "build/packages" / DEB_HERE / name / "tree"
    programs = [tree / "bin/python3.13", *tree.rglob("*.so"), *tree.rglob("*.so.*")]
    assert len(programs) > 3
    for program in programs:
        found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "-V", program))
        newest = max(((int(a), int(b)) for a, b in found), default=(0, 0))
        assert newest <= OLDEST_GLIBC, f"{program.name} asks for {newest}"
        wanted = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program)))
        assert {name for name in wanted - C_LIBRARY if not name.startswith("ld-linux")} == set()
        assert ".debug_info" not in run("readelf", "-SW", program), f"{program.name} is not stripped"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_inside_runs_from_any_folder(name: str, tmp_path: Path) -> None:
    need("python_packages")
    shutil.copytree(ROOT / "build/packages" / DEB_HERE / name / "tree", tmp_path / "else where")
    code = "import ssl, ctypes, zlib, hashlib, sys; print(ssl.OPENSSL_VERSION, sys.prefix)"
    assert str(tmp_path) in run(tmp_path / "else where/bin/python3.13", "-I", "-c", code)


IMPORT_ALL = """
import importlib, pkgutil, sys
for area in sys.argv[1:]:
    package = importlib.import_module(area)
    for found in pkgutil.walk_packages(package.__path__, area + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


@pytest.mark.parametrize(
    ("name", "areas"),
    [
        ("heeler-health", ["heeler.health", "heeler.engine", "heeler.bus"]),
        ("heeler-slurm", ["heeler.slurm", "heeler.engine", "heeler.bus", "heeler.doctor"]),
    ],
)
def test_every_module_finds_what_it_imports(name: str, areas: list[str]) -> None:
    need("python_packages")
    run(ROOT / "build/packages" / DEB_HERE / name / "tree/bin/python3.13", "-I", "-B", "-c", IMPORT_ALL, *areas)


def test_the_packages_carry_the_versions_of_the_project() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "deploy/dev/constraints.txt").read_text(), re.MULTILINE))
    versions = {name.lower(): version for name, version in pinned.items()}
    carried = {}
    for path in PINS.glob("*-*.txt"):
        for name, version, sums in re.findall(r"^([\w-]+)==(\S+) (.*)$", path.read_text(), re.MULTILINE):
            carried[name] = version
            assert "--hash=sha256:" in sums
    assert carried == {name: versions[name] for name in carried}
    assert {"nats-py", "msgpack", "msgspec", "nvidia-ml-py", "clustershell"} <= carried.keys()


def test_no_serious_words_from_lintian() -> None:
    need("python_packages")
    need("lintian")
    done = subprocess.run(
        ["lintian", "--fail-on", "error", *(path for name in NAMES for path in DIST.glob(f"{name}*.deb"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_rpm_says_what_it_needs_and_keeps(name: str) -> None:
    need("python_packages")
    path = package(name, "rpm", RPM_HERE)
    needs = run("rpm", "-qp", "--requires", path)
    assert "glibc >= 2.28" in needs
    assert "python" not in needs
    settings = {
        "heeler-health": {"/etc/heeler/health.toml", "/etc/heeler/health-serve.toml"},
        "heeler-slurm": {"/etc/heeler/slurm.toml"},
    }
    assert set(run("rpm", "-qp", "--configfiles", path).split()) == settings[name]
    assert set(run("dpkg-deb", "-I", package(name, "deb", DEB_HERE), "conffiles").split()) == settings[name]
    owners = {line.split()[1] for line in run("dpkg-deb", "-c", package(name, "deb", DEB_HERE)).splitlines()}
    assert owners == {"root/root"}


def test_the_services_are_shut_in_as_far_as_their_work_allows() -> None:
    need("systemd")
    for name, most in (("heeler-slurm", 45), ("heeler-health", 95)):  # health checks as root, and sees all of the node
        unit = ROOT / f"deploy/systemd/{name}.service"
        run("systemd-analyze", "security", "--offline=true", f"--threshold={most}", unit)
    blinding = (
        "ProtectSystem ProtectHome ProtectClock PrivateDevices DevicePolicy ProtectKernelLogs PrivateTmp ProtectProc"
    )
    lines = (ROOT / "deploy/systemd/heeler-health.service").read_text().splitlines()
    assert {line.split("=")[0] for line in lines if "=" in line} & set(blinding.split()) == set()
