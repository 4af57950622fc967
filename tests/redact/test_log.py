"""No handler of the log sees a secret."""

import io
import logging
from logging.handlers import QueueHandler
from queue import SimpleQueue

import pytest

from redraft.redact.log import LOST, withhold_in_log
from support.redact_corpus import Maker, person

PASSWORD = "Sommer" + "4711x"
SAID = f"password={PASSWORD}"
CLEAN = "password=[withheld: password]"

logger = logging.getLogger("redraft")


class SealedError(Exception):
    def __str__(self):
        raise RuntimeError(SAID)


def raised(error):
    try:
        raise error
    except type(error):
        logger.exception("It failed.")


# What is logged, and what of it is there for who listens.
LOGGED = {
    "in the message": (lambda: logger.warning(SAID), CLEAN),
    "in a value": (lambda: logger.warning("The run failed: %s", ValueError(SAID)), CLEAN),
    "across the two": (lambda: logger.warning("password=%s", PASSWORD), CLEAN),
    "in an exception": (lambda: raised(ValueError(SAID)), f"ValueError: {CLEAN}"),
    "not at all": (lambda: logger.warning("%d of %d", 1, 2), "1 of 2"),
    "beyond showing": (lambda: logger.warning("%s", SealedError()), LOST),
}


class Own(logging.Handler):
    """A handler that renders all that a record has in a way of its own."""

    def __init__(self):
        super().__init__()
        self.said = ""

    def emit(self, record):
        self.said += f"{record.msg}|{record.args}|{record.exc_info}|{record.exc_text}"


@pytest.fixture(params=["redraft", ""], ids=["at the library", "at the root"])
def listening(request):
    handlers = Own(), logging.StreamHandler(io.StringIO())
    place = logging.getLogger(request.param)
    for handler in handlers:
        place.addHandler(handler)
    yield lambda: (handlers[0].said, handlers[1].stream.getvalue())
    for handler in handlers:
        place.removeHandler(handler)


@pytest.mark.parametrize(("log", "shown"), LOGGED.values(), ids=LOGGED)
def test_no_handler_sees_a_secret(listening, log, shown):
    log()
    for said in listening():
        assert shown in said
        assert PASSWORD not in said


def test_no_handler_sees_personal_data(listening):
    told, personal = person(Maker())
    logger.warning("%s", told)
    for said in listening():
        assert "[withheld: card number]" in said
        assert not any(value in said for value in personal)


def test_records_for_another_thread_are_clean():
    queue = SimpleQueue()
    handler = QueueHandler(queue)
    logger.addHandler(handler)
    raised(ValueError(SAID))
    logger.removeHandler(handler)
    assert CLEAN in queue.get().getMessage()


def test_a_disabled_record_is_not_redacted(caplog):
    caplog.set_level(logging.WARNING, logger="redraft")
    logger.info("%s", SealedError())
    assert not caplog.records


def test_the_filter_is_installed_once():
    before = list(logger.filters)
    withhold_in_log()
    assert logger.filters == before
