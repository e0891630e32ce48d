"""From ClusterState to data points: whether Slurm answers, and how old what is known of it is."""

from collections.abc import Mapping
from typing import Any, Final

from heeler.otlp.names import NS, Metric
from heeler.otlp.names_tables import ABOUT, states
from heeler.otlp.points import Number, Points, scaled

Data = Mapping[str, Any]

STATE: Final = states(
    "heeler.slurm.controller.state",
    "heeler.slurm.controller",
    ("up", "down", "unknown"),
    "Whether Slurm's controller answered the last questions for jobs and nodes: 1 for what holds, 0 for the others.",
)
NUMBERS: Final[Mapping[str, Metric]] = {
    "last_success_ts": Metric("heeler.slurm.controller.last_success", "s", scale=NS),
    "jobs": Metric("heeler.slurm.controller.jobs", "{job}", integer=True),
    "nodes": Metric("heeler.slurm.controller.nodes", "{node}", integer=True),
    "duration_ns": Metric("heeler.slurm.controller.poll.duration", "s", scale=NS),
}
OUTAGES: Final = Metric("heeler.slurm.outages", "{question}", integer=True)
UNREADABLE: Final = Metric("heeler.slurm.unreadable", "{row}", integer=True)
ABOUT.update(
    {
        NUMBERS["last_success_ts"].name: "The last complete answer for jobs and nodes, since the epoch.",
        NUMBERS["jobs"].name: "Jobs that hold resources, in the last complete answer.",
        NUMBERS["nodes"].name: "Nodes in the last complete answer.",
        NUMBERS["duration_ns"].name: "How long the last question took.",
        OUTAGES.name: "Questions (jobs, nodes, each table) whose last try was not answered.",
        UNREADABLE.name: "Rows of the last answers that could not be read.",
    }
)


def cluster_points(data: Data) -> list[Points]:
    """Return the points of a ClusterState. A word for the controller that this version does not know is unknown."""
    word = data["controller"] if data["controller"] in STATE else "unknown"
    columns: list[tuple[Metric, list[Number | None]]] = [
        (metric, [int(name == word)]) for name, metric in STATE.items()
    ]
    columns += [(metric, scaled([data.get(key)], metric.scale)) for key, metric in NUMBERS.items()]
    columns.append((OUTAGES, [len(data.get("outages", ()))]))
    columns.append((UNREADABLE, [sum(data.get("unreadable", {}).values())]))
    return [
        Points(
            scope=("slurm.cluster", data["cluster"], data["feed"]),
            boot="",
            ts_ns=data["ts"],
            ids=["cluster"],
            attributes=[(("heeler.cluster", data["cluster"]), ("heeler.slurm.feed", data["feed"]))],
            columns=columns,
        )
    ]
