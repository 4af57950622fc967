"""A mail server on loopback, for tests of what is sent by e-mail: a real socket, in a thread."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from email import message_from_bytes, policy

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult


class Mailboxes:
    """Keep the messages that arrive; refuse the first `refusals` for now."""

    def __init__(self, refusals):
        self.messages = []
        self.refusals = refusals
        self.logins = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 (the name that aiosmtpd asks for)
        if self.refusals:
            self.refusals -= 1
            return "451 try again later"
        message = message_from_bytes(envelope.content, policy=policy.default)
        message.recipients = envelope.rcpt_tos
        self.messages.append(message)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, data):
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=True)


@contextmanager
def mail_server(refusals=0, **options):
    """Run a mail server; yields its mailboxes, which have its `url`."""
    boxes = Mailboxes(refusals)
    with socket.create_server(("127.0.0.1", 0)) as free:  # the controller needs to know the port
        boxes.port = free.getsockname()[1]
    controller = Controller(
        boxes, hostname="127.0.0.1", port=boxes.port, authenticator=boxes.authenticate, **options
    )
    controller.start()
    boxes.url = f"smtp://127.0.0.1:{boxes.port}"
    try:
        yield boxes
    finally:
        controller.stop()
