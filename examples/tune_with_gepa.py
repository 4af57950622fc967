"""Tune a system prompt with GEPA (`pip install gepa`), and prove the gain on cases it never saw.

GEPA tries a prompt on cases, has a model rewrite it from what went wrong, and keeps what passes more cases;
an `Evaluation` does the trying. A third of the cases proposes prompts, a third chooses among them, a third
proves the gain. Take at least 24, and new cases for a new search.
"""

from pathlib import Path

import gepa
from app import clerk, writer  # two Agents: the one to tune, and one that writes prompts
from gepa.core.adapter import EvaluationBatch
from gepa.utils import ScoreThresholdStopper

from redraft import Evaluation, MemoryStore
from redraft.evals import read_cases

cases = read_cases(Path("cases.yaml"))
learn, choose, prove = cases[0::3], cases[1::3], cases[2::3]


class Search:
    """Try system prompts on cases, as GEPA asks for it."""

    propose_new_texts = None  # GEPA's own prompt asks for a better text

    def evaluate(self, batch, candidate, capture_traces=False):
        agent = clerk.variant(system_prompt=candidate["system_prompt"])
        different = {case.id: case for case in batch}  # GEPA may ask for a case twice
        report = Evaluation(list(different.values()), agent, store=MemoryStore()).run_sync()
        if errors := [attempt.error for attempt in report.tries if not attempt.answers]:
            raise RuntimeError(errors[0])
        answer_of = {attempt.case: attempt.answers[-1] for attempt in report.tries}
        answers = [answer_of[case.id] for case in batch]
        scores = [1.0 if answer.passed else (answer.score or 0.0) / 2 for answer in answers]
        records = [
            {
                "Task": case.task.description,
                "Answer": answer.output,
                "Passed": answer.passed,
                "Issues": list(answer.issues),
            }
            for case, answer in zip(batch, answers, strict=True)
        ]
        return EvaluationBatch(answers, scores, records)

    def make_reflective_dataset(self, candidate, batch, components):
        return {"system_prompt": batch.trajectories}


search = gepa.optimize(
    {"system_prompt": clerk.system_prompt},
    learn,
    choose,
    adapter=Search(),
    reflection_lm=lambda prompt: writer.run_sync(prompt).best_output,
    max_metric_calls=200,  # how often a case is tried; Evaluation(..., budget_usd=1) bounds each round
    stop_callbacks=[ScoreThresholdStopper(1.0)],  # all cases of `choose` pass
)
tuned = clerk.variant(system_prompt=search.best_candidate["system_prompt"])
report = Evaluation(prove, {"tuned": tuned, "present": clerk}).run_sync()
print(report.differences[-1].sentence())
print(tuned.system_prompt)
