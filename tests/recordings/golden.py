"""Which golden recording each check must fail on, and which it must pass on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Ids of the recorded scenarios, and who is to be blamed in the one that fails."""

    fails: str
    culprit: str
    passes: str


COMPLETE = "ending/complete"
SHORT = "story1/nginx-131-short-answer"
SHORT_HELD = "story1/nginx-131-http10-short-answer"
CANCELLED = "cancel/nginx-fin"

GOLDEN: dict[str, Pair] = {
    "first_event_not_held": Pair(fails=SHORT_HELD, culprit="nginx", passes=SHORT),
    "events_not_coalesced": Pair(fails=SHORT_HELD, culprit="nginx", passes=SHORT),
    "engine_on_schedule": Pair(
        fails="story1/engine-stalls", culprit="reference", passes=SHORT_HELD
    ),
    "payload_intact": Pair(fails="golden/engine-alters", culprit="reference", passes=COMPLETE),
    "no_silent_truncation": Pair(
        fails="ending/engine-cut-close-delimited",
        culprit="reference",
        passes="ending/engine-cut-chunked",
    ),
    "terminator_exactly_once": Pair(
        fails="ending/engine-no-terminator", culprit="reference", passes=COMPLETE
    ),
    "not_cut_before_engine_ended": Pair(
        fails="ending/limit-data-after-8-events", culprit="hop1", passes=COMPLETE
    ),
    "one_request_one_engine_request": Pair(
        fails="requests/nginx-mirror", culprit="nginx", passes="requests/nginx-once"
    ),
    "cancel_reaches_engine": Pair(
        fails="cancel/nginx-ignores-abort", culprit="nginx", passes=CANCELLED
    ),
    "kv_blocks_return": Pair(
        fails="cancel/engine-never-frees", culprit="reference", passes=CANCELLED
    ),
    "access_log_agrees": Pair(
        fails="golden/false-testimony", culprit="nginx", passes=COMPLETE
    ),
    "metrics_agree_with_ledger": Pair(
        fails="cancel/engine-dead-abort-counter", culprit="reference", passes="cancel/metrics"
    ),
}


def slug(scenario_id: str) -> str:
    """The folder of a recorded scenario."""
    return scenario_id.replace("/", "_")
