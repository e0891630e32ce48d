"""The life of a finding: one id from the first word to the last, whoever says it."""

from typing import Any

from samples import T0, S

from heeler.bus import check
from heeler.detect.findings import Book, Draft, duration, finding_id, of_jobs
from heeler.engine import Event


def draft(**more: Any) -> Draft:
    values: dict[str, Any] = {
        "kind": "gpu_lag",
        "ident": "GPU-1",
        "entity": {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-1"},
        "severity": "warning",
        "confidence": 0.9,
        "advice": "observe",
        "cause": "thermal_slowdown",
        "summary": "GPU 1 is slow.",
        "first_ts": T0,
        "data_ts": T0 + S,
        "evidence": [],
        "jobs": ["7"],
    }
    return Draft(**(values | more))


def book() -> Book:
    made = Book(30.0)
    made.cluster = "test"
    return made


def data(event: Event) -> dict[str, Any]:
    assert not isinstance(event.data, bytes)
    return check("Finding", dict(event.data))


KEY = draft().key


def test_a_finding_is_opened_said_again_and_closed_under_one_id() -> None:
    b = book()
    (opened,) = b.report(draft(), T0 + S)
    assert not b.report(draft(), T0 + 2 * S)
    (updated,) = b.report(draft(), T0 + 31 * S)
    (closed,) = b.close(KEY, T0 + 40 * S, "healthy")
    assert [data(e)["state"] for e in (opened, updated, closed)] == ["open", "update", "closed"]
    assert len({data(e)["id"] for e in (opened, updated, closed)}) == 1
    assert len({e.id for e in (opened, updated, closed)}) == 3
    assert opened.subject == updated.subject == closed.subject
    assert data(closed)["close_reason"] == "healthy"
    assert b.get(KEY) is None


def test_ids_follow_from_what_and_when() -> None:
    assert finding_id(draft()) == finding_id(draft(summary="other", confidence=0.1))
    assert len({finding_id(d) for d in (draft(), draft(ident="GPU-2"), draft(kind="xid"), draft(first_ts=T0 + S))}) == 4


def test_twins_of_two_instances_have_the_same_ids() -> None:
    one, two = book(), book()
    for now in (T0 + S, T0 + 31 * S, T0 + 65 * S):
        assert [e.id for e in one.report(draft(), now)] == [e.id for e in two.report(draft(), now)]


def test_a_change_that_matters_is_said_at_once() -> None:
    b = book()
    b.report(draft(), T0 + S)
    (changed,) = b.report(draft(advice="drain_after_job"), T0 + 2 * S)
    assert data(changed)["advice"] == "drain_after_job"
    assert not b.report(draft(advice="drain_after_job", summary="more"), T0 + 3 * S)


def test_what_is_open_is_confirmed_by_time_alone() -> None:
    b = book()
    b.report(draft(), T0 + S)
    said = [e for at in range(2, 300, 5) for e in b.confirm(T0 + at * S)]
    stamps = [data(e)["ts"] for e in said]
    assert max(b - a for a, b in zip([T0 + S, *stamps], stamps, strict=False)) <= 35 * S


def test_an_instance_that_reads_a_finding_back_keeps_its_id_and_beginning() -> None:
    (opened,) = book().report(draft(), T0 + S)
    fresh = book()
    assert not fresh.adopt(data(opened))
    (updated,) = fresh.report(draft(first_ts=T0 + 100 * S), T0 + 200 * S)
    assert (data(updated)["id"], data(updated)["first_ts"]) == (data(opened)["id"], T0)
    (closed,) = fresh.close(KEY, T0 + 300 * S, "healthy")
    assert data(closed)["id"] == data(opened)["id"]


def test_history_that_is_read_again_is_not_said_again() -> None:
    (opened,) = book().report(draft(), T0 + 100 * S)
    fresh = book()
    fresh.adopt(data(opened))
    assert not fresh.report(draft(advice="none"), T0 + 50 * S)
    known = fresh.get(KEY)
    assert known is not None
    assert known.message["advice"] == "observe"


def test_a_leaders_id_replaces_ours() -> None:
    ours, theirs = book(), book()
    ours.report(draft(first_ts=T0 + 10 * S), T0 + 20 * S)
    (opened,) = theirs.report(draft(), T0 + 20 * S)
    assert not ours.adopt(data(opened))
    (updated,) = ours.report(draft(), T0 + 60 * S)
    assert data(updated)["id"] == data(opened)["id"]


def test_of_two_ids_on_the_bus_the_older_stays_and_the_other_is_closed() -> None:
    b = book()
    (older,) = book().report(draft(), T0 + S)
    (newer,) = book().report(draft(first_ts=T0 + 5 * S), T0 + 6 * S)
    b.adopt(data(newer))
    (closed,) = b.adopt(data(older))
    assert (data(closed)["id"], data(closed)["state"]) == (data(newer)["id"], "closed")
    known = b.get(KEY)
    assert known is not None
    assert known.id == data(older)["id"]


def test_a_close_is_said_until_it_is_read_back() -> None:
    b = book()
    (opened,) = b.report(draft(), T0 + S)
    b.adopt(data(opened))
    (closed,) = b.close(KEY, T0 + 40 * S, "healthy")
    again = [e for at in range(45, 200, 5) for e in b.confirm(T0 + at * S)]
    assert {e.id for e in again} == {closed.id}
    b.adopt(data(closed))
    assert not [e for at in range(200, 400, 5) for e in b.confirm(T0 + at * S)]


def test_a_close_survives_hours_of_history_in_which_nobody_could_say_it() -> None:
    b = book()
    (opened,) = b.report(draft(), T0 + S)
    b.adopt(data(opened))
    (closed,) = b.close(KEY, T0 + 40 * S, "healthy")
    for at in range(60, 7200, 30):
        b.confirm(T0 + at * S)
    assert [e.id for e in b.confirm(T0 + 7230 * S)] == [closed.id]


def test_a_leaders_close_is_ours_too() -> None:
    leader, b = book(), book()
    (opened,) = leader.report(draft(), T0 + S)
    b.adopt(data(opened))
    leader.adopt(data(opened))
    (closed,) = leader.close(KEY, T0 + 40 * S, "healthy")
    b.adopt(data(closed))
    assert b.get(KEY) is None
    assert b.closed_ns(KEY) == T0 + 40 * S


def test_an_old_word_of_a_finding_that_is_closed_does_not_open_it() -> None:
    b = book()
    (opened,) = b.report(draft(), T0 + S)
    b.close(KEY, T0 + 40 * S, "healthy")
    b.adopt(data(opened))
    assert b.get(KEY) is None


def test_every_message_fits_the_contract() -> None:
    b = book()
    full = draft(code=79, count=3, evidence=[{"metric": "x", "value": 1.5, "unit": "1"}] * 99, confidence=0.123)
    (event,) = b.report(full, T0)
    assert len(data(event)["evidence"]) <= 40
    assert data(event)["confidence"] == 0.12


def test_durations_and_jobs_in_words() -> None:
    assert [duration(s * S) for s in (45, 840, 12_600, 200_000)] == ["45 s", "14 min", "3.5 h", "2.3 days"]
    assert of_jobs([]) == ""
    assert of_jobs(["1"]) == "; job 1"
    assert of_jobs([str(n) for n in range(6)]) == "; jobs 0, 1, 2, 3 and 2 more"
