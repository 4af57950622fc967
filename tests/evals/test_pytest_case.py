"""`@eval_case`: a test for each case."""

import pytest

from redraft import Agent, ConfigError, EvalCase, ReflectionPattern, ScriptedModel
from redraft.evals import eval_case
from redraft.types import PlainTask
from support.eval_cases import GOOD

CASES = [EvalCase(name, PlainTask(f"Say {name}."), (GOOD,)) for name in ("good", "better")]
agent = Agent(ScriptedModel(lambda _: "good"), pattern=ReflectionPattern(1), keep=False)


@eval_case(CASES)
async def test_an_agent(case):
    return await agent.run(case.task)


@eval_case(CASES)
def test_a_function_with_a_fixture(case, tmp_path):
    assert tmp_path.is_dir()
    return f"good {case.id}"


def test_an_answer_that_does_not_pass_fails_with_its_issues():
    @eval_case(CASES)
    def test_bad(case):
        return "bad"

    (mark,) = test_bad.pytestmark
    assert (mark.name, mark.args, mark.kwargs["ids"]) == ("parametrize", ("case", CASES), ["good", "better"])
    with pytest.raises(pytest.fail.Exception, match=r"case 'good' does not pass:\n- .*good"):
        test_bad(case=CASES[0])


def test_what_cannot_be_a_test():
    with pytest.raises(ConfigError, match="needs a parameter `case`"):
        eval_case(CASES)(lambda: "good")
    with pytest.raises(ConfigError, match="Nothing grades the case 'x'"):
        eval_case([EvalCase("x", PlainTask("Say x."))])(lambda case: "good")
    with pytest.raises(ConfigError, match=r"missing\.yaml' can't be read"):
        eval_case("missing.yaml")(lambda case: "good")
