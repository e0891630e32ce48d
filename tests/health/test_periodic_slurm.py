"""HealthCheckProgram and TaskProlog on a real Slurm: a bad node is told, and drained only where the policy says so."""

from collections.abc import Iterator

import pytest
from natsserver import wait_for
from needs import need
from slurmhealth import HealthSite
from slurmsandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
OPERATOR = "ADMIN: psu swap, do not touch"
BAD_CHECK = "site_check"

# A site's own check, of an entry point in real life: here a file says what it finds.
PLUGIN = """
from pathlib import Path
from heeler.health.model import Check, Probe, bad, ok


def read(context, asked):
    return Path({path!r}, context.case.node, "fault").exists()


CHECKS = (Check("site_check", "A fault that a test makes.", Probe("site_check", read), lambda facts, _settings, _case:
    bad("there is a fault: see the file") if facts else ok("no fault"), hardware=True),)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthSite]:
    need("slurm")
    folder = tmp_path_factory.mktemp("site")
    settings = HealthSite.settings(folder, check_every_s=6) | {"PrologEpilogTimeout": "60"}
    sandbox = Sandbox(nodes=2, gpus=2, settings=settings)
    made = HealthSite(folder, sandbox)
    made.plugin("site", PLUGIN.format(path=str(folder)))
    try:
        sandbox.start()
        yield made
    finally:
        sandbox.stop()


@pytest.fixture
def site(cluster: HealthSite) -> HealthSite:
    for node in cluster.slurm.names:
        (cluster.folder / node / "fault").unlink(missing_ok=True)
    cluster.reset()
    cluster.slurm.reset()
    return cluster


def policy(site: HealthSite, node: str, text: str = "") -> None:
    """Run the site's check in every phase, and find Slurm: HealthCheckProgram is not told where it is."""
    profiles = "".join(f'[profiles.{phase}]\nchecks = ["{BAD_CHECK}"]\n' for phase in ("periodic", "task_prolog"))
    site.policy(node, f'plugins = ["site"]\n{profiles}[slurm]\nconf = "{site.slurm.conf}"\n{text}')


def checked_again(site: HealthSite, node: str) -> dict[str, object]:
    before = len([one for one in site.sent(node, "HealthRun") if one["phase"] == "periodic"])
    wait_for(
        lambda: len([one for one in site.sent(node, "HealthRun") if one["phase"] == "periodic"]) > before,
        f"{node} is checked again",
    )
    return site.run_of(node, "periodic")


def test_a_healthy_node_is_told_to_be(site: HealthSite) -> None:
    policy(site, "n001")
    assert checked_again(site, "n001")["verdict"] == "pass"


def test_a_bad_node_is_told_and_not_drained_by_default(site: HealthSite) -> None:
    policy(site, "n001")
    (site.folder / "n001/fault").touch()
    run = checked_again(site, "n001")
    assert (run["verdict"], run["failed"]) == ("fail", [BAD_CHECK])
    assert "reason" not in run
    checked_again(site, "n001")
    assert "DRAIN" not in site.slurm.node("n001").flags


def test_a_bad_node_is_drained_where_the_policy_says_so_and_no_other(site: HealthSite) -> None:
    policy(site, "n001", f'[checks.{BAD_CHECK}]\nenforce = ["periodic"]\n')
    policy(site, "n002", f'[checks.{BAD_CHECK}]\nenforce = ["periodic"]\n')
    (site.folder / "n001/fault").touch()
    run = checked_again(site, "n001")
    checked_again(site, "n002")
    node = site.slurm.node("n001")
    assert "DRAIN" in node.flags
    assert node.reason == f"heeler:periodic:{BAD_CHECK}: there is a fault: see the file"
    assert run["reason"] == node.reason
    assert "DRAIN" not in site.slurm.node("n002").flags
    # The next run finds its own drain and leaves it alone.
    assert "drains already" in str(checked_again(site, "n001")["why"])
    # Nothing gives a node back but a person or the drainer.
    (site.folder / "n001/fault").unlink()
    assert checked_again(site, "n001")["verdict"] == "pass"
    assert site.slurm.node("n001").reason == node.reason


def test_what_may_heal_drains_only_after_it_was_bad_for_long_enough(site: HealthSite) -> None:
    policy(site, "n001", f'[checks.{BAD_CHECK}]\nenforce = ["periodic"]\nhold_s = 8\n')
    (site.folder / "n001/held.json").unlink(missing_ok=True)
    (site.folder / "n001/fault").touch()
    first = checked_again(site, "n001")
    assert first["verdict"] == "fail"
    assert "a drain waits for 8 s" in str(first["why"])
    assert "DRAIN" not in site.slurm.node("n001").flags
    (site.folder / "n001/fault").unlink()  # it heals, and comes again later
    assert checked_again(site, "n001")["verdict"] == "pass"
    (site.folder / "n001/fault").touch()
    wait_for(lambda: "DRAIN" in site.slurm.node("n001").flags, "n001 drains", 60.0)

    def runs() -> list[dict[str, object]]:
        return [one for one in site.sent("n001", "HealthRun") if one["phase"] == "periodic"]

    # The reason stands on the node before the run that has set it ends and tells.
    wait_for(lambda: any("reason" in one for one in runs()), "the run that drains has reported")
    waited = [one for one in runs() if "a drain waits for" in str(one["why"])]
    assert len(waited) >= 2, "once before it healed, and once after"
    assert not [one for one in waited if "reason" in one]


def test_an_operators_drain_stays_theirs(site: HealthSite) -> None:
    policy(site, "n001", f'[checks.{BAD_CHECK}]\nenforce = ["periodic"]\n')
    site.slurm.drain("n001", OPERATOR)
    before = site.slurm.node("n001")
    (site.folder / "n001/fault").touch()
    assert "psu swap" in str(checked_again(site, "n001")["why"])
    (site.folder / "n001/fault").unlink()
    checked_again(site, "n001")
    after = site.slurm.node("n001")
    assert (after.reason, after.reason_user, after.reason_ts_ns) == (OPERATOR, before.reason_user, before.reason_ts_ns)
    assert "DRAIN" in after.flags


def test_an_open_breaker_keeps_periodic_runs_from_draining(site: HealthSite) -> None:
    policy(site, "n001", f'[checks.{BAD_CHECK}]\nenforce = ["periodic"]\n')
    site.breaker("n001", "open")
    (site.folder / "n001/fault").touch()
    assert checked_again(site, "n001")["verdict"] == "fail"
    assert "DRAIN" not in site.slurm.node("n001").flags


def test_a_task_is_told_of_a_fault_in_its_own_output_and_runs(site: HealthSite) -> None:
    policy(site, "n001")
    (site.folder / "n001/fault").touch()
    job = site.slurm.submit("srun sh -c 'echo value=$VALUE; exit 0'", "-w", "n001")
    site.slurm.wait_job(job, "COMPLETED")
    out = (site.slurm.folder / f"jobs/{job}.out").read_text()
    assert f"heeler: {BAD_CHECK}: there is a fault: see the file" in out
    assert "value=\n" in out
    told = [*site.sent("n001", "HealthRun"), *site.sent("n001", "HealthResult")]
    assert not [one for one in told if one["phase"] == "task_prolog"], "what users run tells the bus nothing"


def test_a_task_of_a_healthy_node_hears_nothing(site: HealthSite) -> None:
    policy(site, "n001")
    job = site.slurm.submit("srun echo hello", "-w", "n001")
    site.slurm.wait_job(job, "COMPLETED")
    assert (site.slurm.folder / f"jobs/{job}.out").read_text() == "hello\n"
