"""Files of cases: read with the line of a mistake, and appended to without touching what is there."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, cast

import yaml

from redraft.errors import ConfigError
from redraft.evals.cases import PLAIN, EvalCase, case_id, place_of
from redraft.evals.datasets import READERS, ROLES, promptfoo_cases
from redraft.loop.criteria_file import CriteriaReader, modules_in
from redraft.text.yaml import KeyPath, load_yaml
from redraft.types import Image, ImageMessage, Message, PlainTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHARED = {"agent": str, "system_prompt": str, "task_type": str, "threshold": float, "criteria": list,
          "hidden": list}  # fmt: skip
"""What a file may give for all its cases; a case's own comes first."""
CASE = {
    **SHARED,
    "id": str,
    "task": str,
    "context": str,
    "messages": list,
    "images": list,
    "expected_output": str,
    "control": bool,
    "reference": object,
    "match": str,
    "inputs": dict,
    "wrong": list,
    "run": str,
}


MESSAGE = {"role": str, "content": str, "images": list}


def read_cases(path: Path) -> list[EvalCase]:
    """Read a file of cases: YAML as `write_cases` writes it, or a data set.

    A YAML file is a mapping with `cases`, a list. A case has a `task` and what else an `EvalCase` has; the
    file may give `criteria`, `hidden`, `threshold`, `task_type`, `agent` and `system_prompt` for all cases
    that have none of their own. `messages` are the conversation before the task, each with a `role` and a
    `content`; they and the case may have `images`: URLs, or files, whose places are relative to this one.
    Criteria are those of a criteria file. Data sets (`.csv`, `.jsonl`, and the
    tests of promptfoo in YAML) are read as `redraft.evals.datasets` says. Raises `ConfigError` with the file
    and the line.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The file of cases {str(path)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The file of cases {str(path)!r} is not UTF-8 text.") from error
    if path.suffix in READERS:
        return READERS[path.suffix](text, str(path))
    with modules_in(path.parent):
        return _CasesReader(path, text).cases()


class _CasesReader(CriteriaReader):
    """Read the cases of one file."""

    def cases(self) -> list[EvalCase]:
        document: Any = load_yaml(self.text, self.name)
        if document is None:
            self.fail((), "the file is empty; expected a mapping with 'cases', a list")
        if isinstance(document, dict) and "tests" in document and "cases" not in document:
            return promptfoo_cases(cast("dict[str, Any]", document), self.fail)
        if not isinstance(document, dict) or not isinstance(cast("Any", document).get("cases"), list):
            self.fail((), "expected a mapping with 'cases', a list")
        entries = cast("dict[Any, Any]", document)
        items = cast("list[Any]", entries.pop("cases"))
        shared = self.checked(entries, SHARED, ())
        found = [self._case(item, shared, ("cases", at)) for at, item in enumerate(items)]
        if not found:
            self.fail(("cases",), "expected at least one case")
        seen = set[str]()
        for at, case in enumerate(found):
            if case.id in seen:
                self.fail(("cases", at), f"the id {case.id!r} is used twice; ids must be unique")
            seen.add(case.id)
        return found

    def _case(self, item: Any, shared: Mapping[str, Any], way: KeyPath) -> EvalCase:
        if not isinstance(item, dict):
            self.fail(way, f"a case must be a mapping with a 'task', got {item!r}")
        own = self.checked(cast("dict[Any, Any]", item), CASE, way)
        if "task" not in own:
            self.fail(way, "the case has no 'task'")
        entries = {**shared, **own}
        task_type = entries.get("task_type", "")
        criteria = {
            name: self.criteria(entries[name], (*way, name) if name in own else (name,), task_type)
            for name in ("criteria", "hidden")
            if name in entries
        }
        task = PlainTask(
            entries["task"],
            entries.get("expected_output", ""),
            task_type,
            context=entries.get("context", ""),
            messages=tuple(
                self._message(one, (*way, "messages", at))
                for at, one in enumerate(entries.get("messages", ()))
            ),
            images=self._images(entries.get("images", ()), (*way, "images")),
        )
        try:
            return EvalCase(
                entries.get("id") or case_id(task.description),
                task,
                **criteria,
                wrong=tuple(map(str, entries.get("wrong", ()))),
                **{name: entries[name] for name in PLAIN if name in entries},
            )
        except ConfigError as error:
            self.fail(way, str(error))

    def _message(self, item: Any, way: KeyPath) -> Message:
        if not isinstance(item, dict):
            self.fail(way, f"a message must be a mapping with a 'role' and a 'content', got {item!r}")
        entries = self.checked(cast("dict[Any, Any]", item), MESSAGE, way)
        role = entries.get("role")
        if role not in ROLES:
            self.fail(way, f"the role of a message must be one of {', '.join(ROLES)}, got {role!r}")
        images = self._images(entries.get("images", ()), (*way, "images"))
        content: str = entries.get("content", "")
        return ImageMessage(role, content, images) if images else Message(role, content)

    def _images(self, places: Sequence[Any], way: KeyPath) -> tuple[Image, ...]:
        return tuple(self._image(place, (*way, at)) for at, place in enumerate(places))

    def _image(self, place: Any, way: KeyPath) -> Image:
        """Return an image by its URL, or read it from a file, whose place is relative to this one."""
        if not isinstance(place, str):
            self.fail(way, f"an image must be a file or a URL, got {place!r}")
        if "://" in place:
            return Image(url=place)
        media_type = guess_type(place)[0] or ""
        if not media_type.startswith("image/"):
            self.fail(
                way, f"{place!r} is not an image; its name should end with .png, .jpg, .webp or the like"
            )
        try:
            data = (self.folder / place).read_bytes()
        except OSError as error:
            self.fail(way, f"the image {place!r} can't be read: {error.strerror}")
        if not data:
            self.fail(way, f"the image {place!r} is empty")
        return Image(media_type, sha256(data).hexdigest(), data=data)


def add_cases(path: Path, cases: Sequence[EvalCase]) -> list[EvalCase]:
    """Append cases to a file, or write a new one; return those that it did not have.

    Cases of a run that has one in the file are left out, and ids that it uses get a number. What people wrote
    stays as it is. Raises `ConfigError` for a file that is not one of cases, or whose last key is not
    `cases`. Images are written into a folder beside the file.
    """
    text = path.read_text("utf-8") if path.is_file() else ""
    known = read_cases(path) if text.strip() else []
    runs, ids = {case.run for case in known}, {case.id for case in known}
    added: list[EvalCase] = []
    for case in cases:
        if case.run and case.run in runs:
            continue
        runs.add(case.run)
        added.append(replace(case, id=_unused(case.id, ids)))
        ids.add(added[-1].id)
    if not added:
        return []
    folder = path.with_suffix(".images")
    new = _dumped([case.document(folder.name) for case in added])
    if not text.strip():
        text = "cases:\n"
    elif not _ends_with_cases(text):
        raise ConfigError(
            f"{str(path)!r}: 'cases' must be the last key of the file, with its list in block style."
        )
    indent = _indent_of(text)
    lines = [f"{indent}{line}" if line else "" for line in new.splitlines()]
    whole = "\n".join([text.rstrip("\n"), *lines, ""])
    before, after = (load_yaml(one, str(path)) for one in (text, whole))
    if len(after["cases"]) != len(before["cases"] or ()) + len(added):
        raise ConfigError(f"{str(path)!r}: cases can't be appended to its list; add them by hand.")
    path.parent.mkdir(parents=True, exist_ok=True)
    for image in {one.digest: one for case in added for one in case.task.all_images if one.data}.values():
        folder.mkdir(exist_ok=True)
        (path.parent / place_of(image, folder.name)).write_bytes(image.data)
    path.write_text(whole, "utf-8")
    return added


def _unused(wanted: str, used: set[str]) -> str:
    number, found = 1, wanted
    while found in used:
        number += 1
        found = f"{wanted}-{number}"
    return found


def _ends_with_cases(text: str) -> bool:
    keys = [line for line in text.splitlines() if re.match(r"[A-Za-z_]", line)]
    return bool(keys) and keys[-1].rstrip() == "cases:"


def _indent_of(text: str) -> str:
    found = re.search(r"^cases:\s*(?:#.*)?\n(?:\s*(?:#.*)?\n)*( *)- ", text, re.MULTILINE)
    return found[1] if found else "  "


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, which can be edited."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and all(line == line.rstrip() for line in text.split("\n")) else None
    return cast("Any", dumper).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _dumped(entries: list[dict[str, Any]]) -> str:
    parts = (
        yaml.dump([one], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) for one in entries
    )
    return "\n".join(parts)
