"""The examples of the task reflection specification, in Python, with a scripted model."""

from redraft import Ensemble, ScriptedModel, Task
from redraft.notes import (
    InMemoryReflectionStore,
    ReflectionConfig,
    TaskIdentity,
    TaskReflectedEvent,
    TaskReflection,
)
from support.ensembles import REPLY, asked, reflections, thinking

BLOCK = """\
## Task Improvement Notes (from prior executions)

The following refinements were identified by analyzing previous runs of this task.
Apply them to improve your approach while still fulfilling the original requirements below.

### Refined Instructions
Research AI trends in 2025, with sources

### Output Guidance
A report with links

### Observations
- The reader had no sources

### Suggestions
- Name a source for each trend

---

## Task
Research AI trends in 2025 and write a summary report

## Expected Output
A structured report with sections: Introduction, Key Trends, Conclusion"""


def research(**more):
    return Task(
        "Research AI trends in 2025 and write a summary report",
        "A structured report with sections: Introduction, Key Trends, Conclusion",
        **more,
    )


def test_each_run_improves_the_brief_of_the_next():
    model, store, events = thinking(), InMemoryReflectionStore(), list[TaskReflectedEvent]()
    task = research(reflect=True)
    ensemble = Ensemble(model=model, tasks=[task], reflection_store=store, on_task_reflected=events.append)

    results = [ensemble.run_sync() for _ in range(3)]

    first, second, third = asked(model)
    assert "Improvement Notes" not in first
    assert first.endswith("A structured report with sections: Introduction, Key Trends, Conclusion")
    assert second == third == BLOCK
    assert [event.reflection.run_count for event in events] == [1, 2, 3]
    assert [event.is_first_reflection for event in events] == [True, False, False]
    assert {event.task_description for event in events} == {task.description}
    assert [result.results[0].note for result in results] == [None, 1, 2]
    assert results[2][task].reflection == events[2].reflection
    assert [result.output for result in results] == ["A report."] * 3


def test_the_meta_prompt_shows_the_definition_and_the_output():
    model = thinking(answer="What was made.")
    Ensemble(model, [research(reflect=True)], InMemoryReflectionStore()).run_sync()
    [prompt] = reflections(model)
    for part in (
        "### Description\nResearch AI trends in 2025 and write",
        "What was made.",
        "REFINED_DESCRIPTION:",
    ):
        assert part in prompt


def test_a_cheaper_model_can_reflect():
    main, cheaper = thinking(), thinking()
    task = Task(
        "Write a quarterly business report",
        "A structured PDF-ready report",
        reflect=ReflectionConfig(model=cheaper),
    )
    Ensemble(main, [task], InMemoryReflectionStore()).run_sync()
    assert (len(asked(main)), len(reflections(main))) == (1, 0)
    assert (len(asked(cheaper)), len(reflections(cheaper))) == (0, 1)


def test_a_custom_strategy():
    def my_strategy(given):
        improved = f"{given.task.description} ({len(given.task_output)} characters are enough)"
        return TaskReflection.of_first_run(
            improved, given.task.expected_output, ["Custom analysis applied"], []
        )

    model = ScriptedModel(["made", "made again"])
    task = Task("Say it.", reflect=ReflectionConfig(strategy=my_strategy))
    ensemble = Ensemble(model, [task], InMemoryReflectionStore())
    result = ensemble.run_sync()
    assert result[task].reflection.observations == ["Custom analysis applied"]
    ensemble.run_sync()
    assert "Say it. (4 characters are enough)" in asked(model)[1]


def test_a_custom_store():
    class DictReflectionStore:
        def __init__(self):
            self.reflections = {}

        def store(self, task_identity, reflection):
            self.reflections[task_identity] = reflection

        def retrieve(self, task_identity):
            return self.reflections.get(task_identity)

    store, events = DictReflectionStore(), []
    task = research(reflect=True)
    ensemble = Ensemble(thinking(), [task], store, events.append)
    for _ in range(3):
        ensemble.run_sync()
    assert store.reflections[TaskIdentity.of(task)].run_count == 3
    assert [event.is_first_reflection for event in events] == [True, False, False]


def test_a_deterministic_task_reflects_with_the_model_of_its_config():
    seen = []

    def fetch_products(ctx):
        seen.append(ctx.prompt)
        return [{"name": "Lamp", "price": 12}]

    analysis = thinking(reply=REPLY.format(description="Fetch the catalog"))
    task = Task(
        "Fetch product catalog from the inventory API",
        "JSON array of product records",
        handler=fetch_products,
        reflect=ReflectionConfig(model=analysis),
    )
    ensemble = Ensemble(tasks=[task], reflection_store=InMemoryReflectionStore())
    result = ensemble.run_sync()
    assert result.output == [{"name": "Lamp", "price": 12}]
    assert '"name": "Lamp"' in reflections(analysis)[0]
    assert result[task].reflection.refined_description == "Fetch the catalog, with sources"
    ensemble.run_sync()
    assert "### Refined Instructions\nFetch the catalog, with sources" in seen[1]


def test_tasks_with_the_same_description_share_their_notes():
    store = InMemoryReflectionStore()
    tasks = [research(reflect=True), research(reflect=True)]
    result = Ensemble(thinking(), tasks, store).run_sync()
    assert sorted(one.reflection.run_count for one in result.results) == [1, 2]
