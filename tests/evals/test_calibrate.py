"""`redraft calibrate` on the command line, and the pages of judges."""

import asyncio

import pytest

from redraft import MemoryStore
from redraft.evals.calibration import Calibrations
from redraft.stores.location import project_store
from support.commands import document, redraft
from support.dashboards import HOSTILE, Seen, pages
from support.judged import CLEAR, SHORT, judged_runs


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))

    async def main():
        store = project_store()
        await judged_runs(store, 20)
        await store.aclose()

    asyncio.run(main())


def calibrate(*words, keys=""):
    result = redraft("calibrate", *words, stdin="\n".join(keys) + "\n")
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.usefixtures("project")
def test_labelling_shows_no_verdict_and_goes_on_where_it_stopped():
    shown = calibrate(keys="ynq")
    assert "1 of 40" in shown
    assert "Is it clear?" in shown or "Is it short?" in shown
    assert "0.9" not in shown
    assert "0.4" not in shown
    assert "2 of the 20 labels that a calibration needs.\nredraft calibrate show" in shown
    again = calibrate(keys="xu s q")  # an unknown key is no answer; undo asks for the second again
    assert "3 of 40" in again
    assert "2 of 40" in again
    assert "1 of the 20 labels" in again
    assert "1 labelled" in calibrate(keys="")  # the end of the input stops, too


@pytest.mark.usefixtures("project")
def test_the_report_and_the_list():
    calibrate(keys="yn" * 15)
    assert " 30 " in calibrate("list")
    (judge,) = document(redraft("calibrate", "list", "--json"))["judges"]
    assert (judge["judgements"], judge["left"], judge["labels"], judge["is_calibrated"]) == (40, 10, 30, True)
    report = calibrate("show", judge["key"][:6], "--false-accept", "3")
    assert "30 labels: kappa " in report
    assert "wrongly accepted" in report
    assert "you say yes" in report
    data = document(redraft("calibrate", "show", "--json", "--false-accept", "3"))
    assert data["costs"] == {"false_accept": 3.0, "false_reject": 1.0}
    assert [one["name"] for one in data["report"]] == ["", "clear", "short"]
    assert data["report"][0]["agreement"] == judge["agreement"]


@pytest.mark.usefixtures("project")
def test_all_is_labelled_at_last():
    assert "Everything that this judge has judged here is labelled. 40 labels: kappa" in " ".join(
        calibrate(keys="yn" * 20).split()
    )
    assert "Everything that this judge has judged here is labelled." in calibrate()


def test_without_judgements_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    result = redraft("calibrate")
    assert result.exit_code == 2
    assert "nothing to label" in result.stderr
    assert "No stored run here has been judged" in redraft("calibrate", "list").stdout
    assert redraft("calibrate", "show", "--false-accept", "0", "--false-reject", "0").exit_code == 2


# --- the dashboard -----------------------------------------------------------------------------------------

JUDGES = "/judges"


def judged(count=20, **options):
    store = MemoryStore()
    asyncio.run(judged_runs(store, count, **options))
    return store, asyncio.run(Calibrations(store).list())[0].judge.key


def read(store, path):
    answer = pages(store).get(path)
    assert answer.status_code == 200, answer.text
    return answer


def test_the_page_to_label_shows_no_verdict_in_any_form():
    store, key = judged()
    path = f"{JUDGES}/{key}/label"
    for text in (read(store, path).text, read(store, f"{path}.json").text):
        assert "0.9" not in text
        assert "0.4" not in text
    shown = read(store, f"{path}.json").json()
    assert shown["criterion"] in ("clear", "short")
    assert shown["number"] == 1


def test_labels_are_given_and_taken_back():
    store, key = judged()
    path = f"{JUDGES}/{key}/label"

    def post(**fields):
        return pages(store).post(path, json=fields)

    first = read(store, f"{path}.json").json()["judgement"]
    said = post(judgement=first, answer="yes")
    assert (said.status_code, said.json()) == (200, {"message": "Labelled: yes. 1 label so far."})
    second = read(store, f"{path}.json").json()["judgement"]
    assert second != first
    assert post(judgement=second, answer="skip").json() == {"message": "Skipped."}
    assert post(judgement="", answer="undo").json() == {"message": "The last label was undone."}
    assert read(store, f"{path}.json").json()["judgement"] == second
    assert post(judgement=second, answer="perhaps").status_code == 400
    assert post(judgement="unknown", answer="yes").status_code == 404
    assert post(judgement=second).status_code == 400
    assert pages(store).post(f"{JUDGES}/nobody/label", json={"answer": "undo"}).status_code == 404
    post(answer="undo")
    assert post(answer="undo").json() == {"message": "There is no label to undo."}


def test_judges_and_their_reports():
    store, key = judged()
    assert "ScriptedModelclear, short 40 0 not yet" in Seen(read(store, JUDGES).text).words
    assert f'href="{JUDGES}"' in read(store, "/evaluations").text

    async def main():
        calibrations = Calibrations(store)
        calibration = await calibrations.get()
        for at, judgement in enumerate(calibration.left):
            calibration = await calibrations.label(calibration, judgement, at % 2 == 0)

    asyncio.run(main())
    words = Seen(read(store, f"{JUDGES}/{key}?false_accept=4").text).words
    assert "40 labels: kappa" in words
    assert "a threshold of" in words
    assert "Everything that this judge" in Seen(read(store, f"{JUDGES}/{key}/label").text).words
    document = read(store, f"{JUDGES}/{key}.json?false_accept=4").json()
    assert document["costs"]["false_accept"] == 4.0
    assert document["labels"] == 40
    assert pages(store).get(f"{JUDGES}/{key}?false_accept=much").status_code == 400
    assert pages(store).get(f"{JUDGES}/nobody").status_code == 404
    assert "No stored run here" in read(MemoryStore(), JUDGES).text


def test_hostile_texts_and_secrets_stay_texts():
    secret = "sk-proj-" + "a1B2" * 10
    texts = [*HOSTILE, secret]
    store, key = judged(
        len(texts), criteria=(CLEAR, SHORT), score=lambda *_: 0.5, draft=lambda number: texts[number] + " it"
    )

    async def all_labels():
        calibrations = Calibrations(store)
        calibration = await calibrations.get()
        seen = []
        for judgement in calibration.left:
            page = await asyncio.to_thread(read, store, f"{JUDGES}/{key}/label")
            seen.append(page.text)
            calibration = await calibrations.label(calibration, judgement, met=True)
        return seen

    for text in asyncio.run(all_labels()):
        assert secret not in text
        Seen(text)
        assert "<script>alert" not in text
        assert "<img src=x" not in text
