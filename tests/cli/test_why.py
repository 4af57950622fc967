from cli_commands import document, redraft
from redraft import ModelError


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
