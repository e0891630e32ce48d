"""Ask slurmrestd: over its unix socket, or over TCP with a token (JWT).

The token is read from its file at each question, so one that is renewed is used at once; it is in no message and no
error. An answer other than 200, an empty one, one that is cut off or comes too late is a RestError, never a list.
"""

import base64
import contextlib
import json
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heeler.slurm.errors import RestError, RestTlsError

# The versions whose answers are known. A newer one is used only where none of these is offered.
OLDEST, NEWEST = 38, 43
MAX_BODY_BYTES = 1 << 30
CHUNK = 1 << 18
SHOWN = 200
_OFFERED = re.compile(r'"/(slurm|slurmdb)/v0\.0\.(\d{1,3})/')
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=\-]+", re.ASCII)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(slots=True)
class Rest:
    """One slurmrestd. `url`: unix:///path, http://host:port or https://host:port. `get` is for one thread at a time."""

    url: str
    user: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    _versions: dict[str, int] = field(default_factory=dict)
    _open: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def version(self, api: str, timeout_s: float) -> str:
        """Return the version to ask for, such as v0.0.40. `api` is slurm or slurmdb. Raises RestError."""
        if api not in self._versions:
            self._versions = self._probe(timeout_s)
        if api not in self._versions:
            raise RestError(f"slurmrestd offers no /{api}/ that can be read", missing=True)
        return f"v0.0.{self._versions[api]}"

    def forget_version(self) -> None:
        """Ask anew which versions there are: another Slurm answers."""
        self._versions = {}

    def get(self, path: str, timeout_s: float) -> bytes:
        """Return the body of an answer. Raises RestError."""
        return self._ask("GET", path, None, timeout_s)

    def post(self, path: str, body: bytes, timeout_s: float) -> bytes:
        """Send a change, once, and return the body of the answer. Raises RestError: then it may be done or not."""
        return self._ask("POST", path, body, timeout_s)

    def _ask(self, method: str, path: str, body: bytes | None, timeout_s: float) -> bytes:
        asked = f"{method} {path}"
        started = time.monotonic()
        # A timeout of the socket is one of each read: a server that sends a byte now and then would hold us for ever.
        alarm = threading.Timer(timeout_s, self.cancel)
        alarm.start()
        try:
            connection = self._connection(timeout_s)
            try:
                connection.connect()
            except ssl.SSLError as err:
                raise RestTlsError(f"{asked}: {_tls_words(err)}") from None
            with self._lock:
                # Its own: a connection that closes after the answer hands the socket over to the answer.
                self._open = connection.sock
            try:
                return self._exchange(connection, method, path, body)
            finally:
                with self._lock:
                    self._open = None
                connection.close()
        except (OSError, HTTPException) as err:
            if isinstance(err, TimeoutError) or time.monotonic() - started >= timeout_s:
                raise RestError(f"{asked}: no answer in {timeout_s:g} s") from None
            raise RestError(f"{asked}: {_words(err)}", missing=isinstance(err, OSError)) from None
        finally:
            alarm.cancel()

    def cancel(self) -> None:
        """End the question that is under way, from another thread."""
        with self._lock:
            if self._open is not None:
                with contextlib.suppress(OSError):
                    self._open.shutdown(socket.SHUT_RDWR)

    def _exchange(self, connection: HTTPConnection, method: str, path: str, sent: bytes | None) -> bytes:
        headers = self._headers() | ({"Content-Type": "application/json"} if sent is not None else {})
        connection.request(method, path, body=sent, headers=headers)
        response = connection.getresponse()
        body = bytearray()
        while chunk := response.read(CHUNK):
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise RestError(f"{method} {path}: more than {MAX_BODY_BYTES} bytes")
        if response.length:
            raise HTTPException(f"the answer ends {response.length} bytes too early")
        if response.status != 200:
            status = f"status {response.status} {response.reason}".strip()
            hint = self._expired() if response.status in (401, 403, 500, 511) else ""
            raise RestError(f"{method} {path}: {status}: {_why(bytes(body))}{hint}", status=response.status)
        return bytes(body)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, timeout_s)
        if parts.scheme == "https":
            context = _trusting(self.ca_file)
            return HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)
        return HTTPConnection(parts.hostname or "", parts.port or 6820, timeout=timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if self.token_file is not None:
            headers["X-SLURM-USER-TOKEN"] = read_token(self.token_file)
        if self.user is not None:
            headers["X-SLURM-USER-NAME"] = self.user
        return headers

    def _expired(self) -> str:
        """Return words where the token says that its time is over; Slurm only says that something failed."""
        try:
            claims = read_token(self.token_file).split(".")[1] if self.token_file is not None else ""
            ends_s = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
            ago_s = time.time() - ends_s
        except (RestError, ValueError, LookupError, TypeError):
            return ""
        return f" (the token expired {ago_s:.0f} s ago)" if ago_s > 0 else ""

    def _probe(self, timeout_s: float) -> dict[str, int]:
        """Return for each API the newest version that is known, or else the newest of all."""
        body = b""
        error: RestError | None = None
        for path in ("/openapi/v3", "/openapi"):
            try:
                body = self.get(path, timeout_s)
                break
            except RestError as err:
                error = err
                if err.status != 404:
                    raise
        if not body and error is not None:
            raise error
        offered: dict[str, set[int]] = {}
        for api, number in _OFFERED.findall(body.decode(errors="replace").replace("\\/", "/")):
            offered.setdefault(api, set()).add(int(number))
        return {api: choose(numbers) for api, numbers in offered.items() if max(numbers) >= OLDEST}


def choose(offered: set[int]) -> int:
    """Return the newest version that is known; where there is none, the newest, which is read if its shape is known."""
    known = [number for number in offered if OLDEST <= number <= NEWEST]
    return max(known) if known else max(offered)


def read_token(path: str) -> str:
    """Return the token in a file, bare or as `scontrol token` prints it. Raises RestError that does not repeat it."""
    try:
        text = Path(path).read_text().strip().removeprefix("SLURM_JWT=").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise RestError(f"token_file {path}: {_words(err)}") from None
    if not _TOKEN.fullmatch(text):
        raise RestError(f"token_file {path}: {'empty' if not text else 'not a token'}")
    return text


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return what trusts the certificates of a file, or else the system's. Raises RestTlsError that names the file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise RestTlsError(f"rest_ca {ca_file}: no certificate in it") from None
    except OSError as err:
        raise RestTlsError(f"rest_ca {ca_file}: {_words(err)}") from None


def _tls_words(err: ssl.SSLError) -> str:
    if isinstance(err, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {err.verify_message}"
    if err.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "it does not speak TLS"
    return f"TLS failed: {err.reason or _words(err)}"


def _words(err: Exception) -> str:
    if isinstance(err, UnicodeDecodeError):
        return "not text"
    strerror = getattr(err, "strerror", None)
    return strerror if isinstance(strerror, str) and strerror else f"{type(err).__name__}: {err}"[:SHOWN]


def _why(body: bytes) -> str:
    """Return what an error's body says: Slurm's own errors where it has them."""
    try:
        value: Any = json.loads(body)
        errors = value["errors"]
        first = errors[0]
        # What failed, and Slurm's own word for why.
        words = ": ".join(dict.fromkeys(str(first[key]) for key in ("description", "error") if first.get(key)))
        return (words or str(first))[:SHOWN]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        text = " ".join(body[:SHOWN].decode(errors="replace").split())
        return text or "empty answer"
