"""Whether a bus lets in anyone at all: asked by processes that act on what they read."""

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from nats.aio.client import Client
from nats.errors import AuthorizationError
from nats.errors import Error as NatsError

from heeler.bus.settings import BusSettings


async def takes_anonymous(settings: BusSettings) -> bool | None:
    """Try the servers once without any credentials. None where that can't be told: no server, or none that answers."""
    bare = replace(settings, servers=tuple(map(_bare, settings.servers)), creds=None, nkey=None, cert=None, key=None)
    seen: list[Exception] = []

    async def failed(error: Exception) -> None:
        seen.append(error)

    client = Client()
    try:
        connecting = client.connect(
            servers=list(bare.servers),
            name="heeler-probe",
            allow_reconnect=False,
            max_reconnect_attempts=0,
            connect_timeout=settings.connect_timeout_s,  # type: ignore[arg-type]  # a float is what it is used as
            error_cb=failed,
            tls=bare.tls(),
        )
        await asyncio.wait_for(connecting, 2 * settings.connect_timeout_s)  # it tries an absent server for ever
    except (NatsError, OSError, TimeoutError, ValueError) as error:
        return False if any(map(_unauthorized, [*seen, error])) else None
    await client.close()
    return True


def _unauthorized(error: Exception) -> bool:
    return isinstance(error, AuthorizationError) or "authorization violation" in str(error).lower()


def _bare(url: str) -> str:
    """Return a server's address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
