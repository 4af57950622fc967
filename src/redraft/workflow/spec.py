"""The workflow file format, typed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from redraft import protocols as script
from redraft.errors import WorkflowError
from redraft.text.spec_file import TEMPLATED, SpecFile
from redraft.text.yaml import Way, load_yaml

Template = Annotated[str, Field(description=TEMPLATED)]
Language = Literal["python", "lua", "prolog"]
Sandbox = Literal["inline", "process"]


class Strict(BaseModel):
    """Refuse keys that are not known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Limits(Strict):
    """Bound what code and templates of the file may use; a file can only lower the defaults."""

    seconds: float = Field(2.0, gt=0, le=2.0, description="Of running time, for each piece of code.")
    memory_mb: int = Field(64, ge=32, le=64, description="Of what a piece of code takes.")
    output_chars: int = Field(65_536, ge=1, le=65_536, description="Of what a piece of code prints.")
    result_chars: int = Field(1_048_576, ge=1, le=1_048_576, description="Of its result as JSON.")

    @cached_property
    def of_scripts(self) -> script.Limits:
        """The limits of each piece of code, as what runs it takes them."""
        return script.Limits(self.seconds, self.memory_mb, self.output_chars, self.result_chars)


class Code(Strict):
    """Hold a piece of code, where there is one, and how it is run."""

    run: str | None = Field(None, description="Code; its value is what it returns, or `result`.")
    language: Language = "python"
    sandbox: Sandbox = "inline"


class Maker(Code):
    """Make an output: by an action, whose parameters stand beside it, or by code."""

    model_config = ConfigDict(extra="allow")

    action: str | None = Field(None, description="`llm.call`, or an action of your own.")

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the action."""
        return dict(self.model_extra or {})


class Corrector(Maker):
    """Mend an output that is not valid, or say what to do better.

    With `apply: replace` what it gives is the next candidate; with `feedback` it is merged into the loop's
    state and the generator runs again. `auto` takes an object as feedback, whether code, an action or a model
    gave it, and everything else as the candidate.
    """

    apply: Literal["auto", "replace", "feedback"] = "auto"


class Example(Strict):
    """Show the judge one judgement."""

    input: Any
    output: Any


class Evaluator(Code):
    """Say whether an output is valid, and how good it is."""

    type: Literal["schema", "llm", "custom"]
    schema_: Any = Field(None, alias="schema", description="JSON Schema, for the type `schema`.")
    prompt: Template | None = Field(
        None, description="For the type `llm`; the output is added if it lacks it."
    )
    model: str | None = None
    examples: list[Example] = Field(default_factory=list[Example])
    threshold: float = Field(0.8, ge=0, le=1, description="From which a score alone counts as valid.")
    score_max: float | None = Field(None, gt=0, allow_inf_nan=False)


class LoopParams(Strict):
    """Parameters of `reflection.loop`; `max_iterations` counts attempts."""

    generator: Maker
    evaluator: Evaluator
    corrector: Corrector | None = None
    max_iterations: Annotated[int, Field(ge=1)] | Template = 3
    on_failure: Literal["return_best", "return_last", "raise"] = "return_best"


class EvaluateParams(Code):
    """Parameters of `reflection.evaluate`."""

    data: Any = Field(None, description="Default: state.reflection_output.")
    evaluator_type: Literal["schema", "llm", "custom"] = "schema"
    schema_: Any = Field(None, alias="schema")
    prompt: Template | None = None
    model: str | None = None
    examples: list[Example] = Field(default_factory=list[Example])
    threshold: float = Field(0.8, ge=0, le=1)
    score_max: float | None = Field(None, gt=0, allow_inf_nan=False)

    def evaluator(self) -> Evaluator:
        """Return the evaluator that these parameters describe."""
        return Evaluator(
            type=self.evaluator_type,
            schema=self.schema_,
            prompt=self.prompt,
            model=self.model,
            examples=self.examples,
            threshold=self.threshold,
            score_max=self.score_max,
            run=self.run,
            language=self.language,
            sandbox=self.sandbox,
        )


class CorrectParams(Code):
    """Parameters of `reflection.correct`."""

    data: Any = Field(None, description="Default: state.reflection_output.")
    errors: Any = Field(None, description="Default: state.reflection_errors.")
    corrector_action: str | None = None
    prompt: Template | None = Field(None, description="Uses llm.call.")
    model: str | None = None


class Turn(Strict):
    """Say one thing of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Template


class LlmParams(Strict):
    """Parameters of `llm.call`; returns the reply's text, or with `schema` the value that it is."""

    prompt: Template | None = None
    messages: Annotated[list[Turn], Field(min_length=1)] | Template | None = None
    system: Template | None = None
    model: str | None = None
    schema_: Any = Field(None, alias="schema", description="JSON Schema that the reply has to follow.")
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)


class Jump(Strict):
    """Go to a node if a condition holds; without one, always."""

    if_: Template | bool | None = Field(None, alias="if")
    to: str


class Node(Code):
    """One step of the workflow: an action (`uses`, `with`), or code (`run`)."""

    name: str = Field(min_length=1)
    description: str = ""
    uses: str | None = None
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")
    output: str | None = Field(
        None, min_length=1, description="The key of the state under which the result goes."
    )
    when: Template | bool | None = Field(None, description="The node is skipped unless this is true.")
    goto: str | list[Jump] | None = Field(None, description="The next node, instead of the one below.")
    max_visits: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="A goto is not taken to a node that was come to so often: the bound of a cycle.",
    )
    on_error: str = Field(
        "raise", description="`raise`, `continue` (with state.error), or the name of the node to go to."
    )

    @property
    def action(self) -> str | None:
        """The name of its action in one spelling; None for code."""
        return None if self.uses is None else plain_name(self.uses)

    @property
    def jumps(self) -> list[Jump]:
        """The gotos in their order; one that is just a name has no condition."""
        return [Jump.model_validate({"to": self.goto})] if isinstance(self.goto, str) else self.goto or []


class WorkflowSpec(Strict):
    """A workflow file."""

    name: str = Field("", min_length=1, description="Default: the name of the file, without its ending.")
    description: str = ""
    model: str | None = Field(None, description="The model where a node names none.")
    models: dict[str, str] = Field(
        default_factory=dict[str, str], description="What a model's name stands for."
    )
    variables: dict[str, Any] = Field(default_factory=dict[str, Any])
    env: list[str] = Field(
        default_factory=list[str], description="The environment variables that templates and code may read."
    )
    limits: Limits = Limits()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    nodes: list[Node] = Field(min_length=1)


LLM_CALL = "llm.call"
LOOP = "reflection.loop"
EVALUATE = "reflection.evaluate"
CORRECT = "reflection.correct"

END = "end"
"""What a goto names to end the workflow."""
RAISE, CONTINUE = "raise", "continue"
"""What `on_error` says besides the names of nodes."""

_UNDERSCORED = {name.replace(".", "_"): name for name in (LLM_CALL, LOOP, EVALUATE, CORRECT)}


def plain_name(name: str) -> str:
    """Return the name of an action that is built in, however it is spelt; another name is left as it is."""
    return _UNDERSCORED.get(name, name)


STDIN = "-"
"""The file that is none: standard input."""


@dataclass(frozen=True, slots=True)
class Source(SpecFile):
    """Hold the text of a workflow file and its name, and say where in it something is wrong."""

    file: str = "workflow"

    expected: ClassVar[str] = "a workflow is a mapping with 'nodes'"

    def error(self, way: Way, what: str, *, within: int | None = None) -> WorkflowError:
        """Return the `WorkflowError` that says what is wrong, and where; `within` is a line of that code."""
        line = self.line(way, within)
        node = self._node(way)
        key = ".".join(map(str, way[2:] if node else way))
        message = self.said(line, (f"node {node!r}" if node else "", key), what)
        return WorkflowError(message, file=self.file, line=line, node=node, key=key or None)

    def broken(self, message: str, line: int | None) -> WorkflowError:
        """Return the `WorkflowError` of a text that is no YAML."""
        return WorkflowError(message, file=self.file, line=line)

    def _node(self, way: Way) -> str | None:
        if len(way) < 2 or way[0] != "nodes" or not isinstance(way[1], int):  # noqa: PLR2004 (`nodes`, a number)
            return None
        nodes: Any = load_yaml(self.text, self.file).get("nodes")
        node: Any = cast("list[Any]", nodes)[way[1]] if isinstance(nodes, list) else None
        name = cast("dict[str, Any]", node).get("name") if isinstance(node, dict) else None
        return str(name) if name else f"number {way[1] + 1}"


def read(source: Source) -> WorkflowSpec:
    """Return the spec of a workflow file; raises `WorkflowError` for what does not follow the format."""
    spec = source.parse(WorkflowSpec, source.document())
    if spec.name:
        return spec
    name = "workflow" if source.file == STDIN else Path(source.file).stem
    return spec.model_copy(update={"name": name})
