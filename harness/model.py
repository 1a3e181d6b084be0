"""The types that pass between the parts: frozen, no I/O. Units stand last in a name; times are
CLOCK_MONOTONIC ns.

Reading order: Stack and NodeSpec (what runs), StreamScript and Workload (what is asked of it),
Scenario (what is tried), StreamTrace and Recording (what was seen), Finding and Outcome (what it
means).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

# --------------------------------------------------------------------------------------- vocabulary


class Direction(StrEnum):
    """Which way bytes move on a hop (RFC 9110 §3.7: inbound is toward the origin)."""

    TOWARD_ORIGIN = "toward_origin"
    TOWARD_CLIENT = "toward_client"


class WireProtocol(StrEnum):
    """How a stream crosses a hop."""

    SSE_H1 = "sse-h1"


class Layer(StrEnum):
    """Where a fault is made; the driver is chosen by it, never by the fault."""

    CONTENT = "content"
    FRAME = "frame"
    STREAM = "stream"
    PACKET = "packet"
    NODE = "node"


class LinkKind(StrEnum):
    """What sits on a hop: nothing, a recorder, or a recorder that breaks."""

    DIRECT = "direct"
    TAP = "tap"
    TOXIC = "toxic"


class Lane(StrEnum):
    """A case is measured through the stack, direct to the engine, and direct again (A/A)."""

    THROUGH = "through"
    DIRECT = "direct"
    AA = "aa"


class Load(StrEnum):
    """What a scenario asks of the machine: alone; at most two; at most eight side by side."""

    MEASURES = "measures"
    SHAPE = "shape"
    WAITS = "waits"


class Leave(StrEnum):
    """How a client goes away."""

    FIN = "fin"
    RST = "rst"
    CLOSE_NOTIFY = "close_notify"


class Verdict(StrEnum):
    """What a check says of the stack."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


class Cause(StrEnum):
    """Why a verdict is unknown."""

    NOISE = "noise"
    TOO_FEW = "too_few"
    NOT_FIRED = "not_fired"
    CONTROL_FAILED = "control_failed"
    WITNESS_MISSING = "witness_missing"
    CLOCK = "clock"


class Told(StrEnum):
    """What an outcome says of the suite."""

    AS_TOLD = "as_told"
    NOT_AS_TOLD = "not_as_told"
    UNDECIDED = "undecided"
    HARNESS_ERROR = "harness_error"


class Strength(StrEnum):
    """How binding a check's property is; `observe` never fails a run."""

    MUST = "must"
    SHOULD = "should"
    OBSERVE = "observe"


class SymptomKind(StrEnum):
    """What was seen, in a word that a directive can explain."""

    HELD = "held"
    COALESCED = "coalesced"
    OFF_SCHEDULE = "off_schedule"
    ALTERED = "altered"
    DUPLICATED = "duplicated"
    TRUNCATED_SILENTLY = "truncated_silently"
    CUT = "cut"
    ENDED_WRONG = "ended_wrong"
    REQUEST_REPEATED = "request_repeated"
    REQUEST_LOST = "request_lost"
    CANCEL_LATE = "cancel_late"
    CANCEL_LOST = "cancel_lost"
    BLOCKS_LEAKED = "blocks_leaked"
    METRICS_WRONG = "metrics_wrong"
    CONTRADICTED = "contradicted"


class EndReason(StrEnum):
    """How a stream ended at a vantage point. Exactly one of them closes each trace."""

    TERMINATOR = "terminator"
    ERROR_EVENT = "error_event"
    CLEAN_EOF_WITHOUT_TERMINATOR = "clean_eof_without_terminator"
    INCOMPLETE_FRAMING = "incomplete_framing"
    RESET = "reset"
    RST_STREAM = "rst_stream"
    GOAWAY = "goaway"
    CLOSE_CODE = "close_code"
    IDLE_TIMEOUT = "idle_timeout"
    CLIENT_CANCEL = "client_cancel"
    DEADLINE = "deadline"


class Framing(StrEnum):
    """How an HTTP/1.1 body is delimited (RFC 9112 §6.3)."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"
    NONE = "none"


class EventKind(StrEnum):
    """What an event of the answer carries, by the API's grammar."""

    CONTENT = "content"
    EMPTY = "empty"
    FINISH = "finish"
    USAGE = "usage"
    ERROR = "error"
    TERMINATOR = "terminator"
    COMMENT = "comment"
    OTHER = "other"


# -------------------------------------------------------------------------------------- what is run

PLACEHOLDER = re.compile(r"@\{([a-z_]+(?:\.[a-z0-9_-]+)?)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """A line of a configuration that can explain symptoms, or a line whose absence does.

    `line` counts from 1 in `file`; `missing` means that the default is what bites and `line` is
    where the cure belongs.
    """

    file: str
    line: int
    text: str
    explains: tuple[SymptomKind, ...]
    cure: str
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """A file that a node needs, by its path below the node's folder. Text holds placeholders (see
    NodeSpec)."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """A real request that is answered with `status` once the node serves. `tls` asks over TLS."""

    port: str
    path: str = "/health"
    status: int = 200
    tls: bool = False
    deadline_ms: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """How to run one node, as data. Both launchers execute it.

    `ours` marks a program of this project: that it ends by itself is our failure, not the stack's.

    Texts (argv, env values, files) hold placeholders that the launcher fills in when ports are
    known: `@{dir}` the node's own writable folder · `@{port.NAME}` a port of this node ·
    `@{listen}` the address to bind · `@{upstream}` host:port of the next hop toward the engine ·
    `@{tls_cert}`, `@{tls_key}` PEM files for the listener.
    """

    name: str
    kind: str
    version: str
    argv: tuple[str, ...]
    ports: tuple[str, ...] = ("http",)
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[NodeFile, ...] = ()
    folders: tuple[str, ...] = ()
    readiness: Readiness
    version_argv: tuple[str, ...] = ()
    check_argv: tuple[str, ...] = ()
    reload_signal: str = ""
    stop_signal: str = "SIGTERM"
    stop_grace_ms: int = 2_000
    logs: tuple[tuple[str, str], ...] = ()
    port_taken_text: str = "Address already in use"
    image: str = ""
    timer_grain_ms: int = 1
    directives: tuple[Directive, ...] = ()
    ours: bool = False

    def log_path(self, role: str) -> str | None:
        """Path below the node's folder of the log with this role (`access`, `error`, `engine`), or
        None."""
        return dict(self.logs).get(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process that ends transport connections, by what it is rather than how it is run.

    `kind` is a folder of stacks/; `version` a version or alias it knows; `lines` are directives put
    in the place that the kind calls its streaming location, `server_lines` at the listener,
    `global_lines` at the top. `tls` ends TLS at its listener.
    """

    kind: str
    version: str = ""
    name: str = ""
    lines: tuple[str, ...] = ()
    server_lines: tuple[str, ...] = ()
    global_lines: tuple[str, ...] = ()
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """An ordered chain of nodes from the client's side to the engine, which is the last."""

    id: str
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """A stack without a node has nothing to ask."""
        if not self.nodes:
            raise ValueError(f"stack {self.id!r} has no node")

    @property
    def engine_index(self) -> int:
        """Index of the engine; also the number of the hop in front of it."""
        return len(self.nodes) - 1


# ------------------------------------------------------------------------------------ what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A silence of the engine: after `after_events` content events nothing is generated for
    `silence_ms`."""

    after_events: int
    silence_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScript:
    """What the engine is to produce, known beforehand byte for byte: the oracle.

    `event_bytes` is the size of one SSE event on the wire of the decoded body, ±
    `event_bytes_spread`; `gap_ms` lies between two content events; the first leaves
    `first_token_ms` after the request arrived. `comment_every_ms` 0 means no keep-alive comments.
    """

    event_count: int = 60
    event_bytes: int = 250
    event_bytes_spread: float = 0.1
    first_token_ms: int = 20
    gap_ms: int = 50
    pauses: tuple[Pause, ...] = ()
    comment_every_ms: int = 0
    accel_buffering: str = ""
    include_usage: bool = False
    seed: int = 0

    def due_ms(self, event_index: int) -> int:
        """When content event `event_index` (from 0) is to leave, in ms after the request
        arrived."""
        silence_ms = sum(p.silence_ms for p in self.pauses if p.after_events <= event_index)
        return self.first_token_ms + event_index * self.gap_ms + silence_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """What the reference engine gets wrong on purpose: the ground truth that checks are tested on.
    All off by default."""

    close_delimited: bool = False
    http10_chunked: bool = False
    content_length: bool = False
    late_headers: bool = False
    no_terminator: bool = False
    error_event_after: int = 0
    cut_after_events: int = 0
    cut_by: Leave = Leave.FIN
    clump_events: int = 1
    stall_after_events: int = 0
    stall_ms: int = 0
    duplicate_event: int = 0
    alter_event: int = 0
    no_tcp_nodelay: bool = False
    close_learned_on_write: bool = False
    ignores_cancel: bool = False
    reaps_orphans_after_ms: int = 0
    frees_late_ms: int = 0
    frees_never: bool = False
    frees_twice: bool = False
    stale_gauges: bool = False
    dead_abort_counter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The client leaves by `how` once it has `after_events` content events (0: as soon as the
    request is sent, `after_ms` later)."""

    how: Leave = Leave.FIN
    after_events: int = 0
    after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the client asks and does: `streams` per lane, started `stagger_ms` apart in the order of
    the lanes.

    `script` goes to an engine that can play one; other engines get its token count. `deadline_ms`
    bounds each stream.
    """

    protocol: WireProtocol = WireProtocol.SSE_H1
    endpoint: str = "/v1/completions"
    script: StreamScript = field(default_factory=StreamScript)
    defects: Defects = field(default_factory=Defects)
    lanes: tuple[Lane, ...] = (Lane.DIRECT, Lane.THROUGH, Lane.THROUGH, Lane.DIRECT)
    stagger_ms: int = 120
    accept_encoding: str = ""
    cancel: Cancel | None = None
    sample_metrics: bool = False
    deadline_ms: int = 30_000


# ----------------------------------------------------------------------------------- what is broken


class TriggerKind(StrEnum):
    """What the start of a fault waits for. Progress before time."""

    CONNECT = "connect"
    HEADERS = "headers"
    EVENTS = "events"
    BYTES = "bytes"
    ELAPSED = "elapsed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Arms a fault at `kind`, after `count` events or bytes, or `after_ms` as the last resort."""

    kind: TriggerKind = TriggerKind.CONNECT
    count: int = 0
    after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A named fault with its parameters (units in their names). The catalogue (`faults/`) knows
    what it does."""

    name: str
    layer: Layer
    parameters: tuple[tuple[str, int], ...] = ()

    def parameter(self, name: str) -> int:
        """Value of a parameter; KeyError where the fault has none of this name."""
        return dict(self.parameters)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault placed on a hop and direction, with its trigger. `heal_after_ms` 0 means: stays until
    the drain."""

    fault: Fault
    hop: int
    direction: Direction = Direction.TOWARD_CLIENT
    trigger: Trigger = field(default_factory=Trigger)
    heal_after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A check is told to come out as `verdict`; `culprit` names the node to be blamed where that is
    told too."""

    check: str
    verdict: Verdict
    because: str = ""
    culprit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fully resolved run with a stable id (`[a-z0-9-]` and `/`).

    Checks that are not named in `expectations` are told to pass or not to apply. `needs` are parts
    by name (`nginx@1.22`).
    """

    id: str
    title: str
    stack: Stack
    workload: Workload = field(default_factory=Workload)
    injections: tuple[Injection, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    checks: tuple[str, ...] = ()
    because: str = ""
    partner: str = ""
    differs: tuple[str, ...] = ()
    measured_before: str = ""
    needs: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ("full",)
    load: Load = Load.SHAPE
    time_divisor: int = 10
    seed: int = 0
    deadline_ms: int = 60_000

    def __post_init__(self) -> None:
        """Ids serve as pytest ids, folder names and patterns alike."""
        if not re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)*", self.id):
            raise ValueError(f"scenario id {self.id!r}: only [a-z0-9-] and / are allowed")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StreamKey:
    """Names one stream everywhere: `run.scenario.lane.n`, sent as X-Streamchaos-Id and X-Request-Id
    and as the prompt's prefix."""

    run: str
    scenario: str
    lane: Lane
    n: int

    def __str__(self) -> str:
        """The form that goes on the wire; `/` of the scenario id becomes `_`."""
        return f"{self.run}.{self.scenario.replace('/', '_')}.{self.lane}.{self.n}"

    @classmethod
    def parse(cls, text: str) -> StreamKey | None:
        """The key that `str()` gave, or None for anything else."""
        parts = text.split(".")
        if len(parts) != 4 or parts[2] not in Lane._value2member_map_ or not parts[3].isdigit():
            return None
        return cls(
            run=parts[0], scenario=parts[1].replace("_", "/"), lane=Lane(parts[2]), n=int(parts[3])
        )


# ------------------------------------------------------------------------------------ what was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A point in time with its bound: it happened in [`earliest_ns`, `at_ns`]. `kernel` tells who
    stamped.

    `earliest_ns` is the entry of the poll before the one that found the bytes (measurement.md §5),
    or the kernel's own stamp where the read held nothing older.
    """

    at_ns: int
    earliest_ns: int
    kernel: bool = False

    @property
    def error_ns(self) -> int:
        """Width of the bound."""
        return self.at_ns - self.earliest_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One SSE event (or comment) of an answer as one vantage point saw it.

    `end_offset` counts bytes of the decoded body up to the event's end; `read_index` tells which
    read completed it: events of one read share it. `left` is when a tap had written it on; None at
    the client and where it never left.
    """

    index: int
    kind: EventKind
    end_offset: int
    size_bytes: int
    digest: str
    read_index: int
    arrived: Stamp
    left: Stamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """The one end of a trace. `terminators` counts `[DONE]`s; `after_terminator_bytes` is what came
    behind it."""

    reason: EndReason
    at_ns: int
    detail: str = ""
    terminators: int = 0
    after_terminator_bytes: int = 0
    last_chunk_seen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTrace:
    """One answer as one vantage point saw it. `hop` is the number of the hop; the client's own
    trace has `client` True.

    Times: `request_ns` the first byte of the request (client: handed to the kernel after TLS; tap:
    arrived), `head` the read that completed the response's head. `body_bytes` and `body_digest`
    (SHA-256) are of the decoded body, `wire_bytes` of the body before content decoding.
    """

    key: StreamKey
    hop: int
    client: bool
    request_ns: int
    status: int = 0
    http_version: str = ""
    framing: Framing = Framing.NONE
    headers: tuple[tuple[str, str], ...] = ()
    head: Stamp | None = None
    head_left: Stamp | None = None
    events: tuple[StreamEvent, ...] = ()
    end: StreamEnd
    wire_bytes: int = 0
    body_bytes: int = 0
    body_digest: str = ""
    request_http_version: str = ""
    origin_closed_ns: int = 0
    client_closed_ns: int = 0

    def content_events(self) -> tuple[StreamEvent, ...]:
        """The events that carry content, in order."""
        return tuple(e for e in self.events if e.kind is EventKind.CONTENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the engine's log: `what` is received, admitted, finished, aborted, freed, … with
    the request's key."""

    at_ns: int
    what: str
    key: str
    request: str
    blocks: int = 0
    events: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """What a proxy's access log says of one exchange: the proxy as a witness."""

    node: str
    key: str
    status: int
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """Evidence of one firing: which injection, on which connection, at which byte and event, when
    planned and when done."""

    injection: int
    connection: int
    at_ns: int
    byte_offset: int = 0
    event_index: int = 0
    planned_ns: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """All that is known of one stream: the client's trace, the taps' by hop, the engine's log, the
    access logs.

    `engine_requests` counts arrivals of its key at the engine. `oracle_digests` are those of the
    events its script asks for.
    """

    key: StreamKey
    client: StreamTrace | None = None
    taps: tuple[StreamTrace, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    access: tuple[AccessEntry, ...] = ()
    oracle_digests: tuple[str, ...] = ()

    def tap(self, hop: int) -> StreamTrace | None:
        """The first trace of this stream on that hop."""
        return next((t for t in self.taps if t.hop == hop), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """The instrument's own doubts in one recording: poll lag and sleep jitter (p99, max), clock
    steps, tap residence."""

    poll_lag_ns_p99: int = 0
    poll_lag_ns_max: int = 0
    sleep_jitter_ns_p99: int = 0
    sleep_jitter_ns_max: int = 0
    clock_steps: int = 0
    tap_residence_ns_p99: int = 0
    tap_residence_ns_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """A node as it ran: its version as it told it, its directives (for blame), what its error log
    said."""

    name: str
    kind: str
    version: str
    directives: tuple[Directive, ...] = ()
    errors: tuple[str, ...] = ()
    exited: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One reading of the engine's /metrics: before a poke (a one-token request) or after it."""

    at_ns: int
    poked: bool
    values: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything observed in one scenario, joined. `unkeyed` lists exchanges without a key; nothing
    is guessed by time. `broken_off`: the run was stopped or killed before its end.
    """

    scenario: Scenario
    nodes: tuple[NodeRun, ...] = ()
    streams: tuple[Stream, ...] = ()
    unkeyed: tuple[str, ...] = ()
    fired: tuple[Fired, ...] = ()
    metrics: tuple[MetricSample, ...] = ()
    self_check: SelfCheck = field(default_factory=SelfCheck)
    broken_off: bool = False
    notes: tuple[str, ...] = ()

    def lane(self, *lanes: Lane) -> tuple[Stream, ...]:
        """The streams of these lanes, in order of their numbers."""
        return tuple(s for s in self.streams if s.key.lane in lanes)

    @property
    def engine(self) -> NodeRun:
        """The last node."""
        return self.nodes[-1]


# ------------------------------------------------------------------------------------ what it means


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a check sees: the recording, and the control run's where the scenario has injections."""

    subject: Recording
    control: Recording | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What was seen at which node (or hop), for blame to explain."""

    kind: SymptomKind
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a trace: stream, vantage (`client`, `hop1`), event index; evidence for a
    finding."""

    key: str
    vantage: str
    event_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says of one recording, with what it expected, what it saw and where, and who
    is to blame.

    `cause` and `settle` (what would settle it) are given exactly when the verdict is unknown.
    `directive_proven` is True only where the same run showed green without that line.
    """

    check: str
    verdict: Verdict
    strength: Strength = Strength.MUST
    expected: str = ""
    actual: str = ""
    cause: Cause | None = None
    settle: str = ""
    symptom: Symptom | None = None
    culprit: str = ""
    directive: Directive | None = None
    directive_proven: bool = False
    advice: str = ""
    evidence: tuple[Position, ...] = ()
    figures: tuple[tuple[str, float], ...] = ()
    also_without_fault: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a scenario came out against what was told. `figures` are the arm's; `attempts` counts
    runs, all of them kept."""

    scenario: str
    title: str
    told: Told
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    figures: tuple[tuple[str, float], ...] = ()
    attempts: int = 1
    folder: str = ""
    error: str = ""
    skipped: str = ""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run: its manifest and its outcomes. JSON is canonical (`streamchaos.report/1`), the rest is
    rendered from it."""

    format: str
    run: str
    title: str
    seed: int
    engine: str
    time_divisor: int
    started_utc: str
    command: str
    versions: tuple[tuple[str, str], ...]
    outcomes: tuple[Outcome, ...]
    folder: str = ""
