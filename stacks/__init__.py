"""The kinds of nodes, one folder each, found by their folders: a new kind is a new folder.

The contract of a folder stands in `stacks/README.md`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import ModuleType

from harness.errors import MissingPart, PlanError
from harness.model import AccessEntry, Node, NodeSpec


def kinds() -> tuple[str, ...]:
    """The kinds that there are, sorted: folders of this package with a module `node`."""
    folders = (module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return tuple(
        sorted(kind for kind in folders if importlib.util.find_spec(f"stacks.{kind}.node"))
    )


def _module(kind: str, name: str) -> ModuleType | None:
    if kind not in kinds():
        raise PlanError(f"no kind of node {kind!r}", todo=f"there are: {', '.join(kinds())}")
    full = f"stacks.{kind}.{name}"
    return importlib.import_module(full) if importlib.util.find_spec(full) else None


def node_spec(node: Node, *, name: str) -> NodeSpec:
    """How to run this node, told by its kind.

    Raises PlanError for an unknown kind or lines that cannot be used, MissingPart where its
    version is not on this machine.
    """
    module = _module(node.kind, "node")
    spec: NodeSpec = module.node_spec(node, name=name)  # type: ignore[union-attr]
    return spec


def available(node: Node) -> str:
    """Empty where this node can run here, else why not and the command that changes it."""
    try:
        node_spec(node, name=node.name or node.kind)
    except MissingPart as missing:
        return str(missing)
    return ""


def read_access(kind: str, text: str, node: str) -> tuple[AccessEntry, ...]:
    """What the access log of a node of this kind says; nothing for a kind that keeps none."""
    module = _module(kind, "access")
    entries: tuple[AccessEntry, ...] = module.read_access(text, node) if module else ()
    return entries


def read_errors(kind: str, text: str) -> tuple[str, ...]:
    """The lines of an error log from `warn` upward, without times and ids, told by its kind."""
    module = _module(kind, "access")
    errors: tuple[str, ...] = module.read_errors(text) if module else ()
    return errors
