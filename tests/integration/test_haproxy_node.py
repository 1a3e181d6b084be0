"""The real HAProxy, both versions, started from its NodeSpec in front of a small origin."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

import stacks
from harness.model import PLACEHOLDER, AccessEntry, Lane, Node, NodeSpec, StreamKey
from stacks.haproxy.configuration import statements
from stacks.haproxy.node import render
from stacks.haproxy.versions import DEBIAN

ATTEMPTS = 400
KEY = StreamKey(run="r", scenario="haproxy/bare", lane=Lane.THROUGH, n=1)
SECRET = "sk-planted"
BARE = Node(kind="haproxy")
NODES = {
    "bare": BARE,
    "no-delay": replace(BARE, lines=("option http-no-delay",)),
    "abortonclose": replace(BARE, lines=("option http-no-delay", "option abortonclose")),
    "tls": replace(BARE, tls=True),
    "everywhere": replace(
        BARE,
        lines=("timeout server 2s", "retry-on conn-failure"),
        server_lines=("http-request set-header X-Edge 1",),
        global_lines=("hard-stop-after 60s",),
    ),
}


class Origin(BaseHTTPRequestHandler):
    """Answers each request with four bytes in two chunks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Sends the answer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A spec laid out in a folder, with its placeholders filled in, and a client that trusts it."""

    spec: NodeSpec
    folder: Path
    port: int
    values: dict[str, str]
    client: ssl.SSLContext

    def fill(self, words: tuple[str, ...]) -> list[str]:
        """The words of a command with this launch's values."""
        return [PLACEHOLDER.sub(lambda match: self.values[match[1]], word) for word in words]

    def run(self, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Runs one of the spec's commands to its end."""
        env = os.environ | dict(self.spec.env)
        return subprocess.run(
            self.fill(argv), cwd=self.folder, env=env, capture_output=True, text=True,
            timeout=20, check=False,
        )  # fmt: skip

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a request with the key and a secret."""
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.client)
            if self.spec.readiness.tls
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        )
        try:
            headers = {"X-Streamchaos-Id": str(KEY), "Authorization": SECRET, "Cookie": SECRET}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Whether the spec's readiness request is answered as told."""
        try:
            return self.get(self.spec.readiness.path)[0] == self.spec.readiness.status
        except ConnectionRefusedError:
            return False

    def log(self, role: str) -> str:
        """The text of a log."""
        return (self.folder / str(self.spec.log_path(role))).read_text("utf-8")

    def access(self) -> tuple[AccessEntry, ...]:
        """The access log's entries that are ours."""
        entries = stacks.read_access("haproxy", self.log("access"), self.spec.name)
        return tuple(entry for entry in entries if entry.key == str(KEY))


def wait_for(what: str, process: subprocess.Popen[bytes], launched: Launched) -> None:
    """Returns once it serves; fails by name when it ends, or never does."""
    for _ in range(ATTEMPTS):
        if launched.is_ready():
            return
        if process.poll() is not None:
            break
        threading.Event().wait(0.02)
    raise AssertionError(f"waited in vain: {what}: {launched.log('error')}")


@contextmanager
def started(launched: Launched) -> Iterator[subprocess.Popen[bytes]]:
    """The node's process, ready; at the end it is told to stop, and has to."""
    with (
        (launched.folder / "stdout.log").open("wb") as out,
        (launched.folder / "stderr.log").open("wb") as err,
        subprocess.Popen(
            launched.fill(launched.spec.argv),
            cwd=launched.folder,
            env=os.environ | dict(launched.spec.env),
            stdout=out,
            stderr=err,
        ) as process,
    ):
        try:
            wait_for("ready", process, launched)
            yield process
        finally:
            process.send_signal(signal.Signals[launched.spec.stop_signal])
            process.wait(launched.spec.stop_grace_ms / 1000 + 10)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """host:port of the origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Origin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A folder with cert.pem and key.pem for 127.0.0.1, and a client that trusts them."""
    folder = tmp_path_factory.mktemp("tls")
    authority, client = trustme.CA(), ssl.create_default_context()
    issued = authority.issue_cert("127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.configure_trust(client)
    return folder, client


@pytest.fixture(params=["2.8", "2.6"])
def version(request: pytest.FixtureRequest) -> str:
    """A version that is on this machine; else the test is skipped with the command that gets it."""
    word = str(request.param)
    reason = stacks.available(replace(BARE, version=word))
    if reason:
        pytest.skip(reason)
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Lays nodes of the version under test out, each in a folder of its own."""

    folder: Path
    version: str
    upstream: str
    pems: Path
    client: ssl.SSLContext

    def __call__(self, node: Node, *, name: str = "edge", upstream: str = "") -> Launched:
        """The node's folder with its files, for a port that was free a moment ago."""
        spec = stacks.node_spec(replace(node, version=self.version), name=name)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        folder = self.folder / name
        folder.mkdir()
        values = {
            "dir": str(folder),
            "listen": "127.0.0.1",
            "port.http": str(port),
            "upstream": upstream or self.upstream,
            "tls_cert": str(self.pems / "cert.pem"),
            "tls_key": str(self.pems / "key.pem"),
        }
        launched = Launched(spec=spec, folder=folder, port=port, values=values, client=self.client)
        for file in spec.files:
            (folder / file.path).write_text(launched.fill((file.text,))[0], encoding="utf-8")
        return launched


@pytest.fixture
def lay(tmp_path: Path, version: str, upstream: str, tls: tuple[Path, ssl.SSLContext]) -> Layout:
    """Lays nodes out in the test's folder."""
    pems, client = tls
    return Layout(folder=tmp_path, version=version, upstream=upstream, pems=pems, client=client)


@pytest.mark.parametrize("variant", NODES)
def test_haproxy_accepts_every_configuration_of_the_rows(variant: str, lay: Layout) -> None:
    """`haproxy -c` finds nothing to fault or warn of in each combination of lines."""
    launched = lay(NODES[variant])
    checked = launched.run(launched.spec.check_argv)
    assert (checked.returncode, stacks.read_errors("haproxy", checked.stderr)) == (0, ())


@pytest.mark.parametrize("variant", ["bare", "abortonclose", "tls"])
def test_haproxy_passes_a_request_through_and_testifies(variant: str, lay: Layout) -> None:
    """The origin's bytes arrive; the access log holds the exchange by its key, and no secret."""
    launched = lay(NODES[variant])
    with started(launched):
        assert launched.get("/v1/completions?api_key=" + SECRET) == (200, b"abcd")
    entry = launched.access()[-1]
    fields = dict(entry.fields)
    assert (entry.node, entry.status, StreamKey.parse(entry.key)) == ("edge", 200, KEY)
    assert fields["termination_state"] == "--"
    assert fields["server_protocol"] == "HTTP/1.1"
    assert fields["upstream_addr"] == launched.values["upstream"]
    assert all(int(fields[name]) >= 0 for name in fields if name.endswith("_ms"))
    assert stacks.read_errors("haproxy", launched.log("error")) == ()
    kept = (file for file in launched.folder.rglob("*") if file.is_file())
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]


def test_haproxy_over_tls_keeps_the_joined_key_to_its_owner(lay: Layout) -> None:
    """The one file that holds certificate and key is readable by nobody else; no shell is left."""
    launched = lay(NODES["tls"])
    with started(launched) as process:
        assert (launched.folder / "server.pem").stat().st_mode & 0o077 == 0
        executable = Path(f"/proc/{process.pid}/exe").resolve()
    assert executable == Path(launched.spec.version_argv[0]).resolve()


def test_haproxy_tells_its_version(lay: Layout, version: str) -> None:
    """The version that the spec names is the one that the binary tells."""
    launched = lay(BARE)
    told = launched.run(launched.spec.version_argv).stdout
    assert f"HAProxy version {launched.spec.version}-" in told
    assert launched.spec.version.startswith(f"{version}.")


def test_haproxy_with_a_taken_port_says_so(lay: Layout) -> None:
    """A port of another program, and of another HAProxy, is refused in the words looked for."""
    other = lay(BARE, name="other")
    launched = lay(BARE)
    values = launched.values | {"port.http": str(other.port)}
    text = PLACEHOLDER.sub(lambda match: values[match[1]], launched.spec.files[0].text)
    (launched.folder / launched.spec.files[0].path).write_text(text, encoding="utf-8")
    with socket.create_server(("127.0.0.1", other.port)):
        by_program = launched.run(launched.spec.argv)
    with started(other):
        by_haproxy = launched.run(launched.spec.argv)
    for failed in (by_program, by_haproxy):
        assert failed.returncode != 0
        errors = stacks.read_errors("haproxy", failed.stderr)
        assert any(launched.spec.port_taken_text in error for error in errors)


def test_haproxy_with_a_dead_origin_says_why(lay: Layout) -> None:
    """The termination state tells that the connection to the engine failed."""
    launched = lay(BARE, upstream="127.0.0.1:1")
    launched = replace(
        launched,
        spec=replace(launched.spec, readiness=replace(launched.spec.readiness, status=503)),
    )
    with started(launched):
        pass
    entry = launched.access()[-1]
    assert (entry.status, dict(entry.fields)["termination_state"]) == (503, "SC")


def test_template_keeps_the_package_s_own_lines() -> None:
    """Each line of Debian's haproxy.cfg is in ours, but for those that are re-homed."""
    reason = stacks.available(replace(BARE, version="2.6"))
    if reason:
        pytest.skip(reason)
    package = (DEBIAN.folder / "etc/haproxy/haproxy.cfg").read_text("utf-8")
    ours = {(s.section, s.words) for s in statements(render(BARE))}
    lost = {s.words[0] for s in statements(package) if (s.section, s.words) not in ours}
    lost_options = {
        s.words for s in statements(package)
        if s.words[0] == "option" and (s.section, s.words) not in ours
    }  # fmt: skip
    assert lost == {
        "log", "chroot", "stats", "user", "group", "daemon", "ca-base", "crt-base", "errorfile",
        "option",
    }  # fmt: skip
    assert lost_options == {("option", "httplog")}
