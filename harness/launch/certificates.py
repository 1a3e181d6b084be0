"""A throw-away CA and a certificate for loopback, made when first asked for."""

from __future__ import annotations

import shutil
from pathlib import Path


class Certificates:
    """PEM files below `folder`: `ca_pem` to be trusted, `cert_pem` with its chain and `key_pem` for
    listeners."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def ca_pem(self) -> Path:
        """The CA's certificate."""
        return self._made("ca.pem")

    @property
    def cert_pem(self) -> Path:
        """The server's certificate: localhost, 127.0.0.1, ::1."""
        return self._made("cert.pem")

    @property
    def key_pem(self) -> Path:
        """The server's key, readable by its owner only."""
        return self._made("key.pem")

    def _made(self, name: str) -> Path:
        if not (self._folder / name).exists():
            self._make()
        return self._folder / name

    def _make(self) -> None:
        # Slow to import, and plaintext stacks need none of it.
        import trustme

        self._folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        server = authority.issue_cert("localhost", "127.0.0.1", "::1")
        key = self._folder / "key.pem"
        key.touch(mode=0o600)
        server.private_key_pem.write_to_path(key)
        for number, blob in enumerate(server.cert_chain_pems):
            blob.write_to_path(self._folder / "cert.pem", append=number > 0)
        authority.cert_pem.write_to_path(self._folder / "ca.pem")

    def remove(self) -> None:
        """A key has no business in a run's folder once the run is over."""
        shutil.rmtree(self._folder, ignore_errors=True)
