"""What a workflow uses: its actions, models and code, each with its place in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from redraft.text.yaml import Way
from redraft.workflow.correct import maker_of
from redraft.workflow.names import plain_name
from redraft.workflow.spec import Code, CorrectParams, EvaluateParams, LoopParams

if TYPE_CHECKING:
    from redraft.workflow.spec import Evaluator, Maker, WorkflowSpec

UNRENDERED = "schema"
"""The parameter that is data, in which a key says nothing about the workflow."""


@dataclass(frozen=True, slots=True)
class Uses:
    """Hold what a workflow uses, each with its place in the file: the first one that it has there.

    Every piece of `code` has its own. The model None is the one of the state, the file or the settings;
    models that templates choose are left out, for they are known when it runs.
    """

    actions: dict[str, Way] = field(default_factory=dict[str, "Way"])
    models: dict[str | None, Way] = field(default_factory=dict["str | None", "Way"])
    code: list[tuple[Code, Way]] = field(default_factory=list[tuple[Code, Way]])

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Uses:
        """Return what a workflow uses that has been checked."""
        uses = cls()
        for at, node in enumerate(spec.nodes):
            way = ("nodes", at)
            if node.run is not None:
                uses._code(node, way)
            else:
                uses._action(str(node.uses), node.with_, (*way, "with"))
        return uses

    def _action(self, name: str, params: Mapping[str, Any], way: Way) -> None:
        known = plain_name(name)
        self.actions.setdefault(known, way)
        if known == "reflection.loop":
            loop = LoopParams.model_validate(dict(params))
            self._maker(loop.generator, (*way, "generator"))
            self._evaluator(loop.evaluator, (*way, "evaluator"))
            if loop.corrector is not None:
                self._maker(loop.corrector, (*way, "corrector"))
        elif known == "reflection.evaluate":
            self._evaluator(EvaluateParams.model_validate(dict(params)).evaluator(), way)
        elif known == "reflection.correct":
            self._maker(maker_of(CorrectParams.model_validate(dict(params))), way)
        elif known == "llm.call":
            self._model(params.get("model"), way)

    def _maker(self, maker: Maker, way: Way) -> None:
        if maker.run is not None:
            self._code(maker, way)
        else:
            self._action(str(maker.action), maker.params, way)

    def _evaluator(self, evaluator: Evaluator, way: Way) -> None:
        if evaluator.type == "llm":
            self._model(evaluator.model, way)
        elif evaluator.type == "custom":
            self._code(evaluator, way)

    def _code(self, code: Code, way: Way) -> None:
        self.code.append((code, (*way, "run")))

    def _model(self, name: str | None, way: Way) -> None:
        if name is None or "{{" not in name:
            self.models.setdefault(name, way)


def model_names(value: Any) -> set[str]:
    """Return the names of models anywhere in the parameters of a workflow that has not been checked."""
    if isinstance(value, list):
        return set[str]().union(*map(model_names, cast("list[Any]", value)))
    if not isinstance(value, Mapping):
        return set()
    items = cast("Mapping[str, Any]", value)
    found = {name for key, name in items.items() if key == "model" and isinstance(name, str)}
    return found.union(*(model_names(item) for key, item in items.items() if key != UNRENDERED))
