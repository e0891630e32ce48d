"""A site's policy: typed, every fault at once, groups of nodes over the rest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heeler.bus import ConfigError
from heeler.health.judging import Result
from heeler.health.model import Case, Check, Outcome, Phase, Probe, Verdict, ok
from heeler.health.policy import Policy, Profile, make_policy, plugins_of, read_policy


@dataclass(frozen=True, slots=True)
class CountSettings:
    expected: int = 8
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountSettings:
    mounts: tuple[str, ...]


def fine(_facts: Any, _settings: Any, _case: Case) -> Verdict:
    return ok("fine")


PROBE = Probe("p", lambda _context, _asked: 1)
CHECKS = (
    Check("count", "Counts.", PROBE, fine, CountSettings, hardware=True),
    Check("mounts", "Mounts.", PROBE, fine, MountSettings, needs_settings=True),
    Check("plain", "Plain.", PROBE, fine),
)
PROFILES = {"prolog": Profile(("count", "plain")), "periodic": Profile(("count",))}


def policy(table: dict[str, Any], node: str = "n001") -> Policy:
    return make_policy(table, node, CHECKS, PROFILES)


def faults(table: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        policy(table)
    return str(caught.value).split("; ")


def test_without_a_file_the_defaults_hold_and_nothing_is_enforced(tmp_path: Path) -> None:
    found = policy(read_policy(tmp_path / "none.toml"))
    run, without = found.chosen(["prolog"])
    assert [one.check.name for one in run] == ["count", "plain"]
    assert run[0].settings == CountSettings()
    assert without == []
    assert not any(found.enforces(check.name, phase) for check in CHECKS for phase in Phase)


def test_settings_and_meanings_of_a_check() -> None:
    found = policy({"checks": {"count": {"expected": 4, "on_unknown": "warn", "enforce": ["prolog"]}}})
    assert found.rules["count"].settings == CountSettings(4)
    assert found.enforces("count", Phase.PROLOG)
    assert not found.enforces("count", Phase.EPILOG)
    unknown = Result(CHECKS[0], Verdict(Outcome.UNKNOWN, "?"))
    assert found.action(unknown) == "warn"
    assert policy({}).action(unknown) == "unknown"


def test_enforce_true_is_prolog_and_epilog() -> None:
    found = policy({"checks": {"count": {"enforce": True}}})
    assert found.rules["count"].enforce == {Phase.PROLOG, Phase.EPILOG}


def test_all_faults_are_told_at_once() -> None:
    told = faults(
        {
            "clutser": "x",
            "checks": {"count": {"expekted": 4, "on_bad": "drain", "enforce": ["always"]}, "cuont": {}},
            "profiles": {"prolog": {"checks": ["nothing"]}},
            "request": ["rm"],
        }
    )
    assert told == [
        "clutser: unknown key",
        "checks.count.on_bad: 'drain': one of fail, warn, unknown, ignore",
        "checks.count.expekted: unknown key",
        "checks.count.enforce: ['always']: a list of prolog, epilog and periodic",
        "checks.cuont: no such check",
        "profiles.prolog: no such check: nothing",
        "request: no such check or profile: rm",
    ]


@pytest.mark.parametrize(
    "table",
    [
        {"checks": []},
        {"checks": {"count": 3}},
        {"checks": {"count": {"expected": "8"}}},
        {"checks": {"count": {"enabled": "no"}}},
        {"checks": {"count": {"timeout_s": "soon"}}},
        {"profiles": {"prolog": {"timeout_s": 0}}},
        {"groups": {"nodes": "n1"}},
        {"groups": [{"checks": {}}]},
        {"groups": [{"nodes": "n[1-", "checks": {}}]},
        {"groups": [{"nodes": "n1", "chekcs": {}}]},
        {"plugins": "mine"},
        {"outbox": 3},
        {"cluster": ""},
    ],
)
def test_what_is_not_right_is_refused(table: dict[str, Any]) -> None:
    assert faults(table)


def test_a_check_that_means_nothing_without_settings_is_off_until_it_has_some() -> None:
    run, without = policy({}).chosen(["mounts"])
    assert (run, [check.name for check in without]) == ([], ["mounts"])
    run, without = policy({"checks": {"mounts": {"mounts": ["/data"]}}}).chosen(["mounts"])
    assert run[0].settings == MountSettings(("/data",))
    assert faults({"checks": {"mounts": {"on_bad": "warn"}}}) == ["checks.mounts.mounts: missing"]


def test_a_check_that_is_switched_off_is_off_and_not_ok() -> None:
    run, without = policy({"checks": {"plain": {"enabled": False}}}).chosen(["prolog"])
    assert [one.check.name for one in run] == ["count"]
    assert [check.name for check in without] == ["plain"]


def test_groups_of_nodes_go_over_the_rest_the_last_one_first() -> None:
    table = {
        "checks": {"count": {"expected": 8, "names": ["a"]}},
        "groups": [
            {"nodes": "n[001-004]", "checks": {"count": {"expected": 4}}},
            {"nodes": "n[004-005]", "checks": {"count": {"expected": 2}}},
        ],
    }
    expected = {"n001": 4, "n004": 2, "n005": 2, "n006": 8, "n01": 8}
    for node, count in expected.items():
        assert policy(table, node).rules["count"].settings == CountSettings(count, ("a",))


def test_names_and_profiles_mix_and_each_check_runs_once() -> None:
    run, _ = policy({}).chosen(["plain", "prolog", "count"])
    assert [one.check.name for one in run] == ["plain", "count"]
    with pytest.raises(ConfigError, match="no check or profile 'rm'"):
        policy({}).chosen(["rm"])


def test_what_may_be_asked_for_is_the_periodic_profile_unless_said_otherwise() -> None:
    assert policy({}).request == ("periodic", "count")
    assert policy({"request": ["plain"]}).request == ("plain",)


def test_the_digest_tells_two_policies_apart() -> None:
    assert policy({}).digest == policy({}).digest != policy({"cluster": "north"}).digest


def test_a_file_that_is_no_toml_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "health.toml"
    path.write_bytes(b"checks = [\xff")
    with pytest.raises(ConfigError, match=r"health\.toml"):
        read_policy(path)


def test_plug_ins_are_named_as_texts() -> None:
    assert plugins_of({"plugins": ["mine", 3]}) == ("mine",)
    assert plugins_of({"plugins": 3}) == plugins_of({}) == ()
