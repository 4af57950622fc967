"""The functions of a program that an agent file names, as the command line finds them."""

from __future__ import annotations

import inspect
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

BESIDE = "functions.py"


def functions_for(file: str, given: Path | None) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a Python file: `given`, else `functions.py` beside the agent's.

    None where there is no such file. Raises `ConfigError` for one that can't be loaded, with the reason.
    """
    path = given or Path(file).parent / BESIDE
    if given is None and not path.is_file():
        return {}
    found = spec_from_file_location(f"redraft_agent_{path.stem}", path)
    if found is None or found.loader is None:
        raise ConfigError(f"{str(path)!r} is no Python file; --functions takes PATH.py.")
    module = module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look their module up there
    try:
        found.loader.exec_module(module)
    except Exception as error:  # what a file of the user's own raises is no defect of Redraft's
        raise ConfigError(f"{str(path)!r} can't be loaded: {type(error).__name__}: {error}") from error
    return {
        name: function
        for name, function in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == found.name
    }
