"""A job's row of JSON as a struct of the fields that are read: msgspec skips all others."""

from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec


class Host(msgspec.Struct, gc=False):
    """A node of a job's allocation."""

    name: str | None = None
    nodename: str | None = None


class Hosts(msgspec.Struct, gc=False):
    """A job's nodes, as newer versions have them."""

    whole: Any = None
    allocation: list[Host] = []


class Resources(msgspec.Struct, gc=False):
    """A job's resources without the cores of its nodes, of which there may be thousands."""

    nodes: Hosts | str | None = None
    allocated_nodes: list[Host] | None = None


class Number(msgspec.Struct, gc=False):
    """A number as newer versions write it: nine of ten values of a row are such objects."""

    set: bool | None = None
    infinite: bool | None = None
    number: int | float | msgspec.UnsetType | None = msgspec.UNSET


class Signal(msgspec.Struct, gc=False):
    """What ended a job."""

    id: "Numeric" = None
    signal_id: "Numeric" = None


class ExitCode(msgspec.Struct, gc=False):
    """How a job ended, as newer versions write it."""

    return_code: "Numeric" = None
    signal: Signal | None = None


Numeric = Number | int | float | str | bool | None
Text = str | None


class JobRow(msgspec.Struct, gc=False):
    """The fields of a job that are read, about in the order in which Slurm writes them, which is how they are found.

    Their types differ between versions. A row with any other type is read as a map.
    """

    account: Text = None
    accrue_time: Numeric = None
    admin_comment: Text = None
    array_job_id: Numeric = None
    array_task_id: Numeric = None
    array_max_tasks: Numeric = None
    array_task_string: Text = None
    batch_flag: Any = None
    batch_host: Text = None
    command: Text = None
    comment: Any = None
    container: Text = None
    cpus_per_task: Numeric = None
    deadline: Numeric = None
    dependency: Text = None
    eligible_time: Numeric = None
    end_time: Numeric = None
    excluded_nodes: Text = None
    exit_code: ExitCode | int | float | str | bool | None = None
    failed_node: Text = None
    features: Text = None
    gres_detail: Any = None
    group_name: Text = None
    het_job_id: Numeric = None
    het_job_offset: Numeric = None
    job_id: Numeric = None
    job_resources: Resources | None = None
    job_state: Any = None
    last_sched_evaluation: Numeric = None
    licenses: Text = None
    name: Text = None
    nodes: Text = None
    nice: Numeric = None
    cpus: Numeric = None
    node_count: Numeric = None
    tasks: Numeric = None
    partition: Text = None
    memory_per_cpu: Numeric = None
    memory_per_node: Numeric = None
    minimum_cpus_per_node: Numeric = None
    minimum_tmp_disk_per_node: Numeric = None
    preempt_time: Numeric = None
    pre_sus_time: Numeric = None
    hold: Any = None
    priority: Numeric = None
    qos: Text = None
    required_nodes: Text = None
    requeue: Any = None
    restart_cnt: Numeric = None
    resv_name: Text = None
    scheduled_nodes: Text = None
    shared: Any = None
    start_time: Numeric = None
    state_description: Text = None
    state_reason: Text = None
    submit_time: Numeric = None
    suspend_time: Numeric = None
    system_comment: Text = None
    time_limit: Numeric = None
    tres_per_job: Text = None
    tres_per_node: Text = None
    tres_per_socket: Text = None
    tres_per_task: Text = None
    tres_req_str: Text = None
    tres_alloc_str: Text = None
    user_id: Numeric = None
    user_name: Text = None
    wckey: Text = None
    current_working_directory: Text = None

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return a field, as a map would."""
        value = getattr(self, key, default)
        return plain(value) if type(value) is Number else value


_rows = msgspec.json.Decoder(list[JobRow])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_row = msgspec.json.Decoder(JobRow)
_UNSET = msgspec.UNSET


def decode_rows(data: memoryview | bytes) -> Sequence[Any]:
    """Return the rows of a JSON list: structs, or what they are where they have fields of a kind that is not known.

    Raises msgspec.DecodeError or UnicodeDecodeError for what msgspec can't read.
    """
    try:
        return _rows.decode(data)
    except msgspec.ValidationError:
        return [_decoded(row) for row in _raws.decode(bytes(data))]


def _decoded(row: msgspec.Raw) -> Any:
    try:
        return _row.decode(row)
    except msgspec.ValidationError:
        return msgspec.json.decode(row)


def plain(value: Number) -> Any:
    """Return a number, None for one that is not set, or the map that `jsonnumbers` reads or refuses."""
    if value.set is True and value.infinite is False and type(value.number) is int:
        return value.number
    if value.infinite is True:
        return inf
    if value.set is False:
        return None
    return {name: one for name, one in msgspec.structs.asdict(value).items() if one is not msgspec.UNSET}


def plain_all(values: Sequence[Any]) -> Sequence[Any]:
    """Return values with numbers in the place of the objects that hold them."""
    types = set(map(type, values))
    if Number not in types:
        return values
    if len(types) == 1:
        return [
            one.number if one.set is True and one.infinite is False and one.number is not _UNSET else plain(one)
            for one in values
        ]
    return [plain(value) if type(value) is Number else value for value in values]
