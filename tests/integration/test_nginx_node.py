"""The real nginx, both versions, started from its NodeSpec in front of a small origin."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

import stacks
from harness.model import PLACEHOLDER, AccessEntry, Lane, Node, NodeSpec, StreamKey
from stacks.nginx.configuration import statements
from stacks.nginx.node import render
from stacks.nginx.versions import Package, debian_folder

ATTEMPTS = 400
KEY = StreamKey(run="r", scenario="nginx/bare", lane=Lane.THROUGH, n=1)
SECRET = "sk-planted"
LINES = {
    "bare": Node(kind="nginx"),
    "http10": Node(kind="nginx", lines=("proxy_http_version 1.0;",)),
    "unbuffered": Node(kind="nginx", lines=("proxy_buffering off;",)),
    "large": Node(kind="nginx", lines=("proxy_buffer_size 32k; proxy_buffers 8 32k;",)),
    "gzip": Node(kind="nginx", lines=("gzip on;", "gzip_types text/event-stream;")),
    "tls": Node(kind="nginx", tls=True),
    "tls-unbuffered": Node(kind="nginx", tls=True, lines=("proxy_buffering off;",)),
    "set-header": Node(kind="nginx", lines=("proxy_set_header X-Accel-Buffering no;",)),
    "pass-header": Node(kind="nginx", lines=("proxy_pass_header X-Accel-Buffering;",)),
    "everywhere": Node(
        kind="nginx",
        lines=("proxy_read_timeout 2s;",),
        server_lines=("client_max_body_size 1m;",),
        global_lines=("gzip_types text/event-stream;",),
    ),
}


class Origin(BaseHTTPRequestHandler):
    """Answers `/health` at once; `/slow` in two halves, the second once it is let go."""

    protocol_version = "HTTP/1.1"
    release = threading.Event()

    def do_GET(self) -> None:
        """Sends four bytes as chunks to HTTP/1.1."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"2\r\nab\r\n")
        if self.path == "/slow":
            self.release.wait(20)
        self.wfile.write(b"2\r\ncd\r\n0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started nginx: its spec, folder, port, process, and how to ask it."""

    spec: NodeSpec
    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    connect: Callable[[], http.client.HTTPConnection]

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a request with the key and a secret."""
        connection = self.connect()
        try:
            headers = {"X-Streamchaos-Id": str(KEY), "Authorization": SECRET, "Cookie": SECRET}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def log(self, role: str) -> str:
        """The text of a log."""
        return (self.folder / str(self.spec.log_path(role))).read_text("utf-8")

    def access(self) -> tuple[AccessEntry, ...]:
        """The access log's entries that are ours."""
        entries = stacks.read_access("nginx", self.log("access"), self.spec.name)
        return tuple(entry for entry in entries if entry.key == str(KEY))


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; fails by name when it never does."""
    for _ in range(ATTEMPTS):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"waited in vain: {what}")


def free_port() -> int:
    """A port of loopback that nobody had a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """host:port of the origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Origin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A certificate for the listener, as files, and a client that trusts it."""

    certificate: Path
    key: Path
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A throw-away authority's certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    made = Tls(
        certificate=folder / "cert.pem", key=folder / "key.pem", client=ssl.create_default_context()
    )
    made.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(made.key))
    authority.configure_trust(made.client)
    return made


@pytest.fixture(params=["1.31", "1.22"])
def version(request: pytest.FixtureRequest) -> str:
    """A version that is on this machine; else the test is skipped with the command that gets it."""
    word = str(request.param)
    reason = stacks.available(Node(kind="nginx", version=word))
    if reason:
        pytest.skip(reason)
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A spec laid out in a folder, with its placeholders filled in."""

    spec: NodeSpec
    folder: Path
    port: int
    values: dict[str, str]

    def fill(self, text: str) -> str:
        """The text with this launch's values."""
        return PLACEHOLDER.sub(lambda match: self.values[match[1]], text)

    def run(self, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Runs one of the spec's commands to its end."""
        words = [self.fill(word) for word in argv]
        env = os.environ | dict(self.spec.env)
        return subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=20, check=False
        )


Lay = Callable[[Node], Launched]


@pytest.fixture
def lay(tmp_path: Path, upstream: str, tls: Tls, version: str) -> Lay:
    """Lays a node out in the test's folder, for the version under test."""

    def lay_out(node: Node) -> Launched:
        asked = Node(
            kind=node.kind,
            version=version,
            lines=node.lines,
            server_lines=node.server_lines,
            global_lines=node.global_lines,
            tls=node.tls,
        )
        spec = stacks.node_spec(asked, name="edge")
        port = free_port()
        values = {
            "dir": str(tmp_path),
            "listen": "127.0.0.1",
            "port.http": str(port),
            "upstream": upstream,
            "tls_cert": str(tls.certificate),
            "tls_key": str(tls.key),
        }
        launched = Launched(spec=spec, folder=tmp_path, port=port, values=values)
        for folder in spec.folders:
            (tmp_path / folder).mkdir(exist_ok=True)
        for file in spec.files:
            (tmp_path / file.path).write_text(launched.fill(file.text), encoding="utf-8")
        return launched

    return lay_out


def is_ready(running: Running) -> bool:
    """Whether the spec's readiness request is answered as told."""
    try:
        return running.get(running.spec.readiness.path)[0] == running.spec.readiness.status
    except ConnectionRefusedError:
        return False


@contextmanager
def started(launched: Launched, tls: Tls) -> Iterator[Running]:
    """The node, ready; at the end it is told to stop, and has to."""

    def connect() -> http.client.HTTPConnection:
        if launched.spec.readiness.tls:
            return http.client.HTTPSConnection(
                "127.0.0.1", launched.port, timeout=20, context=tls.client
            )
        return http.client.HTTPConnection("127.0.0.1", launched.port, timeout=20)

    argv = [launched.fill(word) for word in launched.spec.argv]
    with subprocess.Popen(argv, env=os.environ | dict(launched.spec.env)) as process:
        running = Running(
            spec=launched.spec,
            folder=launched.folder,
            port=launched.port,
            process=process,
            connect=connect,
        )
        try:
            wait_for("ready", lambda: is_ready(running))
            yield running
        finally:
            process.send_signal(signal.Signals[launched.spec.stop_signal])
            process.wait(launched.spec.stop_grace_ms / 1000 + 10)


@pytest.mark.parametrize("variant", LINES)
def test_nginx_accepts_every_configuration_of_the_story(variant: str, lay: Lay) -> None:
    """`nginx -t` finds nothing to fault or warn of in each combination of lines."""
    launched = lay(LINES[variant])
    checked = launched.run(launched.spec.check_argv)
    assert (checked.returncode, stacks.read_errors("nginx", checked.stderr)) == (0, ())


@pytest.mark.parametrize("variant", ["bare", "http10", "tls", "gzip"])
def test_nginx_passes_a_request_through_and_testifies(variant: str, lay: Lay, tls: Tls) -> None:
    """The origin's bytes arrive; the access log holds the exchange by its key, and no secret."""
    with started(lay(LINES[variant]), tls) as nginx:
        assert nginx.get("/v1/completions?api_key=" + SECRET)[0::1] == (200, b"abcd")
        wait_for("the access log", lambda: len(nginx.access()) >= 2)
        entry = nginx.access()[-1]
        fields = dict(entry.fields)
        assert (entry.node, entry.status, StreamKey.parse(entry.key)) == ("edge", 200, KEY)
        assert (fields["upstream_status"], fields["server_protocol"]) == ("200", "HTTP/1.1")
        assert all(float(fields[name]) >= 0 for name in fields if name.endswith("_time"))
        assert stacks.read_errors("nginx", nginx.log("error")) == ()
    kept = (file for file in nginx.folder.rglob("*") if file.is_file())
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]


def test_nginx_tells_its_version(lay: Lay, version: str) -> None:
    """The version that the spec names is the one that the binary tells."""
    launched = lay(Node(kind="nginx"))
    told = launched.run(launched.spec.version_argv)
    assert f"nginx version: nginx/{launched.spec.version}" in told.stderr
    assert launched.spec.version.startswith(f"{version}.")


def test_nginx_reloaded_serves_old_and_new_streams(lay: Lay, tls: Tls) -> None:
    """A reload leaves the stream in flight alone; another worker takes the requests after it."""
    Origin.release.clear()
    with started(lay(LINES["unbuffered"]), tls) as nginx:
        slow = nginx.connect()
        slow.request("GET", "/slow")
        answer = slow.getresponse()
        assert answer.read(2) == b"ab"
        workers = children(nginx.process.pid)
        nginx.process.send_signal(signal.Signals[nginx.spec.reload_signal])
        wait_for("a new worker", lambda: bool(children(nginx.process.pid) - workers))
        assert nginx.get("/v1/models") == (200, b"abcd")
        Origin.release.set()
        assert answer.read() == b"cd"
        slow.close()


def children(pid: int) -> set[int]:
    """The processes that this one has started."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def test_nginx_with_a_taken_port_says_so(lay: Lay) -> None:
    """The text that the launcher looks for is what nginx says when somebody holds its port."""
    launched = lay(Node(kind="nginx"))
    with socket.create_server(("127.0.0.1", launched.port)):
        failed = launched.run(launched.spec.argv)
    assert failed.returncode != 0
    assert launched.spec.port_taken_text in failed.stderr
    errors = stacks.read_errors("nginx", (launched.folder / "logs/error.log").read_text("utf-8"))
    assert any(launched.spec.port_taken_text in error for error in errors)


def test_nginx_with_a_dead_origin_logs_it(lay: Lay, tls: Tls) -> None:
    """The error log's line is read back, without its ids."""
    launched = lay(
        Node(kind="nginx", server_lines=("location /dead { proxy_pass http://127.0.0.1:1; }",))
    )
    with started(launched, tls) as nginx:
        assert nginx.get("/dead")[0] == 502
        (error,) = stacks.read_errors("nginx", nginx.log("error"))
    assert error.startswith("error: connect() failed (111: Connection refused)")


def test_debian_template_keeps_the_package_s_own_lines() -> None:
    """Each statement of the package's nginx.conf is in ours, but for those that are re-homed."""
    reason = stacks.available(Node(kind="nginx", version="1.22"))
    if reason:
        pytest.skip(reason)
    rehomed = {"user", "worker_processes", "pid", "error_log", "access_log", "include"}
    package = (debian_folder() / "etc/nginx/nginx.conf").read_text("utf-8")
    ours = statements(render(Node(kind="nginx"), Package.DEBIAN, root=False))
    kept = {(s.name, s.arguments, s.context) for s in ours}
    shipped = [s for s in statements(package) if s.name not in rehomed]
    assert len(shipped) > 5
    assert [s for s in shipped if (s.name, s.arguments, s.context) not in kept] == []
