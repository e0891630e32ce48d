"""A proxy that ends TLS before a server that has none, and certificates for it, made with OpenSSL's own program."""

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path


class Authority:
    """A certificate authority of a test: `file` is what to trust."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self.file = self._folder / "ca.pem"
        self._key = self._folder / "ca.key"
        self._openssl("req", "-x509", *self._new(self._key), "-subj", f"/CN={name}", "-days", "2", "-out", self.file)

    def certificate(self, *names: str, days: int = 1) -> Path:
        """Return a file with a key and a certificate for names such as ``DNS:head`` or ``IP:127.0.0.1``."""
        made = self._folder / f"{len(list(self._folder.glob('*.pem')))}.pem"
        key, request, extra = (made.with_suffix(ending) for ending in (".key", ".csr", ".ext"))
        self._openssl("req", *self._new(key), "-subj", "/CN=slurmrestd", "-out", request)
        extra.write_text(f"subjectAltName={','.join(names)}\n")
        signing = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-days", str(days), "-extfile", extra)
        self._openssl("x509", "-req", "-in", request, *signing, "-out", made)
        made.write_text(key.read_text() + made.read_text())
        return made

    @staticmethod
    def _new(key: Path) -> tuple[str | Path, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key)

    @staticmethod
    def _openssl(*argv: str | Path) -> None:
        subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True, timeout=30)


class TlsProxy:
    """Takes TLS on a free port of 127.0.0.1 and passes on what it hears; counts the bytes that came through."""

    def __init__(self, certificate: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._behind = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self.passed_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Pass on one question and its answer: the answerer ends the connection, as it was asked to."""
        with contextlib.suppress(OSError), self._context.wrap_socket(client, server_side=True) as outer:
            with socket.create_connection(("127.0.0.1", self._behind)) as inner:
                asked = b""
                while b"\r\n\r\n" not in asked and (part := outer.recv(65536)):
                    asked += part
                self.passed_bytes += len(asked)
                inner.sendall(asked)
                while part := inner.recv(65536):
                    outer.sendall(part)
            outer.unwrap()


@contextlib.contextmanager
def tls_proxy(certificate: Path, port: int) -> Iterator[TlsProxy]:
    """Run a proxy while the block runs."""
    made = TlsProxy(certificate, port)
    try:
        yield made
    finally:
        made.close()
