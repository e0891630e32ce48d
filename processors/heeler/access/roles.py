"""The roles on the bus: what each kind of process and person may do, and no more.

Tests run the real programs with just these rights, and hold the messages that a role may write against the writers in
schemas/subjects.yaml.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heeler.access.rights import API, Rights, bucket, connection, look, messages, read, share, total
from heeler.bus import escape
from heeler.bus.subjects_gen import ROUTES, STREAMS

AGENT_WRITES: Final = (
    *("GpuSample", "IbSample", "HostSample", "SwitchSample", "KernelEvent", "AgentStatus", "Inventory"),
    *("HealthResult", "HealthRun", "PrologEvent"),  # what heeler-health leaves in the agent's outbox
)
PEOPLE: Final = "heeler-cli"


@dataclass(frozen=True, slots=True)
class Role:
    """What a process or person does on the bus. ``cluster``: for one cluster only."""

    about: str
    connection: str
    writes: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()  # streams whose consumer all instances share: NAME-STREAM
    reads: tuple[str, ...] = ()
    hears: bool = False  # all messages as they come
    looks: tuple[str, ...] = ()  # streams, without consumers
    gets: tuple[str, ...] = ()  # buckets
    puts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()  # types of requests
    cluster: bool = False
    everything: bool = False


ROLES: Final[Mapping[str, Role]] = {
    "slurm": Role(
        "heeler-slurm: jobs, nodes, tables and accounting of one cluster",
        "heeler-slurm",
        writes=("JobEvent", "NodeState", "ClusterState", "SlurmTable", "JobRecord"),
        reads=("AGENTS", "JOBS", "NODES", "EVENTS", "RECORDS"),
        puts=("job_map",),
        cluster=True,
    ),
    "enrich": Role(
        "heeler run enrich",
        "heeler-enrich",
        writes=("JobSample", "JobKernelEvent", "DeadLetter"),
        shares=("SAMPLES", "EVENTS"),
        reads=("EVENTS", "JOBS", "AGENTS"),
    ),
    "detect": Role(
        "heeler run detect",
        "heeler-detect",
        writes=("Finding", "DeadLetter"),
        reads=(
            *("JOBSAMPLES", "SAMPLES", "EVENTS", "JOBS", "NODES", "AGENTS"),
            *("TABLES_LAST", "FINDINGS", "FINDINGS_LAST"),
        ),
        puts=("leases",),
    ),
    "summary": Role(
        "heeler run summary",
        "heeler-summary",
        writes=("JobSummary", "DeadLetter"),
        reads=("JOBSAMPLES", "EVENTS", "JOBS", "SUMMARIES", "SUMMARIES_LAST"),
        puts=("leases",),
    ),
    "lemon": Role(
        "heeler run lemon",
        "heeler-lemon",
        writes=("Finding", "DeadLetter"),
        reads=("EVENTS", "RECORDS", "FINDINGS", "FINDINGS_LAST"),
        puts=("leases",),
    ),
    "drain": Role(
        "heeler run drain: the one that acts, for one cluster",
        "heeler-drain",
        writes=("DrainAction", "HealthRequest", "DeadLetter"),
        reads=("FINDINGS_LAST", "NODES", "AGENTS", "DRAIN", "EVENTS"),
        puts=("drain_lease", "drain_intent", "breakers"),
        answers=("DrainCommand", "DrainQuestion"),
        cluster=True,
    ),
    "otlp": Role("heeler run otlp", "heeler-otlp", writes=("DeadLetter",)),
    "otlp-in": Role("heeler run otlp-in", "heeler-otlp-in", reads=("AGENTS",), gets=("job_map",)),
    "console": Role(
        "heeler run console, the web page", "heeler-console", reads=tuple(STREAMS), hears=True, gets=("job_map",)
    ),
    "reader": Role(
        "people who look: heeler why, events, tap, record",
        PEOPLE,
        reads=tuple(STREAMS),
        hears=True,
        gets=("job_map", "breakers", "drain_lease"),
    ),
    "subscriber": Role(
        "programs of other teams: all messages as they come, and single ones of the streams",
        "heeler-subscriber",
        hears=True,
        looks=(*STREAMS, "KV_job_map"),
    ),
    "admin": Role("who runs the bus: heeler bus init, replay, everything", PEOPLE, everything=True),
}
OPERATOR_WRITES: Final = ("HealthRequest", "DrainCommand", "DrainQuestion")


def rights_of(name: str, clusters: Sequence[str], durables: Mapping[str, Sequence[str]]) -> Rights | None:
    """Return what a role may do for some clusters (one, where the role is of one cluster); None for everything.

    ``durables``: the shared consumers of each stream, which are kept from all others.
    """
    role = ROLES[name]
    if role.everything:
        return None
    tokens = [escape(cluster) for cluster in clusters]
    writes = tuple(messages(token, wildcard(kind)) for token in tokens for kind in role.writes)
    own = _own_durables(name, durables)
    parts = [connection(role.connection), Rights(writes)]
    parts += [share(stream, durable) for stream, found in own.items() for durable in found]
    parts += [read(stream, durables.get(stream, ()), own.get(stream, ())) for stream in role.reads]
    parts += [look(stream) for stream in role.looks]
    parts += [bucket(one) for one in role.gets]
    keys = [key for token in tokens for key in (token, f"{token}.>")] if role.cluster else [">"]
    parts += [bucket(one, write=keys) for one in role.puts]
    if role.hears:
        parts.append(Rights(subscribe=tuple(messages(token, ">") for token in tokens)))
    if role.answers:
        heard = tuple(messages(token, wildcard(kind)) for token in tokens for kind in role.answers)
        parts.append(Rights(subscribe=heard, answers=True))
    return total(parts)


def operator_rights(actor: str, clusters: Sequence[str], durables: Mapping[str, Sequence[str]]) -> Rights:
    """Return what a person may do who commands the drainer under this name, and has nodes check themselves."""
    may_read = rights_of("reader", clusters, durables)
    assert may_read is not None
    name = escape(actor)
    commands = tuple(
        messages(escape(cluster), wildcard(kind).replace("*", name) if kind.startswith("Drain") else wildcard(kind))
        for cluster in clusters
        for kind in OPERATOR_WRITES
    )
    return may_read + Rights(commands)


def durables_of(sinks: Sequence[str]) -> dict[str, list[str]]:
    """Return all shared consumers by stream: those of the roles, and of `heeler run otlp` for sinks of these names."""
    from heeler.otlp.reader import KINDS, specs  # noqa: PLC0415 - with protobuf, which a node's rights don't need

    found: dict[str, list[str]] = {}
    for name, role in ROLES.items():
        for stream in role.shares:
            found.setdefault(stream, []).append(f"{name}-{stream}")
    for sink in sinks:
        for spec in (spec for signal in KINDS for spec in specs(sink, signal, 30.0)):
            found.setdefault(spec.stream, []).append(spec.durable or "")
    return found


def _own_durables(name: str, durables: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {
        stream: own for stream, all_of in durables.items() if (own := [one for one in all_of if _owner(one) == name])
    }


def _owner(durable: str) -> str:
    return durable.split("-", 1)[0]


def wildcard(kind: str, node: str = "*") -> str:
    """Return a type's subject behind the cluster, with `*` for all that it names, but for the node if that is told."""
    parts = ROUTES[kind].subject.split(".")
    return ".".join(node if part == "<node>" else "*" if part.startswith("<") else part for part in parts)


def agent_rights(cluster: str, node: str) -> Rights:
    """Return what the agent of a node may do: publish its own messages, and hear the answers to them."""
    token, own = escape(cluster), escape(node)
    return connection(own) + Rights(tuple(messages(token, wildcard(kind, own)) for kind in AGENT_WRITES))


def health_rights(cluster: str, node: str) -> Rights:
    """Return what `heeler-health serve` of a node may do: answer requests, and learn what a prolog has to know."""
    token, own = escape(cluster), escape(node)
    state, breaker = messages(token, wildcard("NodeState").replace("*", own)), f"$KV.breakers.{token}.prolog"
    return connection(escape(f"{node}-health")) + Rights(
        (
            f"{API}.DIRECT.GET.NODES.{state}",
            f"{API}.STREAM.INFO.KV_breakers",
            f"{API}.STREAM.MSG.GET.KV_breakers",
        ),
        (messages(token, wildcard("HealthRequest", own)), state, breaker),
        answers=True,
    )


def rack_rights(cluster: str, nodes: Iterable[str]) -> Rights:
    """Return what the leaf server of a rack may pass on: what its own nodes say, and what is for them.

    An answer to a request goes to the inbox of who asks: people and the drainer. Inboxes can't be told by a wildcard.
    """
    askers = tuple(f"_INBOX_{name}.>" for name in (PEOPLE, ROLES["drain"].connection))
    own = total(agent_rights(cluster, node) + health_rights(cluster, node) for node in nodes)
    return Rights((*own.publish, *askers), own.subscribe)
