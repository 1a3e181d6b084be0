"""The folder that keeps unpacked parts between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Folder that keeps unpacked parts between runs; `STREAMCHAOS_CACHE` names another."""
    return Path(os.environ.get("STREAMCHAOS_CACHE") or Path.home() / ".cache" / "streamchaos")
