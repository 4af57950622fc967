import asyncio
import json
import sqlite3
from functools import cache
from pathlib import Path

import pytest

import redraft as library
from redraft import ModelError, ReflectionPattern
from redraft.demo import cli as demo
from redraft.demo import tasks
from redraft.demo.cli import RECORDING, YOUR_TURN, Metered, Stage
from redraft.demo.tasks import ORDER_FIELDS, PRIMES_LISTED, TITLE_CASE_CALLS, date_check, query_check, rows_of
from redraft.errors import SandboxForbiddenError
from redraft.loop.cli import Runner
from redraft.models.names import KnownModel, model_of
from redraft.settings import load_settings
from redraft.terminal.console import CalmConsole
from support import requirements as needs
from support.commands import document, redraft, script
from support.openai_server import completion, serving
from support.pages import Page

RERECORD = "The demo's prompts have changed. Record it again: .venv/bin/python demo/record.py"

# --- the checks ---------------------------------------------------------------------------------------------

ORDER_PAID = {"lamps": 3, "trays": 1, "total_cents": 8450, "paid": True}
ORDER_RIGHT = ORDER_PAID | {"paid": False}
TITLE_WRONG = "def title_case(text):\n    return text.title()"
TITLE_RIGHT = """```python
def title_case(text):
    return " ".join(word.capitalize() for word in text.split(" "))
```"""
COUNT = query_check("SELECT COUNT(*) FROM t_art")
PRICE = query_check("SELECT MAX(prs_ct) FROM t_art")


@pytest.mark.parametrize(
    ("check", "draft", "score"),
    [
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT), 1.0),
        (ORDER_FIELDS, f"```json\n{json.dumps(ORDER_RIGHT)}\n```", 1.0),
        (ORDER_FIELDS, json.dumps(ORDER_PAID), 0.75),
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT | {"paid": 0}), 0.75),
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT | {"lamps": "3"}), 0.75),
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT | {"trays": 55}), 0.75),
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT | {"total_cents": 84.5}), 0.75),
        (ORDER_FIELDS, json.dumps(ORDER_RIGHT | {"can_rain": True}), 0.75),
        (ORDER_FIELDS, json.dumps({**ORDER_RIGHT, "a": 1, "b": 1, "c": 1, "d": 1, "e": 1}), 0.0),
        (ORDER_FIELDS, "[]", 0.0),
        (ORDER_FIELDS, "Dear customer", 0.0),
        (TITLE_CASE_CALLS, TITLE_RIGHT, 1.0),
        (TITLE_CASE_CALLS, TITLE_WRONG, 2 / 3),
        (TITLE_CASE_CALLS, 'def title_case(text):\n    return "It\'s Late"', 1 / 3),
        (TITLE_CASE_CALLS, "def title_case(text):\n    return 55", 0.0),
        (TITLE_CASE_CALLS, "I can't.", 0.0),
        (date_check(""), "2027-05-03", 1.0),
        (date_check(""), "3 May 2027", 0.0),
        (date_check(""), "2027-03-05", 0.0),
        (date_check(""), "2027-05-03 in room 12", 0.0),
        (COUNT, "SELECT COUNT(*) FROM t_art;", 1.0),
        (COUNT, "```sql\nSELECT count(a_no) FROM t_art\n```", 1.0),
        (COUNT, "SELECT COUNT(*) FROM articles", 0.0),
        (COUNT, "SELECT 3", 0.0),  # right for one of the two databases
        (COUNT, "There are 3 articles.", 0.0),
        (COUNT, "SELECT COUNT(*) FROM t_art; SELECT 55", 0.0),
        (PRICE, "SELECT MAX(prs_ct) FROM t_art", 1.0),
        (PRICE, "SELECT prs_ct FROM t_art ORDER BY prs_ct DESC LIMIT 1", 1.0),
        (PRICE, "SELECT prs_ct FROM t_art", 0.0),
        (PRICE, "SELECT MAX(lgr) FROM t_art", 0.0),
        (PRIMES_LISTED, "31, 37, 41, 43, 47", 1.0),
        (PRIMES_LISTED, "47,43,41,37,31", 1.0),
        (PRIMES_LISTED, "31, 37, 41, 43", 0.8),
        (PRIMES_LISTED, "31, 37, 41, 43, 47, 49", 5 / 6),
        (PRIMES_LISTED, "31, 37, 41, 43, 47 and rain", 5 / 7),
        (PRIMES_LISTED, "23, 29", 0.0),
        (PRIMES_LISTED, "", 0.0),
    ],
)
def test_a_check_compares_every_value(check, draft, score):
    pattern = ReflectionPattern(quality_criteria=[check], quality_threshold=1.0)
    evaluation = asyncio.run(pattern.reflect(draft))
    assert evaluation.overall_score == pytest.approx(score)
    assert evaluation.satisfactory == (score == 1.0)
    assert bool(evaluation.issues) == (score < 1.0)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t_art",
        "UPDATE t_art SET prs_ct = 0",
        "ATTACH DATABASE '{path}' AS other",
        "VACUUM INTO '{path}'",
        "PRAGMA user_version = 7",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
        "SELECT COUNT(*) FROM t_art" + " CROSS JOIN t_art" * 20,
        "SELECT zeroblob(1000000000)",
    ],
)
def test_a_query_only_reads_within_limits(query, tmp_path):
    with pytest.raises(sqlite3.Error):
        rows_of(query.format(path=tmp_path / "other.db"), tasks.ROWS[0])
    assert list(tmp_path.iterdir()) == []


# --- the recorded acts --------------------------------------------------------------------------------------


@cache
def recorded():
    return document(redraft("demo", "--replay", "--no-keep", "--json"))


@cache
def printed():
    result = redraft("demo", "--replay", "--no-keep")
    assert result.exit_code == 0, RERECORD + result.stderr + result.stdout
    return result.stdout


@pytest.mark.parametrize(
    ("place", "scores", "best", "reason", "calls", "tokens"),
    [
        ((0, 0), [0.75, 1.0], 2, "quality_met", 2, 344),
        ((1, 0), [2 / 3] * 4, 1, "max_iterations", 4, 379),
        ((2, 0), [0.0, 0.0, 0.0, 1.0], 4, "quality_met", 4, 327),
        ((2, 1), [1.0], 1, "quality_met", 1, 84),
        ((3, 0), [0.0, 1.0], 2, "quality_met", 2, 175),
        ((3, 1), [1.0], 1, "quality_met", 1, 107),
        ((4, 0), [0.0, 0.0, 0.5, 0.8], 4, "max_iterations", 4, 277),
    ],
)
def test_a_recorded_run(place, scores, best, reason, calls, tokens):
    act, run = place
    found = recorded()["acts"][act]["runs"][run]
    assert found["error"] is None, RERECORD
    assert [version["evaluation"]["overall_score"] for version in found["versions"]] == pytest.approx(scores)
    assert (found["best_version"], found["convergence_reason"]) == (best, reason)
    assert found["success"] == (scores[best - 1] == 1.0)
    used = found["token_usage"]
    assert (used["requests"], used["input_tokens"] + used["output_tokens"]) == (calls, tokens)


@pytest.mark.parametrize(
    "line",
    [
        "1. A draft fails its check",
        "            paid must be true only if the money was paid already, not True",
        ' * 2  1.00  { "lamps": 3, "trays": 1, "total_cents": 8450, "paid": false }',
        "   Version 2 passes. 2 calls, 344 tokens.",
        "   Why it stopped: quality_met. Version 2 scored 1.00 >= 1.00, and every",
        "2. A task that is harder for the model",
        " * 1  0.67  def title_case(text): return text.title()",
        """            title_case("it's late") returned "It'S Late", expected "It's Late\"""",
        "   4  0.67  the same as version 1",
        "   No version passes. Version 1 is returned, success=False. 4 calls, 379 tokens.",
        "3. The same task, without and with the requirement in its prompt",
        "   1  0.00  3 May 2027",
        '   With it ("a date is written as YYYY-MM-DD"), it passes. 1 call, 84 tokens.',
        " * 1  1.00  2027-05-03",
        "   Without it, the first draft fails. 4 calls, 327 tokens in all.",
        "4. What only an error says",
        "            no such table: articles. The tables are t_art(a_no, bez, prs_ct,",
        '   2 calls, 175 tokens. Next: "What is the highest price of an article?"',
        " * 1  1.00  SELECT max(prs_ct) FROM t_art",
        "   The error left a fact, without a call: t_art: a table with the columns a_no,",
        "   With it, the next first draft passes. 1 call, 107 tokens.",
        "5. Killed, and resumed",
        "   Child process: 2 answers, 169 tokens; killed (SIGKILL) in call 3.",
        "   This process: 2 answers replayed, 2 calls made, 108 tokens.",
        "   169 + 108 tokens were paid for, the run has 277: none twice.",
    ],
)
def test_a_printed_line(line):
    assert line in printed().splitlines()


def test_the_recording_has_the_calls_of_the_acts_and_no_others():
    requests = [run["token_usage"]["requests"] for act in recorded()["acts"] for run in act["runs"]]
    assert sum(requests) == len(RECORDING.read_text("utf-8").splitlines()), RERECORD


def test_the_acts_fit_two_screens_of_80_columns():
    lines = printed().splitlines()
    assert max(map(len, lines)) <= demo.WIDTH
    assert len(lines) <= 80
    acts = printed().split("\n\n")[1:-1]
    assert [act.splitlines()[0][:2] for act in acts] == ["1.", "2.", "3.", "4.", "5."]
    assert all(5 <= len(act.splitlines()) <= 12 for act in acts)


def test_the_json_document_says_what_is_printed():
    found, shown = recorded(), " ".join(printed().split())
    assert (found["model"], found["recorded"]) == ("a recording of local:qwen2.5-coder-0.5b", True)
    for act in found["acts"]:
        assert f"{act['act']}. {act['title']}" in shown
        assert all(" ".join(sentence.split()) in shown for sentence in act["happened"])
        assert all(run["label"] in shown for run in act["runs"])
        assert " ".join(act["runs"][0]["task"].split()) in shown
    assert found["acts"][-1]["counts"] == {"answers": 2, "replayed": 2, "made": 2, "tokens_paid_twice": 0}
    assert printed().splitlines()[-1] == found["next"] == YOUR_TURN


def test_the_last_line_can_be_typed_as_it_is():
    code = YOUR_TURN.removeprefix("Your turn: ").partition(";")[0]

    def short(text):
        return len(text) < 9, "Be brief."

    def write(prompt, feedback=""):
        return "A" if feedback else prompt * 9

    function = eval(code, {"reflected": library.reflected, "your_check": short, "your_function": write})  # noqa: S307 (our line)
    assert function("Name a letter.") == "A"
    assert "reflected(" in "".join(Page("docs/start.md").blocks("python"))


def test_the_readme_counts_the_acts():
    assert "five short acts" in Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")


@pytest.fixture
def _no_weights(monkeypatch):
    missing = [KnownModel("local:qwen2.5-coder-0.5b", False, "no weights")]
    monkeypatch.setattr("redraft.demo.cli.known_models", lambda: missing)
    monkeypatch.setattr("redraft.demo.cli.acts", lambda _stage, runs_code: iter(()))


@pytest.mark.usefixtures("_no_weights")
def test_without_weights_the_recording_is_replayed_and_says_so():
    result = redraft("demo")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "Five acts with a recording of local:qwen2.5-coder-0.5b." in text
    assert "The model's replies were recorded; the loop, the checks and the kill are real." in text
    assert "Live: redraft demo --model provider:model or local:PATH.gguf; or make demo in a clone." in text


# --- other models, and what goes wrong ----------------------------------------------------------------------

COUNTED, PRICED = "SELECT COUNT(*) FROM t_art", "SELECT MAX(prs_ct) FROM t_art"
ALL_RIGHT = [ORDER_RIGHT, TITLE_RIGHT, "2027-05-03", "2027-05-03", COUNTED, PRICED, "31,37,41,43,47"]


def test_the_sentences_follow_the_results_of_a_better_model(monkeypatch):
    model = script(monkeypatch, "loaded", *ALL_RIGHT)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "Five acts with any:model." in text
    assert "Version 1 passes. 1 call" in text
    assert "Without it, the first draft passes. 1 call" in text
    assert "No error left a fact. Without it, the next first draft passes. 1 call" in text
    # The child process knows nothing of a scripted model, and ends before its first call.
    assert "Child process: 0 answers, 0 tokens; ended by itself." in text
    assert "This process: 0 answers replayed, 1 call made" in text
    assert all(request.max_tokens for request in model.requests)


def test_the_sentences_follow_the_results_of_a_worse_model(monkeypatch):
    script(monkeypatch, "loaded", *[f"no {number}" for number in range(99)])
    result = redraft("demo", "-m", "any:model", "--no-keep")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "draft passes" not in text
    assert text.count("No version passes. Version 1 is returned, success=False.") == 3
    assert 'With it ("a date is written as YYYY-MM-DD"), it fails.' in text


def test_a_failing_model_sets_the_exit_code(monkeypatch):
    script(monkeypatch, "loaded", ORDER_PAID, ModelError("It is away."), *ALL_RIGHT[1:])
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 4
    assert "Error: It is away." in result.stdout
    assert "5. Killed, and resumed" in result.stdout


def test_an_interrupted_demo_shows_the_finished_acts(monkeypatch):
    model = script(monkeypatch, "loaded", *ALL_RIGHT)
    answer = model._answer

    def interrupted(request):
        if any("meeting" in message.content for message in request.messages):
            raise KeyboardInterrupt
        return answer(request)

    model._answer = interrupted
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 130
    assert "2. A task that is harder" in result.stdout
    assert "3. The same task" not in result.stdout
    assert result.stdout.splitlines()[-1] == YOUR_TURN


def test_a_missing_sandbox_is_reported_first(monkeypatch):
    def refuse(*, programs):
        raise SandboxForbiddenError("There is no jail here.")

    monkeypatch.setattr("redraft.demo.cli.check_jail", refuse)
    model = script(monkeypatch, "loaded", *ALL_RIGHT)
    told = []
    monkeypatch.setattr("redraft.demo.cli.load", lambda _stage: told.append(len(model.requests)))
    model._answer = lambda _request: "x"
    result = redraft("demo", "-m", "any:model", "--no-keep")
    assert result.exit_code == 0, result.stderr
    opening, _, acts = result.stdout.partition("\n\n")
    assert "Act 2, which runs code, is left out: There is no jail here." in opening
    assert told == [0]
    assert "title_case" not in acts
    assert "5. Killed, and resumed" in acts


def test_the_runs_are_stored_and_one_is_explained_as_printed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / "kept"))
    script(monkeypatch, "loaded", *ALL_RIGHT)
    told = redraft("demo", "-m", "any:model").stderr.splitlines()[-1]
    assert len(document(redraft("runs", "--json"))["runs"]) == 6
    words = told.rpartition("redraft ")[2].split()
    explained = redraft(*words).stdout
    assert "quality_met" in explained
    assert "fields 1.00 >= 1.00" in explained


def test_a_model_and_the_recording_exclude_each_other():
    assert "leave it out" in redraft("demo", "--replay", "-m", "any:model").stderr


# --- the kill -----------------------------------------------------------------------------------------------

SERVED = "openai-chat:gpt-4o-mini"


def served_stage(monkeypatch):
    monkeypatch.setattr(demo, "SECONDS", 600.0)  # the child waits for nothing but this machine
    model = Metered(model_of(SERVED, load_settings()))
    return Stage(model, SERVED, Runner("demo", SERVED, keep=False), CalmConsole(stderr=True))


def test_what_a_killed_process_paid_for_is_not_paid_again(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise ValueError('of another program')\n")
    with serving(monkeypatch) as server:
        texts = ["31", "31, 37", "31, 37, 41", "31, 37, 41, 43", "31, 37, 41, 43, 47"]
        server.answers = [(200, {}, completion(text)) for text in texts]
        act = demo.killed(served_stage(monkeypatch))
    assert act.counts == {"answers": 2, "replayed": 2, "made": 2, "tokens_paid_twice": 0}
    assert act.happened[0].endswith("killed (SIGKILL) in call 3.")
    [scene] = act.scenes
    assert [version.output for version in scene.result.history.versions][:2] == texts[:2]
    assert scene.result.token_usage.requests == 4
    # The call that was cut off had been sent, or not; no other was made twice.
    assert len(server.asked) in (4, 5)
    asked = [json.dumps(body) for _, body in server.asked]
    assert len(set(asked)) == 4


@pytest.mark.parametrize("texts", [["31, 37, 41, 43, 47"], ["31, 37", "31, 37, 41, 43, 47"]])
def test_a_process_that_ends_before_the_kill_leaves_nothing_to_pay(monkeypatch, texts):
    with serving(monkeypatch) as server:
        server.answers = [(200, {}, completion(text)) for text in texts]
        act = demo.killed(served_stage(monkeypatch))
    calls = len(texts)
    assert act.counts == {"answers": calls, "replayed": calls, "made": 0, "tokens_paid_twice": 0}
    assert act.happened[0].endswith("ended by itself.")
    assert len(server.asked) == calls


def test_a_process_that_fails_leaves_the_answers_it_had(monkeypatch):
    with serving(monkeypatch) as server:
        refused = {"error": {"message": "no such model", "type": "invalid_request_error", "code": 404}}
        server.answers = [(200, {}, completion("31")), (404, {}, refused)]
        server.answers += [(200, {}, completion("31, 37, 41, 43, 47"))]
        act = demo.killed(served_stage(monkeypatch))
    assert act.counts["tokens_paid_twice"] == 0
    assert (act.counts["replayed"], act.counts["made"]) == (1, 1)
    assert act.happened[0].endswith("ended by itself.")


def test_with_the_real_model(monkeypatch):
    needs.local_model()
    monkeypatch.setattr("redraft.demo.cli.acts", lambda stage, runs_code: iter([demo.requirement(stage)]))
    monkeypatch.setattr("redraft.demo.cli.REVISIONS", 0)
    monkeypatch.setattr("redraft.demo.cli.SECONDS", 600.0)
    result = redraft("demo", "--json")
    assert result.exit_code == 0, result.stderr
    without, told = document(result)["acts"][0]["runs"]
    assert (without["success"], told["success"]) == (False, True)
    assert told["token_usage"]["input_tokens"] > without["token_usage"]["input_tokens"] > 20
    assert told["token_usage"]["cost_usd"] == 0.0
