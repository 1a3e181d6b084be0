"""What a launcher does before anything runs: placeholders, ports, certificates, messages."""

from __future__ import annotations

import json
import os
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.control import LENGTH, MessageReader
from harness.errors import PlanError
from harness.launch import keeper, processes, readiness
from harness.launch.certificates import Certificates
from harness.launch.process import fill
from harness.launch.sandbox import HostSandbox

VALUES = {"dir": "/n", "port.http": "8080", "listen": "127.0.0.1"}


def test_fill_known_placeholders_are_replaced() -> None:
    """Every placeholder that has a value becomes that value, the rest of the text stays."""
    text = "listen @{listen}:@{port.http}; # $host {} @ root @{dir}"
    assert fill(text, VALUES, "n") == "listen 127.0.0.1:8080; # $host {} @ root /n"


@pytest.mark.parametrize("name", ["port.admin", "upstream", "tls_cert", "nonsense"])
def test_fill_unknown_placeholder_is_named(name: str) -> None:
    """A placeholder without a value is a PlanError that names it and the node."""
    with pytest.raises(PlanError) as caught:
        fill("x @{" + name + "}", VALUES, "edge")
    assert "@{" + name + "}" in str(caught.value)
    assert "edge" in str(caught.value)


def test_fill_value_with_a_placeholder_is_not_filled_again() -> None:
    """A value is text, whatever it looks like."""
    assert fill("@{dir}", {"dir": "@{listen}", "listen": "x"}, "n") == "@{listen}"


def test_free_port_asked_often_never_repeats() -> None:
    """No port is given twice, and each can be bound."""
    sandbox = HostSandbox()
    ports = [sandbox.free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)
    with socket.socket() as sock:
        sock.bind((sandbox.address, ports[-1]))


def test_certificates_ca_trusts_loopback(tmp_path: Path) -> None:
    """A client that trusts the CA accepts the server under the address that it calls."""
    made = Certificates(tmp_path / "tls")
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(made.cert_pem, made.key_pem)
    client_context = ssl.create_default_context(cafile=str(made.ca_pem))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()
    assert made.key_pem.stat().st_mode & 0o077 == 0


def test_certificates_second_look_makes_nothing_new(tmp_path: Path) -> None:
    """One set serves the whole run."""
    first = Certificates(tmp_path).ca_pem.read_bytes()
    assert Certificates(tmp_path).ca_pem.read_bytes() == first


@given(
    messages=st.lists(st.dictionaries(st.text(max_size=5), st.integers()), max_size=6),
    size=st.integers(min_value=1, max_value=64),
)
def test_messages_any_split_gives_the_same(messages: list[dict[str, int]], size: int) -> None:
    """However the stream is cut, the messages come out whole and in order."""
    bodies = [json.dumps(message).encode() for message in messages]
    stream = b"".join(LENGTH.pack(len(body)) + body for body in bodies)
    reader = MessageReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [m for piece in pieces for m in reader.feed(piece)] == messages


def test_framing_keeper_and_harness_agree() -> None:
    """The keeper imports nothing of the project, so its framing is held against the harness's."""
    assert keeper.LENGTH.format == LENGTH.format
    assert Path(keeper.__file__) == processes.KEEPER


def test_listens_own_listener_is_found() -> None:
    """A port is held by the process that listens on it, and by no other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert readiness.listens(os.getpid(), port)
    assert not readiness.listens(os.getpid(), port)


def test_parents_this_process_is_below_its_parent() -> None:
    """The keeper reads the process table as the kernel tells it."""
    assert keeper.parents()[os.getpid()] == os.getppid()
    assert os.getpid() in keeper.descendants(os.getppid())
