"""Where a stack runs: its addresses and ports."""

from __future__ import annotations

import socket


class HostSandbox:
    """Loopback of this host. Ports are found by binding; who takes one in between is found out by
    the launcher."""

    def __init__(self) -> None:
        self.address = "127.0.0.1" if _can_bind("127.0.0.1") else "::1"
        self._given: set[int] = set()

    @property
    def url_host(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.address}]" if ":" in self.address else self.address

    def free_port(self) -> int:
        """A port that was free a moment ago and was not given before."""
        while True:
            with socket.socket(_family(self.address), socket.SOCK_STREAM) as sock:
                sock.bind((self.address, 0))
                port: int = sock.getsockname()[1]
            if port not in self._given:
                self._given.add(port)
                return port


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _can_bind(address: str) -> bool:
    with socket.socket(_family(address), socket.SOCK_STREAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True
