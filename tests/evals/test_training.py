"""Training data: what makes a pair, what is left out, and the form of the rows."""

import json

import pytest

from redraft import EvalCase
from redraft.evals.training import dpo_rows, preference_pairs, sft_rows, told_apart
from redraft.loop.record import Origin
from redraft.types import PlainTask, ReflectionEvaluation
from support.commands import put, redraft
from support.kept_runs import record
from support.versions import judged, version

CHECKS = frozenset({"short", "json"})


def scores(overall=0.5, *, samples=0, spread=0.0, **criteria):
    return ReflectionEvaluation(overall, criteria, samples=({},) * samples, spread=spread)


APART = {
    "a check": (scores(short=1.0, json=1.0), scores(short=1.0, json=0.0), "checks"),
    "a check against another": (scores(short=1.0, json=0.0), scores(short=0.0, json=1.0), None),
    "the wrong way": (scores(short=0.0), scores(short=1.0), None),
    "level": (scores(short=1.0), scores(short=1.0), None),
    "an unknown check": (scores(short=1.0, json=None), scores(short=1.0, json=0.0), None),
    "one judgement": (scores(0.9, clear=0.9), scores(0.3, clear=0.3), None),
    "a judge": (
        scores(0.9, samples=3, spread=0.1, clear=0.9), scores(0.3, samples=3, spread=0.1, clear=0.3), "judge",
    ),
    "within the error": (
        scores(0.9, samples=3, spread=0.4, clear=0.9), scores(0.5, samples=3, spread=0.3, clear=0.5), None,
    ),
    "a judge against a check": (
        scores(0.9, samples=3, short=0.0, clear=1.0), scores(0.3, samples=3, short=1.0, clear=0.0), None,
    ),
    "other criteria": (scores(0.9, samples=3, clear=0.9), scores(0.3, samples=3, brief=0.3), None),
}  # fmt: skip


@pytest.mark.parametrize(("better", "worse", "by"), APART.values(), ids=APART)
def test_what_tells_versions_apart(better, worse, by):
    assert told_apart(better, worse, CHECKS) == by


def run(**fields):
    versions = [
        judged(1, {"short": 0.0}, output="bad"),
        judged(2, {"short": 1.0}, output="good", satisfactory=True),
    ]
    return record(
        versions, "quality_met", **{"origin": Origin("agent", "w", system_prompt="Be brief.")} | fields
    )


def test_rows_have_the_common_forms():
    pairs = preference_pairs([run(task=PlainTask("Say it.", context="Here."))])
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Context:\nHere.\n\nSay it."},
    ]
    assert dpo_rows(pairs) == [
        {
            "prompt": prompt,
            "chosen": [{"role": "assistant", "content": "good"}],
            "rejected": [{"role": "assistant", "content": "bad"}],
        }
    ]
    assert sft_rows(pairs) == [{"messages": [*prompt, {"role": "assistant", "content": "good"}]}]


def test_an_answer_that_did_not_pass_is_no_example():
    versions = [judged(1, {"short": 0.0}, output="bad"), judged(2, {"short": 0.5}, output="better")]
    pairs = preference_pairs([record(versions, "max_iterations")])
    assert len(dpo_rows(pairs)) == 1
    assert sft_rows(pairs) == []


def test_what_is_evaluated_is_left_out():
    kept = run(run_id="r1")
    assert preference_pairs([kept], [EvalCase("a", PlainTask("Say it."))]) == []
    assert preference_pairs([kept], [EvalCase("a", PlainTask("Other."), run="r1")]) == []
    private = run(task=PlainTask("Write to ada.byron@lovelace.io."))
    assert (
        preference_pairs([private], [EvalCase("a", PlainTask("Write to [withheld: email address]."))]) == []
    )
    assert len(preference_pairs([kept, private], [EvalCase("a", PlainTask("Other."))])) == 2


def test_secrets_and_personal_data_are_withheld():
    pairs = preference_pairs([run(task=PlainTask("Write to ada.byron@lovelace.io."))])
    assert "lovelace" not in json.dumps([*dpo_rows(pairs), *sft_rows(pairs)])


def test_the_command_writes_json_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    put(run(run_id="one"))
    put(run(run_id="two", task=PlainTask("Say more.")))
    put(record([version(1, 0.5)], "max_iterations", run_id="three"))
    shown = redraft("eval", "export", "--pairs")
    assert (shown.exit_code, shown.stderr) == (0, "2 pairs from 3 runs.\n")
    assert [sorted(json.loads(line)) for line in shown.stdout.splitlines()] == [
        ["chosen", "prompt", "rejected"]
    ] * 2
    (tmp_path / "cases.yaml").write_text("criteria: [clear]\ncases: [{task: Say it.}]\n", "utf-8")
    written = redraft("eval", "export", "--corrections", "-o", "data/sft.jsonl")
    assert written.stderr == "1 correction from 3 runs.\n"
    (line,) = (tmp_path / "data" / "sft.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["messages"][1]["content"] == "Say more."
    for words in ((), ("--pairs", "--corrections")):
        assert redraft("eval", "export", *words).exit_code == 2
