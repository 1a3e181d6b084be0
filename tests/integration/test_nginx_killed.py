"""A killed nginx master leaves workers that still accept. None of them outlives us."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from harness.launch.process import ProcessLauncher
from harness.launch.processes import Keeper
from harness.launch.sandbox import HostSandbox
from harness.model import Node
from stacks.nginx.node import node_spec as nginx_spec
from stacks.reference.node import node_spec as engine_spec
from tests.conditions import eventually

REPEATS = 20
NGINX = nginx_spec(Node(kind="nginx", version="1.31"), name="nginx")


async def engine(launcher: ProcessLauncher, folder: Path) -> str:
    """An engine for nginx to lead to; its address."""
    spec = engine_spec(Node(kind="reference"), name="engine")
    node = await launcher.start(spec, upstream="", tls=None, folder=folder)
    return f"{launcher.sandbox.url_host}:{node.ports['http']}"


def workers(folder: Path) -> list[psutil.Process]:
    """nginx processes that work in this folder."""
    return [
        process
        for process in psutil.process_iter(["name"])
        if process.info["name"] == "nginx" and _cwd(process) == str(folder)
    ]


def _cwd(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:
        return ""


@pytest.mark.timeout(180)
async def test_workers_of_a_killed_master_are_gone_after_stop(tmp_path: Path) -> None:
    """They live on and accept, until the node is stopped; twenty times over."""
    async with Keeper() as keeper:
        launcher = ProcessLauncher(keeper, HostSandbox())
        upstream = await engine(launcher, tmp_path / "engine")
        for number in range(REPEATS):
            folder = tmp_path / str(number)
            nginx = await launcher.start(NGINX, upstream=upstream, tls=None, folder=folder)
            os.kill(nginx.pid, signal.SIGKILL)
            await eventually(lambda n=nginx: n.exit_status == -signal.SIGKILL)  # type: ignore[misc]
            assert workers(folder)
            with socket.create_connection(("127.0.0.1", nginx.ports["http"])):
                await launcher.stop(nginx)
            assert workers(folder) == []
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", nginx.ports["http"]))


async def test_workers_of_a_killed_master_are_gone_when_the_harness_is(tmp_path: Path) -> None:
    """Nobody stopped the node: the keeper ends what is left."""
    async with Keeper() as keeper:
        launcher = ProcessLauncher(keeper, HostSandbox())
        upstream = await engine(launcher, tmp_path / "engine")
        folder = tmp_path / "nginx"
        nginx = await launcher.start(NGINX, upstream=upstream, tls=None, folder=folder)
        os.kill(nginx.pid, signal.SIGKILL)
        await eventually(lambda: nginx.exit_status is not None)
        assert workers(folder)
    assert workers(folder) == []
