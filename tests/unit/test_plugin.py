"""The plugin, in sessions of its own: options, header, what becomes of an outcome, the reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import background
from harness.plugin import MARKERS, fixture, options, session
from harness.plugin.session import Case
from reports import json_report
from tests.unit import plugin_sessions
from tests.unit.plugin_sessions import ARGS, CONFTEST, PATCH, ROOT, TEST, StandIn

pytest_plugins = ["pytester"]

KNOWN = '[[known]]\npattern = "{}"\nreason = "an old bug"\nlink = "https://example.org/1"\n'


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for a session whose runner is the stand-in."""
    monkeypatch.setattr(background, "Runner", StandIn)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # The folder is its own root: what lies above it is none of its business.
    pytester.makeini("[pytest]\n")
    return pytester


def run(inner: pytest.Pytester, *args: str, ids: tuple[str, ...] = ("a/good",)) -> pytest.RunResult:
    """A session over scenarios with these ids."""
    inner.makeconftest(CONFTEST.format(ids=ids))
    inner.makepyfile(TEST)
    return inner.runpytest_inprocess(*ARGS, *args)


def reports_in(inner: pytest.Pytester) -> Iterator[Path]:
    """The reports that sessions have left."""
    return (inner.path / "chaos-results").glob("2*/report.json")


# --------------------------------------------------------------------------- options and header


def test_plugin_help_lists_each_option_and_marker(inner: pytest.Pytester) -> None:
    """All options and markers are registered with their help."""
    text = inner.runpytest_inprocess(*ARGS, "--help").stdout.str()
    names = ("engine", "seed", "time-scale", "real-time", "unknown", "results", "jobs")
    assert all(f"--chaos-{name}" in text for name in names)
    text = inner.runpytest_inprocess(*ARGS, "--markers").stdout.str()
    assert all(f"@pytest.mark.{name}: {text_}" in text for name, text_ in MARKERS.items())


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--chaos-engine=gpt", "one of reference"),
        ("--chaos-unknown=maybe", "one of skip, fail"),
        ("--chaos-seed=x", "a whole number from 0"),
        ("--chaos-seed=-1", "a whole number from 0"),
        ("--chaos-time-scale=0", "a whole number from 1"),
        ("--chaos-time-scale=2.5", "a whole number from 1"),
        ("--chaos-jobs=0", "a whole number from 1"),
    ],
)
def test_option_with_a_value_that_cannot_be_meant_lists_what_can(
    argument: str, said: str, inner: pytest.Pytester
) -> None:
    """A mistyped value ends the session with bad usage and the valid values."""
    result = run(inner, argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{argument.partition('=')[0]}*{said}*"])


def test_option_of_two_time_scales_is_refused(inner: pytest.Pytester) -> None:
    """Real time is a scale of its own."""
    result = run(inner, "--chaos-real-time", "--chaos-time-scale=5")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_header_of_a_session_with_an_option_has_seed_and_engine(inner: pytest.Pytester) -> None:
    """The seed is told first of all, once."""
    text = run(inner, "--chaos-seed=7", "--collect-only").stdout.str()
    assert text.count("streamchaos: seed 7, engine reference, timers / 10") == 1
    assert text.index("streamchaos: seed") < text.index("collected 1 item")


def test_header_of_a_session_without_an_option_comes_with_the_chaos_tests(
    inner: pytest.Pytester,
) -> None:
    """A seed that was drawn is told as soon as it matters, and used."""
    text = run(inner).stdout.str()
    told = re.findall(r"streamchaos: seed (\d+)", text)
    (report,) = reports_in(inner)
    assert set(told) == {str(json.loads(report.read_bytes())["seed"])}


def test_session_without_chaos_tests_is_as_without_the_plugin(inner: pytest.Pytester) -> None:
    """No line, no folder, and nothing heavy imported."""
    inner.makepyfile(
        "import sys\n"
        "HEAVY = {'harness.model', 'harness.run', 'rich', 'msgspec'}\n"
        "def test_it():\n"
        "    assert not HEAVY & set(sys.modules)"
    )
    result = inner.runpytest_subprocess(*ARGS)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*streamchaos:*")
    assert not (inner.path / "chaos-results").exists()


# ------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("scenario", "result", "said"),
    [
        ("a/good", "passed", ""),
        ("a/bad", "failed", "not as told"),
        ("a/broken", "failed", "harness error"),
        ("a/missing", "skipped", "make nginx-debian"),
        ("a/noise", "skipped", "undecided (noise)"),
        ("a/too-few", "skipped", "undecided (too_few)"),
        ("a/not-fired", "failed", "undecided (not_fired)"),
        ("a/control-failed", "failed", "undecided (control_failed)"),
        ("a/witness-missing", "failed", "undecided (witness_missing)"),
        ("a/clock", "failed", "undecided (clock)"),
        ("a/unjudged", "failed", "undecided (not judged)"),
    ],
)
def test_outcome_of_each_kind_is_told_in_pytests_words(
    scenario: str, result: str, said: str, inner: pytest.Pytester
) -> None:
    """Only what another run may settle is skipped; all else that is not as told fails."""
    done = run(inner, "-rA", ids=(scenario,))
    done.assert_outcomes(**{result: 1})
    assert said in done.stdout.str()


def test_failure_of_a_scenario_says_all_that_is_needed(inner: pytest.Pytester) -> None:
    """What was expected and seen, who and which line is to blame, the folder, the repetition."""
    text = run(inner, "--chaos-seed=7", ids=("a/bad",)).stdout.str()
    (report,) = reports_in(inner)
    for part in (
        "first_event_not_held",
        "at most 100 ms",
        "held for 747 ms",
        "nginx",
        "nginx.conf:36 proxy_buffering on;",
        "pytest -m chaos -k '[a/bad]' --chaos-seed 7",
        f"report: {report.parent}",
    ):
        assert part in text
    assert "Traceback" not in text


@pytest.mark.parametrize("scenario", ["a/noise", "a/too-few"])
def test_outcome_undecided_under_unknown_fail_fails(scenario: str, inner: pytest.Pytester) -> None:
    """Whoever wants certainty gets a failure for each open verdict."""
    run(inner, "--chaos-unknown=fail", ids=(scenario,)).assert_outcomes(failed=1)


def test_repeat_command_selects_exactly_its_scenario(inner: pytest.Pytester) -> None:
    """An id that begins with another one is not run with it."""
    ids = ("a/good", "a/good/b", "b/a/good")
    run(inner, "-m", "chaos", "-k", "[a/good]", ids=ids).assert_outcomes(passed=1, deselected=2)


def test_tier_as_a_marker_selects_its_scenarios(inner: pytest.Pytester) -> None:
    """A scenario bears the marker chaos and those of its tiers."""
    run(inner, "-m", "chaos and quick and full").assert_outcomes(passed=1)
    run(inner, "-m", "gpu").assert_outcomes(deselected=1)


# --------------------------------------------------------------------------- the session's end


def test_report_of_a_session_holds_each_outcome(inner: pytest.Pytester) -> None:
    """JSON and JUnit are left in the folder that the summary names, with the manifest."""
    run(inner, "--chaos-results=out", ids=("a/good", "a/bad", "a/missing"))
    folder = (inner.path / "out" / "latest").resolve()
    report = json_report.loads((folder / "report.json").read_bytes())
    assert [o.scenario for o in report.outcomes] == ["a/good", "a/bad", "a/missing"]
    assert "a/bad" in (folder / "report.xml").read_text(encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["scenarios"] == ["a/good", "a/bad", "a/missing"]


def test_session_with_a_twentieth_undecided_passes(inner: pytest.Pytester) -> None:
    """Noise in one of twenty is what a busy machine may do."""
    ids = ("a/noise", *(f"a/good/{n}" for n in range(19)))
    assert run(inner, ids=ids).ret == pytest.ExitCode.OK


def test_session_with_more_undecided_fails_and_says_why(inner: pytest.Pytester) -> None:
    """A session that decides too little is no green one."""
    done = run(inner, ids=("a/noise", *(f"a/good/{n}" for n in range(18))))
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["the session fails: 1 of 19 *more than 5 %: a/noise"])


def test_undecided_with_both_arms_of_a_pair_says_so() -> None:
    """A story that nobody can tell is named, however many other cases are decided."""
    good = [Case(scenario=f"good/{n}", told="as_told", partner="") for n in range(98)]
    red = Case(scenario="red", told="undecided", partner="green")
    green = Case(scenario="green", told="undecided", partner="")
    assert session.undecided([*good, red, green]) == (
        "both arms of a pair stay undecided: green and red",
    )


def test_undecided_with_one_arm_of_a_pair_says_nothing() -> None:
    """The other arm still stands."""
    good = [Case(scenario=f"good/{n}", told="as_told", partner="") for n in range(98)]
    red = Case(scenario="red", told="undecided", partner="green")
    green = Case(scenario="green", told="as_told", partner="")
    assert session.undecided([*good, red, green]) == ()


def test_session_stopped_by_the_first_failure_ends_what_still_runs(
    inner: pytest.Pytester,
) -> None:
    """What was begun beside the failing one is stopped, and the report holds what had ended."""
    run(inner, "-x", ids=("a/bad", "a/hang")).assert_outcomes(failed=1)
    (report,) = reports_in(inner)
    outcomes = json_report.loads(report.read_bytes()).outcomes
    assert [o.scenario for o in outcomes] == ["a/bad"]


def test_workers_of_one_session_share_its_seed(inner: pytest.Pytester) -> None:
    """Each worker runs its own scenarios with the seed of the controller, and leaves a report."""
    inner.makeconftest(PATCH + CONFTEST.format(ids=("a/good", "a/good/b", "a/noise", "a/good/c")))
    inner.makepyfile(TEST)
    done = inner.runpytest_subprocess(*ARGS, "-n2")
    done.assert_outcomes(passed=3, skipped=1)
    found = [json.loads(path.read_bytes()) for path in reports_in(inner)]
    seeds = re.findall(r"streamchaos: seed (\d+)", done.stdout.str())
    assert {str(one["seed"]) for one in found} == set(seeds)
    ids = sorted(o["scenario"] for one in found for o in one["outcomes"])
    assert ids == ["a/good", "a/good/b", "a/good/c", "a/noise"]
    done.stdout.fnmatch_lines(["the session fails: 1 of 4 *", "report: *"])


# --------------------------------------------------------------------------------- known to fail


def test_known_failure_is_expected(inner: pytest.Pytester) -> None:
    """It is told with its reason and its link, and fails nothing."""
    (inner.path / "known_failing.toml").write_text(KNOWN.format("a/*"), encoding="utf-8")
    done = run(inner, "-rx", ids=("a/bad",))
    done.assert_outcomes(xfailed=1)
    done.stdout.fnmatch_lines(["*an old bug (https://example.org/1)*"])


def test_known_failure_that_passes_fails_the_session(inner: pytest.Pytester) -> None:
    """An entry that is no longer needed must go."""
    (inner.path / "known_failing.toml").write_text(KNOWN.format("a/*"), encoding="utf-8")
    done = run(inner, ids=("a/good",))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*no longer failing: remove the entry 'a/?' of known_failing.toml*"])


def test_known_failure_never_excuses_the_harness(inner: pytest.Pytester) -> None:
    """What the harness gets wrong is not what the entry is about."""
    (inner.path / "known_failing.toml").write_text(KNOWN.format("a/*"), encoding="utf-8")
    run(inner, ids=("a/broken",)).assert_outcomes(failed=1)


def test_known_failures_in_a_damaged_file_are_bad_usage(inner: pytest.Pytester) -> None:
    """A list that cannot be read is told before anything runs."""
    (inner.path / "known_failing.toml").write_text("[[known]]\nname = 1\n", encoding="utf-8")
    done = run(inner)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*known_failing.toml, entry 1*unknown key 'name'*"])


# ---------------------------------------------------------------------------------------- parts


def test_causes_of_an_outcome_are_those_that_count() -> None:
    """A finding that no reason names does not decide what an outcome becomes."""
    (scenario,) = plugin_sessions.scenarios(["a/noise"])
    assert fixture.causes_of(plugin_sessions.outcome(scenario)) == {"noise"}


def test_engines_are_those_that_exist() -> None:
    """The reference engine is the default."""
    assert options.ENGINES[0] == "reference"
