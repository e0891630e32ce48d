"""Settings: every fault at once, and no typo unseen."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heeler.bus import BusSettings, ConfigError
from heeler.engine import config


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Section:
    count: int = 3
    wait_s: float = 1.0
    path: str | None = None
    names: tuple[str, ...] = ()
    inner: tuple[Inner, ...] = ()
    table: dict[str, float] = field(default_factory=dict)

    def validate(self) -> None:
        if self.count < 0:
            raise ConfigError(f"count: {self.count}: below 0")


def load(**section: Any) -> Section:
    made = config.load({"x": section}, {"x": Section})["x"]
    assert isinstance(made, Section)
    return made


def test_defaults_stand_where_nothing_is_said() -> None:
    assert load() == Section()


def test_values_take_the_type_of_their_field() -> None:
    made = load(wait_s=2, path="p", names=["a"], inner=[{"name": "n", "ratio": 1}], table={"k": 1})
    assert made == Section(wait_s=2.0, path="p", names=("a",), inner=(Inner("n", 1.0),), table={"k": 1.0})


def test_all_faults_are_said_at_once_with_their_place() -> None:
    with pytest.raises(ConfigError) as faults:
        config.load(
            {
                "x": {
                    "cuont": 1,
                    "wait_s": "soon",
                    "names": "a",
                    "inner": [{"ratio": 1}, {"name": 3}],
                    "table": {"k": ""},
                },
                "y": {},
            },
            {"x": Section},
        )
    assert str(faults.value).split("; ") == [
        "y: unknown section",
        "x.cuont: unknown key",
        "x.wait_s: 'soon' is not float",
        "x.names: not a list",
        "x.inner[0].name: missing",
        "x.inner[1].name: 3 is not str",
        "x.table.k: '' is not float",
    ]


def test_a_bool_is_no_number() -> None:
    with pytest.raises(ConfigError, match=r"x\.count: True is not int"):
        load(count=True)


def test_a_section_looks_at_itself_once_its_types_are_right() -> None:
    with pytest.raises(ConfigError, match=r"x\.count: -1: below 0"):
        load(count=-1)


@pytest.mark.parametrize(("text", "fault"), [("[x", "x.toml"), (b"\xff\xfe", "x.toml")])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str | bytes, fault: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=fault):
        config.read_toml(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="/no/such/file: No such file"):
        config.read_toml("/no/such/file")


def test_the_environment_goes_first_for_the_bus() -> None:
    env = {"HEELER_NATS_URL": "nats://a:1, nats://b:2", "HEELER_CLUSTER": "north"}
    made = BusSettings.load({"cluster": "south"}, env)
    assert made.servers == ("nats://a:1", "nats://b:2")
    assert made.cluster == "north"


def test_faults_of_the_bus_are_said_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as faults:
        BusSettings.load({"servers": [], "creds": "/no/creds", "cert": "/no/cert"}, {})
    assert {fault.partition(":")[0] for fault in str(faults.value).split("; ")} >= {
        "bus.servers", "bus.creds", "bus.cert",
    }  # fmt: skip
