"""The command line in a process of its own, with a scripted model: a provider's client takes seconds to load.

    REPLIES='["a reply", null]' python -m support.scripted_command revise ...

At a reply that is null, the process makes the file `asked` and waits for ever.
"""

import asyncio
import json
import os
from pathlib import Path
from unittest.mock import patch

from redraft import ScriptedModel
from redraft.main import main
from support.commands import NAMED, always

ASKED = Path("asked")
replies = iter(json.loads(os.environ["REPLIES"]))


async def reply(_request):
    text = next(replies)
    if text is None:
        ASKED.touch()  # noqa: ASYNC240 (nothing else runs)
        await asyncio.Event().wait()
    return text


for place in NAMED:
    patch(place, always(ScriptedModel(reply))).start()
main()
