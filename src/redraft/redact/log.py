"""Log: the library's logger, which withholds secrets."""

from __future__ import annotations

import logging
import traceback
from functools import lru_cache

logger = logging.getLogger("redraft")
"""The one logger of the library: everything is logged here, without secrets."""

run_logger = logging.getLogger("redraft.runs")
"""One line of JSON for each run that ends, without secrets: on request, by setting its level to INFO."""
run_logger.setLevel(logging.WARNING)

LOST = "A log message is withheld here, because it could not be rendered or redacted."


@lru_cache(maxsize=1000)
def warn_once(text: str) -> None:
    """Log a warning, once per process."""
    logger.warning("%s", text)


def withhold_in_log() -> None:
    """Withhold secrets in everything that the logger `redraft` passes on; repeated calls change nothing."""
    logger.addFilter(_WITHHOLDING)


class _Withholding(logging.Filter):
    """Withholds secrets in a record, including its traceback, before any handler sees it.

    It filters on the logger, so that every handler, attached here or further up, gets the redacted record. A
    record whose level is disabled costs nothing.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        from redraft.redact.redactor import redactor_of_environment  # noqa: PLC0415 (most runs log nothing)

        try:
            redactor = redactor_of_environment()
            record.msg, record.args = redactor.redact(record.getMessage()).text, ()
            if record.exc_info:
                trace = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
                # Without the exception itself, which a user's handler could render again.
                record.exc_text, record.exc_info = redactor.redact(trace).text, None
        except Exception:  # noqa: BLE001 (an exception that can't be rendered must not end a run)
            record.msg, record.args, record.exc_info, record.exc_text = LOST, (), None, None
        return True


_WITHHOLDING = _Withholding()

withhold_in_log()
