"""What a user of the bus may publish and hear, and how rights add up."""

from collections.abc import Iterable
from dataclasses import dataclass

from heeler.bus.subjects_gen import PREFIX

API = "$JS.API"
WHOAMI = "$SYS.REQ.USER.INFO"  # the server's word on this user, and its time


@dataclass(frozen=True, slots=True)
class Rights:
    """Subjects of one user. ``answers``: it may answer a request once, wherever the answer is wanted."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()
    answers: bool = False

    def __add__(self, other: "Rights") -> "Rights":
        return Rights(
            _joined(self.publish, other.publish),
            _joined(self.subscribe, other.subscribe),
            _joined(self.deny_publish, other.deny_publish),
            self.answers or other.answers,
        )


def total(rights: Iterable[Rights]) -> Rights:
    """Return rights together."""
    found = Rights()
    for one in rights:
        found += one
    return found


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def connection(name: str) -> Rights:
    """Return what every connection needs: its own answers, which no other hears, and who it is."""
    return Rights((WHOAMI,), (f"_INBOX_{name}.>",))


def look(stream: str) -> Rights:
    """Ask how a stream is, and for single messages of it; of a bucket by way of its leader."""
    get = f"{API}.STREAM.MSG.GET.{stream}" if stream.startswith("KV_") else f"{API}.DIRECT.GET.{stream}"
    return Rights((f"{API}.STREAM.INFO.{stream}", get, f"{API}.DIRECT.GET.{stream}.>"))


def read(stream: str, durables: Iterable[str] = (), own: Iterable[str] = ()) -> Rights:
    """Read a stream by consumers of one's own, without acks; never by the shared ones, but for one's own of these.

    A consumer made without a name gets one from the server, so that only their names tell the shared ones apart.
    """
    shared, ours = tuple(durables), set(own)
    return look(stream) + Rights(
        (
            f"{API}.CONSUMER.CREATE.{stream}",
            *(f"{API}.CONSUMER.{verb}.{stream}.*" for verb in ("MSG.NEXT", "INFO", "DELETE")),
        ),
        deny_publish=(
            *(f"{API}.CONSUMER.DELETE.{stream}.{name}" for name in shared),
            *(f"{API}.CONSUMER.MSG.NEXT.{stream}.{name}" for name in shared if name not in ours),
        ),
    )


def share(stream: str, durable: str) -> Rights:
    """Read a stream by a consumer that all instances share, with acks."""
    return look(stream) + Rights(
        (
            f"{API}.CONSUMER.DURABLE.CREATE.{stream}.{durable}",
            f"{API}.CONSUMER.INFO.{stream}.{durable}",
            f"{API}.CONSUMER.MSG.NEXT.{stream}.{durable}",
            f"$JS.ACK.{stream}.{durable}.>",
            f"$JS.ACK.*.*.{stream}.{durable}.>",  # with the server's domain and account, from newer servers
        )
    )


def bucket(name: str, *, write: Iterable[str] = ()) -> Rights:
    """Read a bucket, or put and delete values under some keys too."""
    found = read(f"KV_{name}") + Rights(subscribe=(f"$KV.{name}.>",))
    return found + Rights(tuple(f"$KV.{name}.{key}" for key in write))


def messages(cluster: str, pattern: str) -> str:
    """Return the subject of messages of a cluster's token, or `*`."""
    return f"{PREFIX}.{cluster}.{pattern}"
