"""The contract's example is true: a kind is one folder, found by its name, and runs as data."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import stacks
from harness.errors import PlanError
from harness.model import PLACEHOLDER, Node, NodeSpec

README = Path(stacks.__file__).parent / "README.md"
ATTEMPTS = 200


class Health(BaseHTTPRequestHandler):
    """An engine that is only ever ready."""

    def do_GET(self) -> None:
        """Answers 200 with two bytes."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def upstream() -> Iterator[str]:
    """host:port of a ready engine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def forwarder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeSpec:
    """The spec of the example, got through the registry from a folder that holds nothing else."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    folder = tmp_path / "kinds/forwarder"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "node.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(stacks, "__path__", [*stacks.__path__, str(folder.parent)])
    return stacks.node_spec(Node(kind="forwarder"), name="middle")


def ask(port: int, path: str) -> int:
    """Status of a GET, asked again until somebody listens."""
    for _ in range(ATTEMPTS):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            threading.Event().wait(0.02)
        finally:
            connection.close()
    raise AssertionError(f"nobody listens on port {port}")


def test_readme_example_in_a_folder_of_its_own_runs(
    forwarder: NodeSpec, upstream: str, tmp_path: Path
) -> None:
    """With its placeholders filled in, the example passes its readiness request to the engine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    values = {"dir": str(tmp_path), "listen": "127.0.0.1", "port.http": str(port)}
    values["upstream"] = upstream

    def fill(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: values[match[1]], text)

    for file in forwarder.files:
        (tmp_path / file.path).write_text(fill(file.text), encoding="utf-8")
    with subprocess.Popen([fill(word) for word in forwarder.argv]) as process:
        try:
            assert ask(port, forwarder.readiness.path) == forwarder.readiness.status
        finally:
            process.kill()


def test_readme_example_is_a_kind_like_the_others(forwarder: NodeSpec) -> None:
    """The registry lists it, keeps no logs for it, and its directive is the line of its file."""
    assert {"forwarder", "nginx"} <= set(stacks.kinds())
    assert stacks.read_access("forwarder", "x\n", "middle") == ()
    assert stacks.read_errors("forwarder", "x\n") == ()
    (directive,) = forwarder.directives
    assert forwarder.files[0].text.splitlines()[directive.line - 1] == directive.text


def test_registry_of_unknown_kind_names_the_known() -> None:
    """A kind without a folder is refused with the list of those that have one."""
    with pytest.raises(PlanError, match="envoyer") as caught:
        stacks.node_spec(Node(kind="envoyer"), name="edge")
    assert "nginx" in caught.value.todo


def test_readme_names_each_placeholder_of_the_model() -> None:
    """The contract knows the placeholders that NodeSpec documents, and no other."""
    documented = set(re.findall(r"@\{([^}]+)\}", str(NodeSpec.__doc__)))
    named = set(
        re.findall(r"@\{([^}]+)\}", README.read_text("utf-8").replace("port.http", "port.NAME"))
    )
    assert named == documented
