"""The screen of `heeler top`: whole at every width, nothing obeyed, nothing unknown shown as a number."""

from typing import Any

import pytest
from consolekit import T0, S, finding, inbound, incident, job_event, node_state, sample

from heeler.cli.keys import names
from heeler.cli.top import Screen
from heeler.cli.topscreen import COLUMNS, VIEWS, Look, Status, chosen, fit, screen
from heeler.console.model import Model
from heeler.console.overview import SORTS, overview
from heeler.console.settings import ConsoleSettings

HOSTILE = "e\x1b[2Jvil\n節点\u202e" + "x" * 300


def seen(*messages: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    model = Model(ConsoleSettings())
    for kind, data in messages:
        model.on(inbound(kind, data))
    model.tick(T0 + 2 * S)
    return overview(model, T0 + 2 * S)


def shown(look: Look, found: dict[str, Any], width: int = 100, height: int = 30, **status: Any) -> list[str]:
    return [line.plain for line in screen(found, Status("nats://x", **status), look, width, height)]


FULL = seen(
    ("NodeState", node_state("n1", reason=HOSTILE)),
    ("JobEvent", job_event(name=HOSTILE, user=HOSTILE, partition=HOSTILE)),
    ("JobSample", sample("n1", state=["lost", "odd"] + ["ok"] * 6)),
    *(("JobSample", sample(f"n{n}", job=None)) for n in range(2, 60)),
    ("Finding", finding(summary=HOSTILE)),
)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), [(20, 6), (40, 10), (80, 24), (132, 50), (200, 40), (500, 5)])
def test_every_line_fits_whatever_others_wrote(view: str, width: int, height: int) -> None:
    lines = screen(FULL, Status("nats://x", away_s=7.0, unreadable=3), Look(view), width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert all(line.plain.isprintable() for line in lines)


def test_findings_of_one_cause_are_one_line_until_they_are_asked_for() -> None:
    some = [finding(f"f{n}", summary=f"port mlx5_0 of n{n} is down") for n in range(3)]
    found = seen(
        *(("Finding", one) for one in [*some, incident("i1", "f0", "f1", "f2"), finding("x", summary="other")])
    )
    lines = "\n".join(shown(Look("findings"), found, 140))
    assert "is down" not in lines
    assert "[3 findings] 3 nodes behind switch leaf1" in lines
    assert "findings 1 of 2 by" in lines
    open_ones = shown(Look("findings", unfold=True), found, 140)
    first = next(at for at, line in enumerate(open_ones) if "[3 findings]" in line)
    assert all("└ port mlx5_0 of" in line for line in open_ones[first + 1 : first + 4])
    assert "[3 findings] 3 nodes" in "\n".join(shown(Look(), found, 140))
    assert "findings 1 of 5 by" in open_ones[-1]
    assert {row["id"]: row["incident"] for row in found["finding_rows"]} == {
        "f0": "i1", "f1": "i1", "f2": "i1", "i1": None, "x": None,
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 200])
def test_the_columns_that_matter_most_stay(width: int) -> None:
    for name, columns in COLUMNS.items():
        kept = [one.head for one, _ in chosen(columns, width)]
        assert {"findings": "what", "jobs": "GPUs", "nodes": "Slurm"}[name] in kept
        assert sum(wide + 1 for _, wide in chosen(columns, width)) - 1 <= width
    assert len(chosen(COLUMNS["nodes"], 200)) == len(COLUMNS["nodes"])


def test_what_is_not_known_is_a_question_mark_and_never_zero() -> None:
    found = seen(("JobSample", sample("n1", mean={"util_ratio": None, "power_w": None, "temp_c": [None] * 8})))
    (row,) = [line for line in shown(Look("nodes"), found, 120) if line.startswith("n1 ")]
    assert row.split()[:6] == ["n1", "?", "8", "?", "90%", "?"]
    assert "? kW" in shown(Look(), found)[0]
    assert any("jobs ?" in line and "Slurm ?" in line for line in shown(Look(), found))


def test_gpus_that_are_lost_and_those_that_say_nothing_are_told_apart() -> None:
    (row,) = [line for line in shown(Look("nodes"), FULL, 120) if line.startswith("n1 ")]
    assert "8 (1 bad, 1 ?)" in row
    assert "1 bad, 1 ?" in shown(Look(), FULL)[0]


def test_a_bus_that_is_away_is_the_first_line() -> None:
    assert shown(Look(), FULL, away_s=75.0)[0].startswith(" THE BUS IS AWAY for 75s (nats://x): what is shown is old")
    assert "AWAY" not in "".join(shown(Look(), FULL))


def test_a_page_never_goes_beyond_the_last_line() -> None:
    look = Look("nodes", top=1 << 30)
    lines = shown(look, FULL, 80, 24)
    assert lines[-2].split()[0] == "n9"
    assert lines[-1].startswith("nodes 42 of 59 by trouble")


def test_all_tables_have_room_and_say_what_is_hidden() -> None:
    lines = shown(Look(), FULL, 120, 20)
    assert any(line.startswith("severity") for line in lines)
    assert any("more: key 4" in line for line in lines)
    empty = shown(Look(), seen(), 80, 24)
    assert [line.strip() for line in empty if line.strip().startswith("no ")] == [
        "no open finding", "no job is known", "no node is known",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(SORTS))
def test_rows_with_unknown_values_can_be_sorted_by_everything(name: str) -> None:
    found = seen(
        ("JobSample", sample("n1", mean={"util_ratio": None, "power_w": None, "temp_c": None})),
        ("JobSample", sample("n2", job="9")),
        ("NodeState", node_state("n3")),
        ("JobEvent", job_event("10", start_ts=None, user=None)),
        ("Finding", {key: value for key, value in finding("a").items() if key not in ("node", "job_id")}),
        ("Finding", finding("b")),
    )
    for at in range(len(SORTS[name])):
        for reverse in (False, True):
            assert len(shown(Look(name, {name: at}, reverse), found)) == 30


@pytest.mark.parametrize(
    ("text", "width", "right", "fitted"),
    [
        ("abc", 5, False, "abc  "),
        ("abc", 5, True, "  abc"),
        ("abcdef", 4, False, "abc…"),
        ("節点節点", 5, False, "節点…"),
        ("節点節点", 4, False, "節 …"),
        ("a\tb\x1b[", 6, False, "a?b?[ "),
        ("abc", 0, False, ""),
    ],
)
def test_a_cell_has_exactly_its_width(text: str, width: int, right: bool, fitted: str) -> None:
    assert fit(text, width, right=right) == fitted


def test_keys_have_names_and_unknown_escapes_are_skipped_whole() -> None:
    assert list(names("q\t\x1b[A\x1bOB\x1b[6~s")) == ["q", "tab", "up", "down", "pagedown", "s"]
    assert list(names("\x1b[200~q\x1b[1;5Cr\x1b")) == ["q", "r"]


def test_keys_change_the_view_the_order_and_the_place() -> None:
    of = Screen(Look())
    for key in ("tab", "tab"):
        of.press(key)
    assert of.look.view == "jobs"
    for key in ("4", "s", "s", "r", "down", "pagedown", "up"):
        of.press(key)
    assert (of.look.view, of.look.sort["nodes"], of.look.reverse, of.look.top) == ("nodes", 2, True, 16)
    for key in ("p", "h", "é", "9", "end"):
        of.press(key)
    assert (of.look.paused, of.look.help, of.look.top) == (True, True, 1 << 30)
    of.press("1")
    assert (of.look.view, of.look.top, of.look.reverse) == ("all", 0, False)
    of.press("q")
    assert of.stop.is_set()


def test_help_names_every_key() -> None:
    text = "\n".join(shown(Look(help=True), FULL, 120, 40))
    for word in ("quit", "sort", "reverse", "pause", "view", "page", "help", "not known"):
        assert word in text
