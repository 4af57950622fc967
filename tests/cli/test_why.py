from cli_commands import document, redraft
from redraft import Ensemble, ModelError, QualityCriterion, ScriptedModel, Task


def test_it_names_the_rule_and_what_came_after_the_best(revised):
    revised("b", "bb", "bbb")
    result = redraft("why", "last")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[2] == "plateau: the best version was not beaten any more."
    assert "plateau_iterations = 2." in " ".join(lines)
    assert "Returned: version 1 (0.00), which falls short:" in lines
    assert "  - the score 0.00 < 1.00" in lines
    assert lines[-1].startswith("Spent after it (2 versions): ")
    found = document(redraft("why", "last", "--json"))
    assert found["why"]["numbers"]["not_better"] == [2, 3]
    assert found["after_best"]["usage"]["requests"] == 2


def test_a_failed_run_says_what_goes_on_with_it(revised):
    revised(ModelError("It is away."))
    lines = redraft("why", "last").stdout.splitlines()
    assert lines[2] == "error: a step failed for good."
    assert "  The step 'revise' failed after version 1: ModelError: It is away." in lines
    assert lines[-1].startswith("redraft resume ")


def test_of_a_task_that_nothing_judges_it_is_not_said_that_it_meets_anything(project):
    Ensemble(ScriptedModel(["Leaves."]), [Task("Say what tea is.")]).run_sync()
    told = redraft("why", "last").stdout
    assert told.splitlines()[2:6] == [
        "max_iterations: one version was wanted.",
        "  Nothing is there to judge it by.",
        "",
        "Returned: version 1, which nothing judged.",
    ]
    shown = redraft("show", "last").stdout
    assert "Best: version 1, which nothing judged" in shown
    page = project / "run.html"
    assert redraft("export", "last", "--html", page).exit_code == 0
    assert "Version 1, which nothing judged." in page.read_text()
    for said in (told, shown, page.read_text()):
        assert not [words for words in ("meets the", "- could not be judged", "was allowed") if words in said]
    tea = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "Leaves"})
    Ensemble(ScriptedModel(["Leaves."]), [Task("Say what tea is.", criteria=[tea])]).run_sync()
    assert "which meets the criteria" in redraft("show", "last").stdout
