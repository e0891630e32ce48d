"""A certificate authority for tests, by openssl."""

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates; one file each for certificate and key."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ca = folder, folder / "ca.pem"
        self._key = folder / "ca.key"
        self._openssl("req", "-x509", *_new_key(self._key), "-out", self.ca, "-days", "2", "-subj", f"/CN={name}")

    def issue(self, name: str, *also: str) -> tuple[Path, Path]:
        """Return certificate and key that say a DNS name, and others; also for 127.0.0.1 where it says localhost."""
        cert, key, request = (self.folder / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
        if cert.exists():
            return cert, key
        names = (name, *also)
        said = [f"DNS:{one}" for one in names] + (["IP:127.0.0.1"] if "localhost" in names else [])
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(said)}\nextendedKeyUsage=serverAuth,clientAuth\n")
        # The subject is the same for all: only names count.
        self._openssl("req", *_new_key(key), "-out", request, "-subj", "/O=Heeler tests")
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial"),
            *("-out", cert, "-days", "2", "-extfile", extensions),
        )
        return cert, key

    def _openssl(self, *words: str | Path) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def _new_key(path: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path)
