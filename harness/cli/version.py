"""What runs here."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The version of streamchaos, or `unknown` where it runs without being installed."""
    try:
        return importlib.metadata.version("streamchaos")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
