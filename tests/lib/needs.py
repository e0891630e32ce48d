"""What a test needs of the machine. Where it is missing the test is skipped with a reason; in CI it fails."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SLURM_PROGRAMS = ("slurmctld", "slurmd", "squeue", "sinfo", "scontrol", "sbatch", "scancel", "munged", "munge")
ACCOUNTING_PROGRAMS = ("slurmdbd", "slurmrestd", "sacctmgr", "sacct", "mariadbd", "mariadb", "mariadb-install-db")
PLUGIN_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")


def missing_slurm() -> str | None:
    """Return why no Slurm can be started here, or None."""
    folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    absent = [name for name in SLURM_PROGRAMS if shutil.which(name, path=folders) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)} missing)"
    if os.geteuid() != 0:
        return "starting Slurm needs root"
    return None


def missing_accounting() -> str | None:
    """Return why Slurm can't run here with accounting and slurmrestd, or None."""
    if why := missing_slurm():
        return why
    folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    absent = [name for name in ACCOUNTING_PROGRAMS if shutil.which(name, path=folders) is None]
    # Plug-ins come in packages of their own.
    plugins = ("accounting_storage_mysql.so", "auth_jwt.so")
    absent += [name for name in plugins if not any(any(Path(lib).glob(f"**/slurm*/{name}")) for lib in PLUGIN_FOLDERS)]
    return f"Slurm's accounting or REST is not installed ({', '.join(absent)} missing)" if absent else None


def missing_agent() -> str | None:
    """Return why the node agent and its fake GPUs were not built, or None."""
    agent = Path(__file__).resolve().parents[2] / "bin/heeler-agent"
    return None if agent.exists() else "bin/heeler-agent is not built: Go 1.24 and a C compiler are needed"


def missing_packages() -> str | None:
    """Return why there are no packages to look at, or None."""
    root = Path(__file__).resolve().parents[2]
    if not list((root / "dist").glob("heeler-agent*_arm64.deb")):
        return "`make packages` has built none for both architectures"
    return missing_program("dpkg-deb", "rpm")


def missing_python_packages() -> str | None:
    """Return why there are no packages with a Python of their own, or None."""
    root = Path(__file__).resolve().parents[2]
    if not list((root / "dist").glob("heeler-health*.deb")):
        return "`make packages` has built no heeler-health"
    return missing_program("dpkg-deb", "rpm", "readelf")


def missing_program(*names: str) -> str | None:
    """Return which programs are not installed, or None."""
    absent = [name for name in names if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of the browser for tests of the web page, or None."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def missing_browser() -> str | None:
    """Return why no page can be opened here, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: `make setup`"
    return None if chromium() else "Chromium is not installed (Debian: apt install chromium)"


def missing_go_126() -> str | None:
    """Return why no collector can be built here, or None."""
    if why := missing_program("go", "flock"):
        return why
    asked = subprocess.run(
        ["go", "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    found = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    if found is None or (int(found[1]), int(found[2])) < (1, 26):
        return f"the collector needs Go 1.26, found {asked.stdout.strip() or 'none'}"
    return None


def missing_root() -> str | None:
    """Return why no other user can be played, or None."""
    return "needs root" if os.geteuid() != 0 else missing_program("setpriv")


def missing_overlay() -> str | None:
    """Return why no file system can be laid over ours, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    known = "overlay" in Path("/proc/filesystems").read_text()
    return None if known else "this kernel has no overlay file system"


NEEDS: dict[str, Callable[[], str | None]] = {
    "slurm": missing_slurm,
    "accounting": missing_accounting,
    "agent": missing_agent,
    "go": lambda: missing_program("go"),
    "packages": missing_packages,
    "python_packages": missing_python_packages,
    "browser": missing_browser,
    "root": missing_root,
    "go_126": missing_go_126,
    "overlay": missing_overlay,
    "zsh": lambda: missing_program("zsh"),
    "fish": lambda: missing_program("fish"),
    "prometheus": lambda: missing_program("prometheus", "promtool"),
    "openssl": lambda: missing_program("openssl"),
    "lintian": lambda: missing_program("lintian"),
    "systemd": lambda: missing_program("systemd-analyze"),
    "arm": lambda: missing_program("qemu-aarch64-static", "aarch64-linux-gnu-gcc"),
}


def need(what: str) -> None:
    """Skip the test where something is missing; with CI=true that is a failure."""
    why = NEEDS[what]()
    if why is None:
        return
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"CI needs {what}: {why}")
    pytest.skip(why)
