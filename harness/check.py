"""The registry of checks, and what makes a verdict of what one of them says.

A check is a function from Evidence to Finding in a module of `harness/checks/`, registered by
`@check`; it judges one property of one recording. What holds for all of them stands here: no pass
without proof that each injection fired and that the control does not fail the same check, no timing
verdict on a doubtful instrument. `judge` holds findings against what the scenario told.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import harness.checks
from harness.errors import HarnessError, UsageError
from harness.model import (
    Cause,
    Evidence,
    Expectation,
    Finding,
    Recording,
    Scenario,
    Strength,
    Told,
    Verdict,
)

CheckFunction = Callable[[Evidence], Finding]

# A tap that held bytes for longer bends what its neighbours seem to do by half the limit of the
# strictest timing check.
TAP_RESIDENCE_LIMIT_NS = 50_000_000

WORST_FIRST = (Told.HARNESS_ERROR, Told.NOT_AS_TOLD, Told.UNDECIDED, Told.AS_TOLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check; `judge` fills in its name, strength and source, `timing` rests on stamps."""

    name: str
    strength: Strength
    source: str
    summary: str
    timing: bool
    judge: CheckFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the checks said, and which of them crashed: pairs of name and traceback."""

    findings: tuple[Finding, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()


_registry: dict[str, Check] = {}


def check(
    *, strength: Strength = Strength.MUST, source: str = "", timing: bool = False
) -> Callable[[CheckFunction], CheckFunction]:
    """Registers a check under its function's name.

    Args:
        strength: how binding the property is.
        source: where it is demanded or was seen broken.
        timing: it rests on stamps, so the instrument's own doubts outweigh its fails.

    Raises:
        HarnessError: two checks bear one name.
    """

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__

        @functools.wraps(function)
        def judged(evidence: Evidence) -> Finding:
            return replace(function(evidence), check=name, strength=strength, source=source)

        if name in _registry:
            raise HarnessError(f"two checks are named {name!r}", where=function.__module__)
        summary = (function.__doc__ or "").strip().split("\n", 1)[0]
        _registry[name] = Check(
            name=name,
            strength=strength,
            source=source,
            summary=summary,
            timing=timing,
            judge=judged,
        )
        return judged

    return register


@functools.cache
def _discover() -> None:
    for module in pkgutil.iter_modules(harness.checks.__path__, "harness.checks."):
        importlib.import_module(module.name)


def names() -> tuple[str, ...]:
    """The names of all checks, sorted."""
    _discover()
    return tuple(sorted(_registry))


def get(name: str) -> Check:
    """The check of this name.

    Raises:
        UsageError: there is none; the text lists those that exist.
    """
    _discover()
    found = _registry.get(name)
    if found is None:
        raise UsageError(f"there is no check {name!r}", todo=f"checks: {', '.join(names())}")
    return found


def describe() -> tuple[Check, ...]:
    """All checks in the order of their names, for listing."""
    return tuple(get(name) for name in names())


# ------------------------------------------------------------------------------------- evaluation


def evaluate(evidence: Evidence, check_names: Iterable[str] | None = None) -> Evaluation:
    """What the checks say of the evidence: those named, else those the scenario names, else all.

    A check that crashes is our failure: it stands in `errors` with its traceback, and the others
    are still judged.

    Raises:
        UsageError: a name that is no check's.
    """
    chosen = tuple(check_names or evidence.subject.scenario.checks or names())
    findings: list[Finding] = []
    errors: list[tuple[str, str]] = []
    for one in [get(name) for name in dict.fromkeys(chosen)]:
        try:
            findings.append(_proven(one, evidence))
        except Exception:  # noqa: BLE001 - a crash is a value; the others are judged
            errors.append((one.name, traceback.format_exc()))
    return Evaluation(findings=tuple(findings), errors=tuple(errors))


def _proven(one: Check, evidence: Evidence) -> Finding:
    """The check's finding after the rules that bind all checks."""
    finding = _trusted(one, evidence.subject, one.judge(evidence))
    if not evidence.subject.scenario.injections:
        return finding
    if finding.verdict not in (Verdict.PASS, Verdict.FAIL):
        return finding
    control_verdict = _control_verdict(one, evidence.control)
    if finding.verdict is Verdict.FAIL:
        return replace(finding, also_without_fault=control_verdict is Verdict.FAIL)
    silent = _not_fired(evidence.subject)
    if silent:
        settle = "a run in which each injection leaves evidence"
        return _doubted(finding, Cause.NOT_FIRED, f"no evidence of {', '.join(silent)}", settle)
    if control_verdict is None:
        return _doubted(finding, Cause.CONTROL_FAILED, "no control run", "a run without the faults")
    if control_verdict is Verdict.FAIL:
        settle = "a configuration that passes without the faults"
        return _doubted(finding, Cause.CONTROL_FAILED, "fails without the faults too", settle)
    return finding


def _control_verdict(one: Check, control: Recording | None) -> Verdict | None:
    """The same check's verdict on the control; None where no control was recorded."""
    if control is None or not control.streams:
        return None
    return _trusted(one, control, one.judge(Evidence(subject=control))).verdict


def _not_fired(recording: Recording) -> tuple[str, ...]:
    """Those planned injections that left no evidence, in words."""
    fired = {firing.injection for firing in recording.fired}
    planned = enumerate(recording.scenario.injections)
    return tuple(
        f"{injection.fault.name} on hop {injection.hop}"
        for index, injection in planned
        if index not in fired
    )


def _trusted(one: Check, recording: Recording, finding: Finding) -> Finding:
    """Nothing of a run that broke off; a timing verdict only as far as the instrument vouches."""
    doubts = recording.self_check
    if recording.broken_off and finding.verdict is not Verdict.NOT_APPLICABLE:
        reason = "the run was stopped before its end"
        return _doubted(finding, Cause.WITNESS_MISSING, reason, "a run that comes to its end")
    if not one.timing or finding.verdict not in (Verdict.PASS, Verdict.FAIL):
        return finding
    if doubts.clock_steps and any(_kernel_stamps(recording)):
        steps = f"the clock stepped {doubts.clock_steps} times under kernel stamps"
        return _doubted(finding, Cause.CLOCK, steps, "a run in which the wall clock is not set")
    if finding.verdict is Verdict.FAIL and doubts.tap_residence_ns_max > TAP_RESIDENCE_LIMIT_NS:
        held_ms = doubts.tap_residence_ns_max / 1e6
        reason = f"a tap of ours held bytes for {held_ms:.0f} ms"
        return _doubted(finding, Cause.NOISE, reason, "a run on a quieter machine")
    return finding


def _kernel_stamps(recording: Recording) -> Iterator[bool]:
    for stream in recording.streams:
        traces = (*stream.taps, *([stream.client] if stream.client else []))
        for trace in traces:
            yield from (event.arrived.kernel for event in trace.events)


def _doubted(finding: Finding, cause: Cause, reason: str, settle: str) -> Finding:
    """The finding taken back: it blames nobody, and keeps what it saw."""
    return replace(
        finding,
        verdict=Verdict.UNKNOWN,
        cause=cause,
        settle=settle,
        actual=f"{finding.actual}; {reason}" if finding.actual else reason,
        symptom=None,
        culprit="",
    )


# -------------------------------------------------------------------------------------- judgement


def judge(scenario: Scenario, evaluation: Evaluation) -> tuple[Told, tuple[str, ...]]:
    """Whether the findings came out as the scenario told, and why not.

    A check that no expectation names is told to pass or not to apply. `observe` never counts, and a
    `should` that nobody named may stay unknown. Nothing judged is undecided, never as told.
    """
    verdicts: list[tuple[Told, str]] = [
        (Told.HARNESS_ERROR, f"{name} crashed: {text.strip().splitlines()[-1]}")
        for name, text in evaluation.errors
    ]
    crashed = {name for name, _ in evaluation.errors}
    found = {finding.check: finding for finding in evaluation.findings}
    expected = [e for e in scenario.expectations if e.check not in crashed]
    verdicts += [_as_expected(one, found.get(one.check)) for one in expected]
    named = {one.check for one in scenario.expectations}
    verdicts += [_unnamed(one) for one in evaluation.findings if one.check not in named]
    if not any(f.verdict in (Verdict.PASS, Verdict.FAIL) for f in evaluation.findings):
        verdicts.append((Told.UNDECIDED, f"{Cause.TOO_FEW}: no check could judge anything"))
    told = merge(told for told, _ in verdicts)
    return told, tuple(reason for _, reason in verdicts if reason)


def merge(verdicts: Iterable[Told]) -> Told:
    """The worst: harness_error, not_as_told, undecided, as_told; undecided where there is none."""
    seen = set(verdicts)
    return next((told for told in WORST_FIRST if told in seen), Told.UNDECIDED)


def _as_expected(expectation: Expectation, finding: Finding | None) -> tuple[Told, str]:
    if finding is None:
        return Told.UNDECIDED, f"{expectation.check} was told {expectation.verdict}, and not judged"
    if finding.strength is Strength.OBSERVE:
        return Told.AS_TOLD, ""
    told = str(expectation.verdict)
    if expectation.culprit:
        told += f" at {expectation.culprit}"
    reason = f"{_summary(finding)}; told was {told}"
    if finding.verdict is not expectation.verdict:
        unknown = finding.verdict is Verdict.UNKNOWN
        return (Told.UNDECIDED if unknown else Told.NOT_AS_TOLD), reason
    if expectation.culprit and expectation.culprit != finding.culprit:
        return Told.NOT_AS_TOLD, reason
    return Told.AS_TOLD, ""


def _unnamed(finding: Finding) -> tuple[Told, str]:
    if finding.strength is Strength.OBSERVE:
        return Told.AS_TOLD, ""
    if finding.verdict is Verdict.FAIL:
        return Told.NOT_AS_TOLD, f"{_summary(finding)}; nobody told so"
    if finding.verdict is Verdict.UNKNOWN and finding.strength is Strength.MUST:
        return Told.UNDECIDED, _summary(finding)
    return Told.AS_TOLD, ""


def _summary(finding: Finding) -> str:
    cause = f" ({finding.cause})" if finding.cause else ""
    where = f" at {finding.culprit}" if finding.culprit else ""
    seen = f": {finding.actual}" if finding.actual else ""
    return f"{finding.check} is {finding.verdict}{cause}{where}{seen}"
