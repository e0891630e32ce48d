"""GRES and TRES strings of all spellings; each GPU counted once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import Gres, gpu_count, gpu_indices, parse_gres
from heeler.slurm.tres import parse_tres


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu:h100:8(S:0-1)", [Gres("gpu", 8, "h100", sockets="0-1")]),
        (
            "gpu:a100:5(IDX:0-3,5),gpu:v100:1(IDX:7)",
            [Gres("gpu", 5, "a100", (0, 1, 2, 3, 5)), Gres("gpu", 1, "v100", (7,))],
        ),
        ("gpu:a100:0(IDX:N/A)", [Gres("gpu", 0, "a100", ())]),
        ("gpu:0(IDX:N/A)", [Gres("gpu", 0, None, ())]),
        ("gpu:2", [Gres("gpu", 2)]),
        ("gres:gpu:2", [Gres("gpu", 2)]),
        ("gres/gpu:2", [Gres("gpu", 2)]),
        ("gres/gpu=2", [Gres("gpu", 2)]),
        ("gres/gpu:a100:2", [Gres("gpu", 2, "a100")]),
        ("gres/gpu:a100=2", [Gres("gpu", 2, "a100")]),
        ("gpu", [Gres("gpu", 1)]),
        ("gpu:a100", [Gres("gpu", 1, "a100")]),
        ("gpu:1g.10gb:4", [Gres("gpu", 4, "1g.10gb")]),
        ("gpu:nvidia_a100-sxm4-80gb:4(S:0,2-3)", [Gres("gpu", 4, "nvidia_a100-sxm4-80gb", sockets="0,2-3")]),
        ("gpu:h100:8(S:0-1)(IDX:0-7)", [Gres("gpu", 8, "h100", tuple(range(8)), "0-1")]),
        (
            "tmp:844G,gpu:v100:no_consume:4,nic:1",
            [Gres("tmp", 844 * 1024**3), Gres("gpu", 4, "v100", no_consume=True), Gres("nic", 1)],
        ),
        ("gpu:(null):8(IDX:0-7)", [Gres("gpu", 8, None, tuple(range(8)))]),
        ("gpu:(null):0(IDX:N/A)", [Gres("gpu", 0, None, ())]),
        ("gpu:3090:8(S:0)", [Gres("gpu", 8, "3090", sockets="0")]),
        ("gres/gpu:3090=2", [Gres("gpu", 2, "3090")]),
        ("gpu:4090", [Gres("gpu", 4090)]),
        ("gres:none", []),
        ("gpu:8,nvme:3.5T", [Gres("gpu", 8), Gres("nvme", 7 * 1024**4 // 2)]),
        ("GPU:h100:4,Shard:2", [Gres("gpu", 4, "h100"), Gres("shard", 2)]),
        ("craynetwork:4,gpu:2", [Gres("craynetwork", 4), Gres("gpu", 2)]),
    ],
)
def test_every_spelling_of_gres_is_read(text: str, wanted: list[Gres]) -> None:
    assert list(parse_gres(text)) == wanted


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:a100:5(IDX:0-3,5),gpu:v100:1(IDX:7)", 6),
        ("gpu:gb10:0(IDX:N/A),shard:gb10:40(0/80)", 0),
        ("tmp:844G,gpu:v100:no_consume:4,nic:1", 4),
        ("(null)", 0),
    ],
)
def test_only_whole_gpus_count(text: str, gpus: int) -> None:
    assert gpu_count(parse_gres(text)) == gpus


@pytest.mark.parametrize("text", ["(null)", "N/A", "", "none", None])
def test_no_gres_is_none_and_no_error(text: str | None) -> None:
    assert parse_gres(text) == ()


def test_a_count_that_contradicts_its_list_stands_and_is_marked() -> None:
    (found,) = parse_gres("gpu:a100:8(IDX:0-3,5)")
    assert (found.count, found.indices, found.mismatch) == (8, (0, 1, 2, 3, 5), True)
    assert gpu_indices([found]) is None, "which GPUs is not known then"


def test_shards_keep_their_use_by_gpu() -> None:
    gpu, shard = parse_gres("gpu:gb10:0(IDX:N/A),shard:gb10:40(0/80)")
    assert (gpu.count, gpu.indices) == (0, ())
    assert (shard.count, shard.use, shard.mismatch) == (40, ((0, 80),), True)
    assert not parse_gres("shard:gb10:40(30/80,10/80)")[0].mismatch


def test_a_list_of_shards_names_the_gpus_that_they_are_of() -> None:
    (found,) = parse_gres("shard:h100:3(IDX:0,2)")
    assert (found.count, found.indices, found.mismatch) == (3, (0, 2), False)
    assert parse_gres("shard:1(IDX:0,2)")[0].mismatch, "a shard is of one GPU"
    assert gpu_indices([found]) == (), "no GPU is had whole"


def test_indices_are_known_only_when_every_gpu_has_one() -> None:
    assert gpu_indices(parse_gres("gpu:a100:2(IDX:4-5),gpu:v100:1(IDX:0)")) == (0, 4, 5)
    assert gpu_indices(parse_gres("gpu:a100:2(IDX:4-5),gpu:v100:1")) is None
    assert gpu_indices(parse_gres("gpu:a100:0(IDX:N/A)")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "gpu:a100:(IDX:0",
        "gpu)8(",
        "gpu:8(IDX:3-1)",
        "gpu:8(IDX:0-99999)",
        "gpu:8(what)",
        "gpu:a:b:c:8",
        ":8",
        "8",
        "gpu:-1",
        "gpu:1.5",
        "gpu:99999999999999999999",
        "gpu:8(IDX:0-7)x",
        "gpu:8 (IDX:0-7",
        "a b:2",
    ],
)
def test_what_is_no_gres_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_gres(text)


@given(st.text("gpu:a1,()IDXSN/-=0G. ", max_size=40) | st.text(max_size=20))
def test_any_text_gives_gres_or_a_parse_error(text: str) -> None:
    try:
        found = parse_gres(text)
    except ParseError:
        return
    assert gpu_count(found) >= 0


def test_gpus_with_and_without_type_are_counted_once() -> None:
    found = parse_tres("cpu=64,mem=500G,node=2,billing=64,gres/gpu:h100=16,gres/gpu=16")
    assert (found.gpus, found.gpus_by_type) == (16, {"h100": 16})
    assert (found.cpus, found.nodes, found.mem_bytes) == (64, 2, 536870912000)
    assert parse_tres("gres/gpu:h100=4").gpus == 4
    assert parse_tres("gres/gpu:h100=4,gres/gpu:a100=2").gpus == 6
    assert parse_tres("gres/gpu:h100=4,gres/gpu=2").mismatch


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("mem=2000000M", 2000000 * 1024**2),
        ("mem=10.5G", int(10.5 * 1024**3)),
        ("mem=1T", 1024**4),
        ("mem=512K", 512 * 1024),
        ("mem=100", 100 * 1024**2),
        ("cpu=1", None),
    ],
)
def test_memory_is_in_bytes(text: str, size: int | None) -> None:
    assert parse_tres(text).mem_bytes == size


@pytest.mark.parametrize(
    "text", ["gpu:2", "gres:gpu:2", "gres/gpu:2", "gres/gpu=2", "gres/gpu:a100:2", "gres/gpu:a100=2"]
)
def test_a_request_counts_the_same_in_all_versions(text: str) -> None:
    found = parse_tres(text)
    assert (found.gpus, found.gpus_by_type) == (2, {"a100": 2} if "a100" in text else {})


def test_what_is_not_set_has_no_amount_and_licences_have_servers() -> None:
    found = parse_tres("cpu=2,energy=18446744073709551614,license/matlab@db.example.org=3")
    assert found.values == {"cpu": 2, "license/matlab@db.example.org": 3}


@pytest.mark.parametrize(
    "text", ["cpu=64,gres/gpu:2", "gres/gpu:h10+", "gres/gpu:h100", "gres/gpu", "cpu:4", "cpu=64,gres/gpu:h1+"]
)
def test_a_text_that_was_cut_is_no_request(text: str) -> None:
    with pytest.raises(ParseError):
        parse_tres(text)


@pytest.mark.parametrize("text", ["", "(null)", "N/A", None])
def test_no_tres_has_nothing(text: str | None) -> None:
    assert parse_tres(text).values == {}


@pytest.mark.parametrize(
    "text", ["cpu", "cpu=", "=4", "cpu=x", "cpu=-1", "mem=5X", "cpu=4,,mem=1G", "mem=99999999999E"]
)
def test_what_is_no_tres_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_tres(text)


@given(st.text("cpumemgres/=:0159.GM,h", max_size=40))
def test_any_text_gives_tres_or_a_parse_error(text: str) -> None:
    try:
        found = parse_tres(text)
    except ParseError:
        return
    assert found.gpus >= 0
