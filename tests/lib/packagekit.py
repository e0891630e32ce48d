"""What tests of packages share: what was built, and a machine on which it can be installed."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"


def run(*command: str | Path, **options: object) -> str:
    """Run a command that must succeed; return what it says."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert isinstance(done.stdout, str)
    return done.stdout


def package(name: str, kind: str, architecture: str) -> Path:
    """Return the one package of a kind."""
    found = [path for path in DIST.glob(f"{name}*.{kind}") if architecture in path.name]
    assert len(found) == 1, f"{name}.{kind} for {architecture}: {found}"
    return found[0]


@contextmanager
def overlaid(folder: Path) -> Iterator[Path]:
    """Give a machine like this one, in which nothing that happens stays: a root file system laid over our own."""
    folders = [folder / name for name in ("over", "work", "root")]
    for each in folders:
        each.mkdir()
    over, work, root = folders
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={over},workdir={work}", root)
    try:
        run("mount", "-t", "proc", "proc", root / "proc")
        run("mount", "--bind", "/dev", root / "dev")
        yield root
    finally:
        for mount in (root / "dev", root / "proc", root):
            subprocess.run(["umount", "-l", mount], check=False)
