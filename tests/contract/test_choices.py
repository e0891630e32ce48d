"""A reader that has chosen what it needs of a sample: it sees that and no more, checked as ever."""

from typing import Any

import pytest
from goldens import bad, good

from heeler.bus import Choice, DecodeError, decode, decoder_for, encode
from heeler.detect import DetectStep

CHOICE = Choice(
    frozenset(("state", "min")),
    {"mean": frozenset(("power_w",)), "min": frozenset(("temp_c",)), "gpu": frozenset(("index",))},
)
CHOSEN = decoder_for({"JobSample": CHOICE})


def sample(**changes: Any) -> dict[str, Any]:
    made = {
        "v": 1, "cluster": "c", "node": "n1", "ts": 1, "boot": "b", "seq": 1, "window_ns": 1, "reads": 1,
        "gpu": {"uuid": ["GPU-a", "GPU-b"], "index": [0, 1], "minor": [0, 1]},
        "mean": {"power_w": [1.0, None], "temp_c": [2, 3]},
        "min": {"power_w": [1.0, 2.0], "temp_c": [2, 3]},
        "last": {"pstate": [0, 0]}, "absent": {"fan_ratio": "not_supported"}, "state": ["ok", None],
        "job": ["1", None], "jobs": {"1": {"user": "ada"}}, "shard": 3,
    }  # fmt: skip
    return {**made, **changes}


def test_only_what_was_chosen_and_what_every_reader_needs_is_there() -> None:
    found = CHOSEN("JobSample", encode("JobSample", sample()))
    assert found == {
        "v": 1, "cluster": "c", "node": "n1", "ts": 1, "boot": "b", "seq": 1, "window_ns": 1, "reads": 1,
        "gpu": {"uuid": ["GPU-a", "GPU-b"], "index": [0, 1]},
        "mean": {"power_w": [1.0, None]}, "min": {"temp_c": [2, 3]}, "last": {}, "state": ["ok", None],
        "job": ["1", None], "shard": 3,
    }  # fmt: skip


def test_what_was_chosen_may_be_absent_as_ever() -> None:
    bare = {key: value for key, value in sample(mean={}).items() if key not in ("state", "min")}
    found = CHOSEN("JobSample", encode("JobSample", bare))
    assert (found["mean"], found.keys() & {"state", "min"}) == ({}, set())


def test_kinds_without_a_choice_are_decoded_whole() -> None:
    data = {key: value for key, value in sample().items() if key not in ("job", "jobs", "shard")}
    assert CHOSEN("GpuSample", encode("GpuSample", data)) == decode("GpuSample", encode("GpuSample", data))


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"mean": {"power_w": [1.0]}}, True),
        ({"mean": {"power_w": [1.0, float("nan")]}}, True),
        ({"mean": {"power_w": [1.0, "2"]}}, True),
        ({"gpu": {"uuid": ["GPU-a", "GPU-b"], "index": [0]}}, True),
        ({"gpu": {"uuid": ["GPU-a", "GPU-a"]}}, True),
        ({"state": ["ok"]}, True),
        ({"mean": {"temp_c": [1.0]}}, False),
        ({"last": {"pstate": [0]}}, False),
        ({"absent": 7}, False),
    ],
)
def test_what_is_chosen_is_checked_and_what_is_not_is_not_looked_at(change: dict[str, Any], refused: bool) -> None:
    import msgpack

    payload = msgpack.packb(sample(**change))
    with pytest.raises(DecodeError):
        decode("JobSample", payload)
    if refused:
        with pytest.raises(DecodeError):
            CHOSEN("JobSample", payload)
    else:
        CHOSEN("JobSample", payload)


DETECT = decoder_for(DetectStep.choices)


def test_detect_reads_every_good_sample() -> None:
    for case, payload, _ in good("JobSample"):
        found, whole = DETECT("JobSample", payload), decode("JobSample", payload)
        for group in ("gpu", "mean", "last"):
            assert found[group].items() <= whole[group].items(), case
        assert found["job"] == whole["job"]


def test_detect_refuses_every_bad_sample_but_for_faults_in_what_it_does_not_read() -> None:
    """Those never reach it: enrich has checked the sample as a whole."""
    unread = {"column_length_last", "job_source_length", "jobs_not_maps", "nvlinks_not_lists"}
    accepted = set()
    for case, payload, _ in bad("JobSample"):
        try:
            DETECT("JobSample", payload)
        except DecodeError:
            continue
        accepted.add(case)
    assert accepted == unread
