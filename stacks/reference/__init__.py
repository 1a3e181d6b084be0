"""The reference engine: an OpenAI-compatible server whose every byte is known beforehand and whose
faults are switches.

Reading order: settings → schema → frames → ledger → scheduler (all without I/O), answer (framing,
without I/O), request and api (what was asked), delivery and server (the asyncio shell), log, node
(how the harness runs it).
"""

from __future__ import annotations
