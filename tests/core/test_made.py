import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace

import pytest

from redraft import Attempt, RunContext
from redraft.core.made import maker
from redraft.core.task import Task


@pytest.mark.parametrize("made_of", [(Task, "do"), (RunContext, Task("do"), "id"), (Attempt, 2)])
def test_what_is_made_is_what_the_class_makes(made_of):
    kind, *values = made_of
    made, usual = maker(kind)(*values), kind(*values)
    assert made == usual
    assert type(made) is kind
    assert repr(made) == repr(usual)
    assert replace(made) == deepcopy(made) == pickle.loads(pickle.dumps(made)) == usual  # noqa: S301 (made here)


def test_what_is_made_is_frozen():
    task = maker(Task)("do")
    with pytest.raises(FrozenInstanceError):
        task.description = "do not"
