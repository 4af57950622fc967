"""Retention: forget, prune, back up, restore and check the stored data of a project."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.retention.backup import Backup as Backup
    from redraft.retention.backup import back_up as back_up
    from redraft.retention.backup import restore as restore
    from redraft.retention.project_data import Forgotten as Forgotten
    from redraft.retention.project_data import ProjectData as ProjectData
    from redraft.retention.project_data import Pruned as Pruned

_PLACES = {
    "backup": ("Backup", "back_up", "restore"),
    "project_data": ("Forgotten", "ProjectData", "Pruned"),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
