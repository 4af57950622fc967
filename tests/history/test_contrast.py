from dataclasses import replace

import pytest

from redraft import Task, TokenUsage
from redraft.history.contrast import MOST, Contrast, Sample, intervals
from redraft.loop.record import Origin, task_digest
from redraft.loop.runs import GROUPINGS
from redraft.stores.memory import MemoryStore
from support.dashboards import HOSTILE, Seen, described, pages, put
from support.kept_runs import CALL
from support.versions import version

LOW, HIGH = Origin("agent", "low", "any:model"), Origin("agent", "high", "any:model")


def run(run_id, best=0.8, first=0.4, **fields):
    """A run of two versions, the second the best one, judged by two criteria."""
    versions = tuple(
        version(number, score, criteria_scores={"facts": score, "tone": 0.5}, satisfactory=score > 0.7)
        for number, score in enumerate((first, best), 1)
    )
    known = {"best": 2, "final": 2, "revisions": 1, "usage_by_role": {"generation": CALL}}
    return described(run_id, versions=versions, **known | fields)


def some(name, origin, count, best, **fields):
    """Runs whose best versions score a little differently around `best`."""
    return [
        run(f"{name}-{number:02}", best + 0.01 * (number % 5), origin=origin, **fields)
        for number in range(count)
    ]


def client(*runs):
    store = MemoryStore()
    put(store, *runs)
    return pages(store)


def read(*runs, query=""):
    answer = client(*runs).get(f"/compare.json{query}")
    assert answer.status_code == 200
    return answer.json()


def test_groups_are_compared_with_the_largest():
    told = read(*some("a", LOW, 14, 0.5), *some("b", HIGH, 12, 0.8))
    assert (told["baseline"], [row["name"] for row in told["groups"]]) == ("low", ["low", "high"])
    high = told["groups"][1]
    assert (high["runs"], high["judged"], high["satisfactory"], high["versions"]) == (12, 12, 1.0, 2.0)
    assert (high["first_score"], high["cost_usd"]) == (pytest.approx(0.4), pytest.approx(0.01))
    contrast = high["against_baseline"]
    assert contrast["verdict"] == "higher"
    assert 0.28 < contrast["interval"][0] < contrast["difference"] < contrast["interval"][1] < 0.32
    assert told["groups"][0]["against_baseline"] is None


def test_each_criterion_of_the_first_and_best_version_is_compared():
    detail = read(*some("a", LOW, 14, 0.8), *some("b", HIGH, 12, 0.5))["detail"]
    verdicts = {part: {one["name"]: one["verdict"] for one in detail[part]} for part in
                ("first_version", "best_version", "effort")}  # fmt: skip
    assert verdicts == {
        "first_version": {"all criteria": "none", "facts": "none", "tone": "none"},
        "best_version": {"all criteria": "lower", "facts": "lower", "tone": "none"},
        "effort": {"versions": "none", "cost": "none", "time": "none"},
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.5] * 9, [0.9] * 50, "few"),
        ([0.5], [0.9], "few"),
        ([], [0.9] * 20, "unknown"),
        ([None] * 20, [0.9] * 20, "unknown"),
        ([0.9] * 10, [0.5] * 10, "higher"),
        ([0.1 + 0.2] * 10, [0.3] * 10, "none"),
        ([0.4, 0.6] * 5, [0.5, 0.52] * 5, "none"),
    ],
)
def test_few_runs_or_chance_give_no_verdict(ours, theirs, verdict):
    contrast = Contrast.of("x", "score", Sample.of(theirs), Sample.of(ours))
    assert contrast.verdict == verdict
    assert (contrast.effect is None) == (verdict in ("few", "unknown"))


def test_the_scale_includes_all_intervals():
    wide = Contrast.of("x", "score", Sample.of([0.2] * 10), Sample.of([0.9] * 10))
    few = Contrast.of("x", "score", Sample.of([0.5]), Sample.of([0.4]))
    none = Contrast.of("x", "score", Sample.of([]), Sample.of([0.4]))
    scale = intervals([wide, few, none, None])
    assert scale.extent == 0.7
    assert scale.span(wide).mean == pytest.approx(scale.width - 6)
    assert (scale.span(few).low, scale.span(none), scale.span(None)) == (None, None, None)
    assert scale.span(few).mean < scale.zero


@pytest.mark.parametrize("by", GROUPINGS)
def test_runs_are_grouped_by_every_grouping(by):
    page = client(run("a"), run("b", advice=())).get(f"/compare?by={by}")
    assert page.status_code == 200
    assert len(read(run("a"), run("b", advice=()), query=f"?by={by}")["groups"]) == (
        2 if by in ("advice", "run") else 1
    )


@pytest.mark.parametrize(
    ("query", "baseline", "group"),
    [
        ("?by=advice", "without", "with notes or lessons"),
        ("?baseline=high", "high", "low"),
        ("?baseline=high&with=high", "high", "low"),
        ("?with=third", "low", "third"),
        ("?of=third,high", "third", "high"),
        ("?by=run&of=b-00,a-00", "b-00", "a-00"),
        (f"?by=run&task={task_digest('Another.')}", "c-00", "c-01"),
        ("?name=high&by=run", "b-00", "b-01"),
        ("?by=run&like=c-01", "c-01", "c-00"),
        ("?by=run&like=a-02&of=a-01,a-00", "a-01", "a-00"),
    ],
)
def test_the_baseline_and_the_compared_group_are_chosen(query, baseline, group):
    third = Origin("agent", "third", "any:model")
    runs = [*some("a", LOW, 4, 0.5), *some("b", HIGH, 2, 0.8, advice=()),
            *some("c", third, 2, 0.6, task=Task("Another."))]  # fmt: skip
    detail = read(*runs, query=query)["detail"]
    assert (detail["baseline"], detail["group"]) == (baseline, group)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("", 200, "There is only one group"),
        ("?by=colour", 400, "Runs can't be grouped by 'colour'"),
        ("?baseline=nobody", 404, "There are no runs of 'nobody' here to compare."),
        ("?name=nobody", 200, "No finished runs match."),
        ("?by=run", 200, "too few runs"),
        ("?by=run&of=b", 200, "only one group"),
    ],
)
def test_query_parameters_are_checked(query, status, told):
    page = client(run("a"), run("b")).get(f"/compare{query}")
    assert page.status_code == status
    assert told in Seen(page.text).words


def test_an_empty_store_says_what_to_run():
    assert "Try redraft demo" in Seen(client().get("/compare").text).words
    assert "Try redraft demo" in Seen(client(run("a", reason=None)).get("/compare").text).words


def test_different_tasks_are_mentioned():
    runs = [run("a", origin=LOW), run("b", origin=HIGH, task=Task("Another."))]
    assert "0 of 2 are common to both" in Seen(client(*runs).get("/compare").text).words


def test_runs_without_score_or_price_are_counted_separately():
    unjudged = replace(run("b"), versions=(version(1, None),), best=1, final=1, revisions=0)
    unpriced = run("c", usage_by_role={"generation": TokenUsage(cost_usd=None)})
    (row,) = read(run("a"), unjudged, unpriced)["groups"]
    assert (row["runs"], row["judged"], row["cost_known"]) == (3, 2, 2)
    assert "1 not judged" in Seen(client(run("a"), unjudged).get("/compare").text).words


def test_only_the_first_groups_are_shown():
    told = read(*(run(f"r{number:02}") for number in range(MOST + 3)), query="?by=run")
    assert (len(told["groups"]), told["others"]) == (MOST, 3)


@pytest.mark.parametrize("path", ["/runs", "/runs/a"])
def test_pages_link_to_the_comparison(path):
    site = client(
        run("a"), run("b"), run("c", task=Task("Another.")), run("d", reason=None, status="running")
    )
    (link,) = [one for one in Seen(site.get(path).text).links if one.startswith("/compare?")]
    told = site.get(link.replace("/compare?", "/compare.json?")).json()
    names = [row["name"] for row in told["groups"]]
    assert (told["baseline"], names) == ("a", ["c", "b", "a"] if path == "/runs" else ["b", "a"])


def test_a_running_or_unknown_run_has_no_comparison():
    site = client(run("d", reason=None, status="running"))
    assert "/compare?" not in site.get("/runs/d").text + site.get("/runs").text
    assert site.get("/compare.json?by=run&like=unknown").status_code == 404


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("by", ["agent", "task"])
def test_hostile_words_are_escaped(text, by):
    other = run("b", task=Task("Another."), origin=HIGH)
    hostile = run("a", task=Task(text), origin=Origin("agent", text, text))
    for one in hostile.versions:
        one.evaluation = replace(one.evaluation, criteria_scores={text: 0.5})
    page = client(hostile, other).get("/compare", params={"by": by, "of": "", "name": ""})
    seen = Seen(page.text)
    assert page.status_code == 200
    assert "img" not in seen.tags
    assert not any(name.startswith("on") for name, _ in seen.attributes)
    assert not any(character in page.text for character in "\x1b\x00\x9b\u202e\u2066")


def test_secrets_are_withheld(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    origin = Origin("agent", f"agent {secret}", secret)
    runs = [run("a", origin=origin, task=Task("x" * 190 + secret)), run("b")]
    for by in ("agent", "model", "task"):
        for path in ("/compare", "/compare.json"):
            assert "zeppelin" not in client(*runs).get(f"{path}?by={by}").text
    # What is withheld can be chosen all the same.
    assert client(*runs).get(f"/compare?baseline={task_digest(origin.name)}").status_code == 200
