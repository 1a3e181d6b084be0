"""The catalogue of faults: one small module each, found by its name. A new fault is a new file
here.

A module holds `NAME`, `LAYER`, `PARAMETERS` (name → default, the unit last in the name), `SOURCE`,
and for the stream layer `stage(injection, number, connection, opened_ns)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from harness.errors import PlanError
from harness.model import Fault


def names() -> tuple[str, ...]:
    """All faults, sorted, by the names that scenarios use."""
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__)))


def module(name: str) -> ModuleType:
    """The module of a fault.

    Raises:
        PlanError: there is none of this name.
    """
    if name not in names():
        raise PlanError(f"no fault {name!r}", todo=f"there are: {', '.join(names())}")
    return importlib.import_module(f"faults.{name.replace('-', '_')}")


def fault(name: str, **parameters: int) -> Fault:
    """A fault with its parameters, the others at their defaults.

    Raises:
        PlanError: an unknown fault or parameter.
    """
    found = module(name)
    unknown = parameters.keys() - found.PARAMETERS.keys()
    if unknown:
        known = ", ".join(found.PARAMETERS) or "none"
        raise PlanError(f"{name} has no parameter {sorted(unknown)[0]!r}", todo=f"it has: {known}")
    values = {**found.PARAMETERS, **parameters}
    return Fault(name=found.NAME, layer=found.LAYER, parameters=tuple(values.items()))


def stage(fault: Fault) -> str:
    """Where the relay finds what makes this fault's stage, as `module:function`."""
    return f"{module(fault.name).__name__}:stage"
