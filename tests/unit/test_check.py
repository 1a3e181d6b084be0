"""The registry, the rules that bind all checks, and the judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import check as registry
from harness.check import Evaluation, check, describe, evaluate, get, judge, merge, names
from harness.checks.verdicts import failed, not_applicable, passed, unknown
from harness.errors import HarnessError, UsageError
from harness.model import (
    Cause,
    Evidence,
    Expectation,
    Fault,
    Finding,
    Fired,
    Injection,
    Layer,
    Recording,
    Scenario,
    SelfCheck,
    Stack,
    Strength,
    SymptomKind,
    Told,
    Verdict,
)
from tests.unit.recordings import MS, Case, Polls, bursting, cutting

INJECTED = (Injection(fault=Fault(name="latency", layer=Layer.STREAM), hop=1),)
FIRED = (Fired(injection=0, connection=1, at_ns=1),)
ALL = (
    "cancel_reaches_engine",
    "engine_on_schedule",
    "events_not_coalesced",
    "first_event_not_held",
    "kv_blocks_return",
    "metrics_agree_with_ledger",
    "no_silent_truncation",
    "not_cut_before_engine_ended",
    "one_request_one_engine_request",
    "payload_intact",
    "terminator_exactly_once",
)


def one(evidence: Evidence, name: str) -> Finding:
    """The only finding of the check of this name."""
    (finding,) = evaluate(evidence, [name]).findings
    return finding


def scenario(*expectations: Expectation) -> Scenario:
    return replace(Case().scenario(), expectations=expectations)


def finding(
    verdict: Verdict, name: str = "a", culprit: str = "", strength: Strength = Strength.MUST
) -> Finding:
    cause = Cause.NOISE if verdict is Verdict.UNKNOWN else None
    return Finding(check=name, verdict=verdict, culprit=culprit, cause=cause, strength=strength)


@pytest.fixture
def planted() -> Iterator[Callable[[str, Callable[[Evidence], Finding]], None]]:
    """Registers a check for the length of one test."""
    names()
    before = dict(registry._registry)

    def plant(name: str, function: Callable[[Evidence], Finding]) -> None:
        function.__name__ = name
        check(strength=Strength.SHOULD, source="RFC 1")(function)

    yield plant
    registry._registry.clear()
    registry._registry.update(before)


# --------------------------------------------------------------------------------------- registry


def test_registry_finds_every_module_of_checks() -> None:
    """A new file in the folder is all that a new check needs."""
    assert set(ALL) <= set(names())
    assert list(names()) == sorted(names())
    assert all(one.summary.endswith(".") and one.source for one in describe())


def test_registry_of_an_unknown_name_lists_those_that_exist() -> None:
    """A mistyped check is told, with the names to choose from."""
    with pytest.raises(UsageError, match="no check 'held'") as caught:
        get("held")
    assert "first_event_not_held" in str(caught.value)
    with pytest.raises(UsageError):
        evaluate(Evidence(subject=Case().recording()), ["held"])


def test_registry_refuses_a_second_check_of_one_name(
    planted: Callable[[str, Callable[[Evidence], Finding]], None],
) -> None:
    """Two checks of one name would hide each other."""
    planted("planted", lambda _: not_applicable("it is planted"))
    with pytest.raises(HarnessError, match="two checks"):
        planted("planted", lambda _: not_applicable("it is planted again"))


def test_registry_fills_in_name_strength_and_source(
    planted: Callable[[str, Callable[[Evidence], Finding]], None],
) -> None:
    """A check says what it saw, the registry who said it."""
    planted("planted", lambda _: passed("a", "b"))
    got = one(Evidence(subject=Case().recording()), "planted")
    assert (got.check, got.strength, got.source) == ("planted", Strength.SHOULD, "RFC 1")
    assert get("planted").summary == ""


# ------------------------------------------------------------------------------------- evaluation


def test_evaluation_without_names_runs_all() -> None:
    """Each check gives one finding; a plain run is green where anything applies."""
    done = evaluate(Evidence(subject=Case().recording()))
    assert tuple(f.check for f in done.findings) == names()
    assert done.errors == ()
    assert not [f for f in done.findings if f.verdict is Verdict.FAIL]


def test_evaluation_runs_what_the_scenario_names() -> None:
    """A scenario may ask for some checks only, the caller for others, none of them twice."""
    recording = Case().recording()
    chosen = replace(recording.scenario, checks=("payload_intact",))
    evidence = Evidence(subject=replace(recording, scenario=chosen))
    assert [f.check for f in evaluate(evidence).findings] == ["payload_intact"]
    twice = evaluate(evidence, ["kv_blocks_return"] * 2)
    assert [f.check for f in twice.findings] == ["kv_blocks_return"]


def test_evaluation_of_a_check_that_crashes_judges_the_others(
    planted: Callable[[str, Callable[[Evidence], Finding]], None],
) -> None:
    """A crash is ours, kept with its traceback."""

    def crash(evidence: Evidence) -> Finding:
        raise ZeroDivisionError("planted")

    planted("crashing", crash)
    evidence = Evidence(subject=Case().recording())
    done = evaluate(evidence, ["crashing", "payload_intact"])
    assert [f.verdict for f in done.findings] == [Verdict.PASS]
    ((name, text),) = done.errors
    assert name == "crashing"
    assert "ZeroDivisionError: planted" in text
    told, reasons = judge(evidence.subject.scenario, done)
    assert told is Told.HARNESS_ERROR
    assert reasons == ("crashing crashed: ZeroDivisionError: planted",)


GOOD = Case(injections=INJECTED, fired=FIRED)
HELD = Case(injections=INJECTED, fired=FIRED, behaviours={"nginx": bursting(17)})


@pytest.mark.parametrize(
    ("subject", "control", "verdict", "cause"),
    [
        (GOOD, Case(), Verdict.PASS, None),
        (GOOD, Case(lanes=()), Verdict.UNKNOWN, Cause.CONTROL_FAILED),
        (replace(GOOD, fired=()), Case(), Verdict.UNKNOWN, Cause.NOT_FIRED),
        (GOOD, None, Verdict.UNKNOWN, Cause.CONTROL_FAILED),
        (GOOD, replace(HELD, injections=()), Verdict.UNKNOWN, Cause.CONTROL_FAILED),
        (HELD, Case(), Verdict.FAIL, None),
        (HELD, None, Verdict.FAIL, None),
        (replace(HELD, fired=()), Case(), Verdict.FAIL, None),
        (HELD, replace(HELD, injections=()), Verdict.FAIL, None),
        (replace(GOOD, untapped=(1,)), None, Verdict.UNKNOWN, Cause.WITNESS_MISSING),
        (replace(GOOD, nodes=("engine",)), None, Verdict.NOT_APPLICABLE, None),
    ],
)
def test_evaluation_under_a_fault_needs_firing_and_control_for_a_pass(
    subject: Case, control: Case | None, verdict: Verdict, cause: Cause | None
) -> None:
    """A pass needs evidence of the fault and a control that does not fail, a fail neither."""
    evidence = Evidence(
        subject=subject.recording(), control=control.recording() if control else None
    )
    got = one(evidence, "first_event_not_held")
    assert (got.verdict, got.cause) == (verdict, cause)
    assert bool(got.settle) == (cause is not None)


def test_evaluation_of_a_fail_that_the_control_shares_says_so() -> None:
    """What is broken without the fault is not the fault's doing."""
    broken = replace(HELD, injections=(), fired=())
    evidence = Evidence(subject=HELD.recording(), control=broken.recording())
    assert one(evidence, "first_event_not_held").also_without_fault
    evidence = Evidence(subject=HELD.recording(), control=Case().recording())
    assert not one(evidence, "first_event_not_held").also_without_fault


def test_evaluation_names_the_fault_that_left_no_evidence() -> None:
    """One of two that fired is not enough."""
    case = Case(injections=INJECTED * 2, fired=FIRED)
    got = one(Evidence(subject=case.recording(), control=Case().recording()), "payload_intact")
    assert got.cause is Cause.NOT_FIRED
    assert "latency on hop 1" in got.actual


@pytest.mark.parametrize(
    ("case", "name", "cause"),
    [
        (Case(self_check=SelfCheck(clock_steps=1)), "first_event_not_held", Cause.CLOCK),
        (replace(HELD, self_check=SelfCheck(clock_steps=1)), "events_not_coalesced", Cause.CLOCK),
        (Case(self_check=SelfCheck(clock_steps=1)), "payload_intact", None),
        (
            Case(
                self_check=SelfCheck(clock_steps=1),
                client=Polls(kernel=False),
                tap=Polls(every_us=200, kernel=False),
            ),
            "first_event_not_held",
            None,
        ),
        (
            replace(HELD, self_check=SelfCheck(tap_residence_ns_max=51 * MS)),
            "first_event_not_held",
            Cause.NOISE,
        ),
        (
            replace(HELD, self_check=SelfCheck(tap_residence_ns_max=50 * MS)),
            "first_event_not_held",
            None,
        ),
        (
            Case(self_check=SelfCheck(tap_residence_ns_max=51 * MS)),
            "first_event_not_held",
            None,
        ),
        (
            Case(
                self_check=SelfCheck(tap_residence_ns_max=51 * MS),
                behaviours={"nginx": cutting(5)},
            ),
            "not_cut_before_engine_ended",
            None,
        ),
    ],
)
def test_evaluation_on_a_doubtful_instrument_gives_no_timing_verdict(
    case: Case, name: str, cause: Cause | None
) -> None:
    """A stepped clock under kernel stamps, or a tap that held bytes itself, blames nobody."""
    got = one(Evidence(subject=replace(case, injections=()).recording()), name)
    assert got.cause is cause
    assert (got.verdict is Verdict.UNKNOWN) == (cause is not None)
    if cause is not None:
        assert (got.culprit, got.symptom) == ("", None)


def test_evaluation_of_nothing_recorded_gives_no_pass() -> None:
    """A run of which nothing is left is never green."""
    done = evaluate(Evidence(subject=Case(lanes=()).recording()))
    assert not [f for f in done.findings if f.verdict in (Verdict.PASS, Verdict.FAIL)]
    assert judge(Case().scenario(), done)[0] is Told.UNDECIDED


# -------------------------------------------------------------------------------------- judgement

PASS = finding(Verdict.PASS)
FAIL = finding(Verdict.FAIL, culprit="nginx")
UNKNOWN = finding(Verdict.UNKNOWN)
OTHER = finding(Verdict.PASS, name="b")


def told(verdict: Verdict, culprit: str = "", name: str = "a") -> Expectation:
    return Expectation(check=name, verdict=verdict, culprit=culprit)


@pytest.mark.parametrize(
    ("expectations", "findings", "expected"),
    [
        ((), (PASS,), Told.AS_TOLD),
        ((), (FAIL,), Told.NOT_AS_TOLD),
        ((), (UNKNOWN, OTHER), Told.UNDECIDED),
        ((), (finding(Verdict.NOT_APPLICABLE), OTHER), Told.AS_TOLD),
        ((), (finding(Verdict.NOT_APPLICABLE),), Told.UNDECIDED),
        ((), (), Told.UNDECIDED),
        ((told(Verdict.FAIL),), (FAIL, OTHER), Told.AS_TOLD),
        ((told(Verdict.FAIL, "nginx"),), (FAIL,), Told.AS_TOLD),
        ((told(Verdict.FAIL, "engine"),), (FAIL,), Told.NOT_AS_TOLD),
        ((told(Verdict.FAIL),), (PASS,), Told.NOT_AS_TOLD),
        ((told(Verdict.PASS),), (FAIL,), Told.NOT_AS_TOLD),
        ((told(Verdict.FAIL),), (UNKNOWN, OTHER), Told.UNDECIDED),
        ((told(Verdict.FAIL),), (UNKNOWN, finding(Verdict.FAIL, name="b")), Told.NOT_AS_TOLD),
        ((told(Verdict.UNKNOWN),), (UNKNOWN, OTHER), Told.AS_TOLD),
        ((told(Verdict.FAIL),), (OTHER,), Told.UNDECIDED),
        ((told(Verdict.FAIL), told(Verdict.PASS, name="b")), (FAIL, OTHER), Told.AS_TOLD),
        ((), (finding(Verdict.FAIL, strength=Strength.OBSERVE), OTHER), Told.AS_TOLD),
        ((), (finding(Verdict.FAIL, strength=Strength.SHOULD), OTHER), Told.NOT_AS_TOLD),
        ((), (finding(Verdict.UNKNOWN, strength=Strength.SHOULD), OTHER), Told.AS_TOLD),
        (
            (told(Verdict.PASS),),
            (finding(Verdict.UNKNOWN, strength=Strength.SHOULD), OTHER),
            Told.UNDECIDED,
        ),
        (
            (told(Verdict.PASS),),
            (finding(Verdict.FAIL, strength=Strength.OBSERVE), OTHER),
            Told.AS_TOLD,
        ),
    ],
)
def test_judgement_holds_findings_against_what_was_told(
    expectations: tuple[Expectation, ...], findings: tuple[Finding, ...], expected: Told
) -> None:
    """What is named must come out as named, the rest must pass or not apply."""
    got, reasons = judge(scenario(*expectations), Evaluation(findings=findings))
    assert got is expected
    assert bool(reasons) == (got is not Told.AS_TOLD)


def test_judgement_names_what_was_not_as_told() -> None:
    """A reason says which check, its verdict, its culprit and what was told."""
    evaluation = Evaluation(findings=(replace(FAIL, actual="held 744 ms"),))
    _, (reason,) = judge(scenario(told(Verdict.FAIL, "engine")), evaluation)
    assert reason == "a is fail at nginx: held 744 ms; told was fail at engine"


def test_judgement_of_a_crash_outweighs_everything() -> None:
    """A check that crashed is told as such, and not as missing."""
    evaluation = Evaluation(findings=(finding(Verdict.FAIL, "b"),), errors=(("a", "x\nE: y\n"),))
    got, reasons = judge(scenario(told(Verdict.PASS)), evaluation)
    assert got is Told.HARNESS_ERROR
    assert reasons[0] == "a crashed: E: y"
    assert not any("not judged" in reason for reason in reasons)


@given(st.lists(st.sampled_from(list(Told))))
def test_merge_takes_the_worst(tolds: list[Told]) -> None:
    """harness_error over not_as_told over undecided over as_told; nothing is undecided."""
    order = [Told.AS_TOLD, Told.UNDECIDED, Told.NOT_AS_TOLD, Told.HARNESS_ERROR]
    worst = max(tolds, key=order.index, default=Told.UNDECIDED)
    assert merge(tolds) is worst


@pytest.mark.parametrize(
    ("red", "green", "name"),
    [
        (
            Case(behaviours={"nginx": bursting(17)}),
            Case(behaviours={"engine": bursting(17)}),
            "events_not_coalesced",
        ),
        (
            Case(behaviours={"nginx": cutting(5)}),
            Case(behaviours={"engine": cutting(5)}),
            "not_cut_before_engine_ended",
        ),
    ],
)
def test_judgement_of_swapped_culprits_swaps(red: Case, green: Case, name: str) -> None:
    """The same symptom at another node is another finding, and not as told."""

    def outcome(case: Case, culprit: str) -> Told:
        recording = case.recording()
        evaluation = evaluate(Evidence(subject=recording), [name])
        return judge(scenario(told(Verdict.FAIL, culprit, name)), evaluation)[0]

    assert [outcome(red, who) for who in ("nginx", "engine")] == [Told.AS_TOLD, Told.NOT_AS_TOLD]
    assert [outcome(green, who) for who in ("nginx", "engine")] == [Told.NOT_AS_TOLD, Told.AS_TOLD]


def test_findings_of_a_hand_made_verdict_cover_all_four() -> None:
    """Each way to speak gives its verdict."""
    spoken = (
        passed("", ""),
        failed("", "", SymptomKind.HELD, "n"),
        unknown(Cause.NOISE, "", ""),
        not_applicable(""),
    )
    assert {f.verdict for f in spoken} == set(Verdict)


def test_evaluation_of_a_stack_without_recorded_nodes_does_not_crash() -> None:
    """A run that was killed before its facts were written is judged as far as it goes."""
    stack = Stack(id="unit", nodes=Case().scenario().stack.nodes)
    recording: Recording = replace(Case(lanes=()).recording(), nodes=())
    assert recording.scenario.stack == stack
    assert evaluate(Evidence(subject=recording)).errors == ()
    assert evaluate(Evidence(subject=replace(Case().recording(), nodes=()))).errors == ()
