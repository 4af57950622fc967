"""How the commands about lessons end: errors name what stands in files, so secrets in them are withheld."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redraft.cli.exits import surface
from redraft.core.errors import RedraftError

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def lessons_surface(*, debug: bool) -> Generator[None]:
    """Do what `surface` does, with every error fit to be shown."""
    with surface(debug=debug):
        try:
            yield
        except RedraftError as error:
            from redraft.lessons.clean import lesson_redactor
            from redraft.text.visible import visible

            error.args = (visible(lesson_redactor().redact(str(error)).text),)
            raise
