"""TLS over bytes in memory, against the library's own server side."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from harness.client.tls import TlsChannel, client_context
from harness.launch.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One CA for all tests here."""
    return Certificates(tmp_path_factory.mktemp("tls"))


class Server:
    """The other end, with its bytes in memory too."""

    def __init__(self, certificates: Certificates) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.cert_pem, certificates.key_pem)
        context.set_alpn_protocols(["h2", "http/1.1"])
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def greet(self) -> str:
        """Goes on with the handshake; why it failed, if it did."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return ""
        except ssl.SSLError as error:
            return error.reason
        return ""

    def seal(self, data: bytes) -> bytes:
        """The records that carry `data`."""
        self.object.write(data)
        return self.outgoing.read()


def join(client: TlsChannel, server: Server) -> str:
    """Both handshakes to their end; why the server's failed, if it did."""
    failed = ""
    while not failed:
        client.handshake()
        data = client.take_outgoing()
        server.incoming.write(data)
        failed = server.greet()
        answer = server.outgoing.read()
        client.feed(answer)
        if not data and not answer:
            break
    return failed


@pytest.fixture
def ends(certificates: Certificates) -> tuple[TlsChannel, Server]:
    """Two ends behind their handshake."""
    client = TlsChannel(client_context(str(certificates.ca_pem)), "localhost")
    server = Server(certificates)
    assert join(client, server) == ""
    assert client.established
    client.read()
    return client, server


def test_channel_speaks_http_1_by_alpn(ends: tuple[TlsChannel, Server]) -> None:
    """A server that prefers HTTP/2 is not given it."""
    assert ends[1].object.selected_alpn_protocol() == "http/1.1"


def test_channel_gives_plaintext_once_its_record_is_whole(ends: tuple[TlsChannel, Server]) -> None:
    """Not before its last byte, and all of it then, whatever the split."""
    client, server = ends
    sealed = server.seal(b"first") + server.seal(b"second")
    seen = []
    for index in range(len(sealed)):
        client.feed(sealed[index : index + 1])
        seen.append(client.read())
    assert [piece for piece in seen if piece] == [b"first", b"second"]
    assert seen[-1] == b"second"


def test_channel_sends_what_is_written(ends: tuple[TlsChannel, Server]) -> None:
    """The server reads it as it was."""
    client, server = ends
    client.write(b"a request")
    server.incoming.write(client.take_outgoing())
    assert server.object.read() == b"a request"


def test_channel_knows_the_peers_close_notify(ends: tuple[TlsChannel, Server]) -> None:
    """Together with the data before it."""
    client, server = ends
    sealed = server.seal(b"last")
    with suppress(ssl.SSLWantReadError):
        server.object.unwrap()
    client.feed(sealed + server.outgoing.read())
    assert client.read() == b"last"
    assert client.closed_by_peer
    assert client.broken == ""


@pytest.mark.parametrize("unread", [b"", b"more of the answer"])
def test_channel_that_leaves_sends_the_alert(
    ends: tuple[TlsChannel, Server], unread: bytes
) -> None:
    """Also while data of the answer waits to be decrypted."""
    client, server = ends
    if unread:
        client.feed(server.seal(unread))
    client.close_notify()
    server.incoming.write(client.take_outgoing())
    # An empty read is how the library tells of close_notify.
    assert server.object.read() == b""


def test_channel_with_a_damaged_record_keeps_what_came_before(
    ends: tuple[TlsChannel, Server],
) -> None:
    """The damage is told, not raised."""
    client, server = ends
    good, bad = server.seal(b"good"), bytearray(server.seal(b"bad"))
    bad[-1] ^= 1
    client.feed(good + bad)
    assert client.read() == b"good"
    assert client.broken


def test_channel_with_a_strangers_certificate_is_broken(
    certificates: Certificates, tmp_path: Path
) -> None:
    """And the server is told by an alert."""
    stranger = Certificates(tmp_path)
    client = TlsChannel(client_context(str(stranger.ca_pem)), "localhost")
    told = join(client, Server(certificates))
    assert client.broken == "CERTIFICATE_VERIFY_FAILED"
    assert "UNKNOWN_CA" in told
    assert not client.established


def test_channel_with_another_servers_name_is_broken(certificates: Certificates) -> None:
    """A certificate counts for its own names."""
    client = TlsChannel(client_context(str(certificates.ca_pem)), "other.example")
    join(client, Server(certificates))
    assert client.broken == "CERTIFICATE_VERIFY_FAILED"


def test_channel_to_a_plaintext_server_is_broken(certificates: Certificates) -> None:
    """An answer in plaintext is no record."""
    client = TlsChannel(client_context(str(certificates.ca_pem)), "localhost")
    client.handshake()
    client.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert not client.handshake()
    assert client.broken
