"""What subjects.yaml says, as values: routes, streams and buckets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """Where messages of one type travel. `stream` is empty for what is asked and answered, and not kept."""

    type: str
    subject: str
    stream: str
    last: str | None = None
    acked: bool = False

    @property
    def pattern(self) -> str:
        """The subject after the cluster token, parameters as wildcards."""
        return ".".join("*" if token.startswith("<") else token for token in self.subject.split("."))


@dataclass(frozen=True, slots=True)
class Stream:
    """A JetStream stream: either its own subjects, or sourced from another stream."""

    name: str
    max_age: float
    max_bytes: int
    subjects: tuple[str, ...] = ()
    source: str | None = None
    filter: str | None = None
    max_per_subject: int = -1
    duplicate_window: float | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Bucket:
    """A key-value bucket; ttl in seconds frees what is not renewed."""

    name: str
    ttl: float | None = None
    history: int = 1
    replicas: int = 1
