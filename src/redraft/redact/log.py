"""The library's log, with secrets withheld."""

from __future__ import annotations

import logging
import traceback

logger = logging.getLogger("redraft")
"""The one logger of the library: everything is logged here, without secrets."""

LOST = "What was to be logged here can't be shown."


def withhold_in_log() -> None:
    """Withhold secrets in everything that the logger `redraft` passes on; repeating it changes nothing."""
    logger.addFilter(_WITHHOLDING)


class _Withholding(logging.Filter):
    """Withhold secrets in a record, its traceback included, before any handler sees it.

    It stands on the logger, so that whatever handlers a program attaches, here or further up, get what is
    clean; a record that nobody wants is not looked at.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        from redraft.redact.redactor import redactor_of_environment  # noqa: PLC0415 (most runs log nothing)

        try:
            redactor = redactor_of_environment()
            record.msg, record.args = redactor.redact(record.getMessage()).text, ()
            if record.exc_info:
                told = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
                # Without the exception itself, which a user's handler could render again.
                record.exc_text, record.exc_info = redactor.redact(told).text, None
        except Exception:  # noqa: BLE001 (an exception of anybody's, which can't be rendered, ends no run)
            record.msg, record.args, record.exc_info, record.exc_text = LOST, (), None, None
        return True


_WITHHOLDING = _Withholding()

withhold_in_log()
