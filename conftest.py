"""Composition root of our own tests. Options and markers come from the plugin, not from here."""

from __future__ import annotations

import os

from hypothesis import settings

# A deadline judges the machine, not the code. In CI the same examples are tried each time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
