"""The pages of the dashboard, the changes that they offer, and the texts that they link to.

A page is added in three steps:

1. A module here, named for its noun, holds a frozen dataclass, the view; an async function that reads it from
   `asked.project.store` and passes it through `asked.project.shown` before anything is made of its texts
   (raising `NotFoundError` or `ConfigError` where it must); and a `Page`, the constant `PAGE`.
2. A template of the same name in `web/templates` extends `base.html` and fills its block `main`; what it gets
   is `page`, the view. Parts that move are elements with an `id` and `data-live`.
3. `PAGES` below lists it; the order is that of the navigation.

What a person does on a page is a `Change` in the same module, listed in `CHANGES`, and in the template a
`<form data-change action="...">` with a button. A text too long for a page is a `Text`, listed in `TEXTS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.web.pages import (
    agent,
    agents,
    compare,
    diff,
    lesson,
    lessons,
    run,
    runs,
    spend,
    task,
    tasks,
    workflow,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.web.change import Change
    from redraft.web.page import Page
    from redraft.web.text import Text

PAGES: Sequence[Page] = (
    runs.PAGE,
    run.PAGE,
    diff.PAGE,
    workflow.PAGE,
    tasks.PAGE,
    task.PAGE,
    lessons.PAGE,
    lesson.PAGE,
    agents.PAGE,
    agent.PAGE,
    compare.PAGE,
    spend.PAGE,
)
CHANGES: Sequence[Change] = (*task.CHANGES, *lessons.CHANGES, *lesson.CHANGES, agent.FEEDBACK)
TEXTS: Sequence[Text] = (run.OUTPUT,)
