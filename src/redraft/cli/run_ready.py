"""What can be known of a workflow before anything is spent, beside what its file says by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from redraft.cli.run_missing import first_missing
from redraft.cli.run_uses import Uses, model_names
from redraft.cli.run_values import read_text
from redraft.core.errors import ConfigError, MissingExtraError
from redraft.core.settings import load_settings
from redraft.models.names import model_of
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.reading import Source, read
from redraft.workflow.workflow import Workflow

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Ready:
    """Hold a workflow that is checked, with what it is given and all that it uses.

    `models` maps names of the file to those that answer in their place, as `--model` wants it.
    """

    workflow: Workflow
    given: Mapping[str, Any]
    uses: Uses
    models: Mapping[str, str]

    @property
    def file(self) -> str:
        """The file, as it was named."""
        return self.workflow.source.file

    def full_name(self, model: str | None) -> str | None:
        """Return the name of the model that answers to a name of the file, None where none is known."""
        settings = load_settings()
        name = model or self.given.get("model") or self.workflow.spec.model or settings.model
        aliases = {**settings.models, **self.workflow.spec.models, **self.models}
        seen: set[str] = set()
        while name in aliases and name not in seen:
            seen.add(name)
            name = aliases[name]
        return name

    def own_actions(self) -> list[str]:
        """Return the names of actions that are not built in."""
        return [name for name in self.uses.actions if name not in BUILT_IN]


def ready(
    file: str, given: Mapping[str, Any], *, model: str | None, keep: bool, allow_unsandboxed: bool
) -> Ready:
    """Read a workflow file and check it with what it is given, down to its models and languages.

    A `model` answers in place of every one that the file names. Raises `WorkflowError`, with file, line, node
    and key, for whatever can be known to go wrong.
    """
    source = Source(read_text(file, "The workflow"), file)
    models: dict[str, str] = {}
    if model is not None:
        spec = read(source)
        named = {spec.model, *model_names([node.with_ for node in spec.nodes])} - {None, model}
        models = {str(name): model for name in named}
        given = {**given, "model": model}
    workflow = Workflow(source, models=models, keep=keep, allow_unsandboxed=allow_unsandboxed)
    found = Ready(workflow, given, Uses.of(workflow.spec), models)
    if (missing := first_missing(workflow.spec, given)) is not None:
        way, name = missing
        short = name.partition(".")[2]
        raise source.error(way, f"{name} is read here, and nothing gives it: add -v {short}=TEXT")
    _check_models(found)
    return found


def _check_models(found: Ready) -> None:
    for name, way in found.uses.models.items():
        full = found.full_name(name)
        if full is None and _may_set_model(found):
            continue
        try:
            model_of(full, load_settings())
            if str(full).startswith(f"{LOCAL}:") and find_spec("xllamacpp") is None:
                raise MissingExtraError("A local model", LOCAL)
        except ConfigError as error:
            named = way if name is None else (*way, "model")
            raise found.workflow.source.error(named, str(error)) from error


def _may_set_model(found: Ready) -> bool:
    """Say whether a node may put a model's name into the state, which is then known when it runs."""
    return any(
        node.output == "model" or (node.output is None and node.uses not in BUILT_IN)
        for node in found.workflow.spec.nodes
    )
