"""Notices: tell people by webhook and e-mail that an agent waits for them, raised an alert, or failed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote, unquote, urlsplit

from redraft._codec import to_json
from redraft._texts import as_text, counted, shortened
from redraft.cycles.cycle import render, render_text
from redraft.cycles.memory import moment_of
from redraft.cycles.records import PROVISIONAL, objects_in, values_in
from redraft.cycles.spec import NoticeEvent, Webhook
from redraft.cycles.webhook import ID, secret_key, signed_headers
from redraft.errors import ConfigError, MissingExtraError
from redraft.http import HttpRequest, fetch, is_web_address
from redraft.settings import load_settings
from redraft.text.characters import visible
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.records import CycleRecord
    from redraft.cycles.spec import ActionLimit, Email

MAX_TITLE, MAX_LINE, MAX_LINES = 150, 500, 20
SMTP_SECONDS = 30.0
"""How long a mail server may take, from the first connection to the last answer."""
SMTP_PORT, SMTPS_PORT = 587, 465


@dataclass(frozen=True, slots=True)
class Notice:
    """What people are told about a cycle of an agent: plain data without secrets, fit to leave the machine.

    `title` is one line, `text` some more, `url` the page of the cycle on the dashboard if its address is
    known, and `details` what there is only for this `event`: the plan and the deadline, or the failures.
    """

    event: NoticeEvent
    agent: str
    cycle: int
    title: str
    text: str
    timestamp: str
    severity: str = "warning"
    url: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def document(self) -> dict[str, Any]:
        """Return the notice as JSON data, the default body of a webhook."""
        fields = to_json(self)
        return {
            "schema_version": 1,
            "type": f"agent.{fields.pop('event')}",
            "timestamp": fields.pop("timestamp"),
            "data": fields,
        }


def waiting_notice(record: CycleRecord, agent: str, default: str | None, now: str) -> Notice:
    """Return the notice that a cycle waits for a person to decide on its plan.

    `default` is the decision that applies if nobody decides until `record.waits_until`.
    """
    derived = record.derived_data
    approved = values_in(derived, "governance", "approved")
    plan = [one for one in objects_in(derived, "plan", "actions") if one.get("id") in approved]
    names = ", ".join(dict.fromkeys(str(one.get("action")) for one in plan))
    until = None if record.waits_until is None else record.waits_until.isoformat(timespec="seconds")
    lines = [
        f"Cycle {record.number} of {agent} plans {counted(len(plan), 'action')} and is waiting for a person."
    ]
    lines += [_line(str(one.get("message"))) for one in objects_in(derived, "analysis", "anomalies")]
    lines += ["", *(_plan_line(one) for one in plan), ""]
    lines.append("There is no time limit." if until is None else f"If nobody decides by {until}: {default}.")
    command = f"redraft cycle feedback {shlex.quote(agent)}"
    lines.append(f"Decide on its page, or with: {command} --approve or --reject")
    return Notice(
        "waiting",
        agent,
        record.number,
        _title(f"{agent} is waiting for you: {names}"),
        _text(lines),
        now,
        url=page_url(agent, record.number, "waiting"),
        details={"plan": plan, "waits_until": until, "default": default},
    )


def failure_notice(record: CycleRecord, agent: str, now: str) -> Notice:
    """Return the notice that something in a cycle failed."""
    failures = list(record.metrics.failures or [record.error])
    lines = [f"Cycle {record.number} of {agent} {record.status} with:", "", *map(_line, failures)]
    return Notice(
        "failure",
        agent,
        record.number,
        _title(f"{agent}: {failures[0]}"),
        _text(lines),
        now,
        url=page_url(agent, record.number),
        details={"status": record.status, "failures": failures},
    )


def alert_notice(agent: str, cycle: int, alert: str, severity: str, message: str, now: str) -> Notice:
    """Return the notice of an alert that an agent raised."""
    return Notice(
        "alert",
        agent,
        cycle,
        _title(f"{agent}: {message}"),
        message,
        now,
        severity,
        page_url(agent, cycle),
        {"alert": alert},
    )


def page_url(agent: str, cycle: int, part: Literal["cycle", "waiting"] = "cycle") -> str:
    """Return the address of a cycle on the dashboard; empty without the setting `dashboard_url`.

    `part` is what it shows first: the cycle, or the form to decide on its plan.
    """
    base = load_settings().dashboard_url
    if not base:
        return ""
    page = f"{base.rstrip('/')}/agents/{quote(agent, safe='')}"
    return page if cycle > PROVISIONAL else f"{page}?cycle={cycle}#{part}"


def _title(text: str) -> str:
    return shortened(visible(text), MAX_TITLE)


def _line(text: str) -> str:
    return shortened(visible(text), MAX_LINE)


def _plan_line(action: Mapping[str, Any]) -> str:
    params, reason = action.get("params"), action.get("reason")
    shown = f" {json.dumps(params, ensure_ascii=False)}" if params else ""
    return _line(f"- {action.get('action')}{shown}{f': {reason}' if reason else ''}")


def _text(lines: Sequence[str]) -> str:
    more = len(lines) - MAX_LINES
    return "\n".join([*lines[:MAX_LINES], f"... and {counted(more, 'more line')}"] if more > 0 else lines)


# --- the channels -----------------------------------------------------------------------------------------


class Channel(Protocol):
    """A way to reach people; its `name` stays the same as long as it leads to the same place."""

    @property
    def name(self) -> str:
        """What it is called in messages, and with what is kept for it."""
        ...

    @property
    def events(self) -> Sequence[NoticeEvent]:
        """What it tells."""
        ...

    @property
    def limit(self) -> ActionLimit:
        """How often it may be used."""
        ...

    async def send(self, notice: Notice, key: str, /) -> None:
        """Deliver a notice; raises whatever prevents that. The `key` tells it from all others."""
        ...


def channel_of(told: Webhook | Email, env: Sequence[str]) -> Channel:
    """Return a channel of the file, which may read these variables; raises `ConfigError` if it can't work."""
    is_webhook = isinstance(told, Webhook)
    if find_spec("httpx2" if is_webhook else "aiosmtplib") is None:
        raise MissingExtraError("A webhook" if is_webhook else "E-mail", "http" if is_webhook else "mail")
    return WebhookChannel(told, env) if is_webhook else EmailChannel(told, MailServer.of_settings())


class WebhookChannel:
    """Post notices to an address, signed if there is a secret.

    Raises `ConfigError` for an address or a secret of no use, if it is known without a notice.
    """

    def __init__(self, webhook: Webhook, env: Sequence[str]) -> None:
        self._webhook = webhook
        self._env = env
        if (url := self._known(webhook.url)) is not None and not is_web_address(url):
            raise ConfigError(f"Expected a URL that begins with http:// or https://, got {webhook.url!r}.")
        if webhook.secret is not None and (secret := self._known(webhook.secret)) is not None:
            secret_key(secret, webhook.secret)
        self.name = f"webhook {webhook.url}"
        self.events = webhook.events
        self.limit = webhook.limit

    async def send(self, notice: Notice, key: str, /) -> None:
        """Post a notice; any reply of a status below 400 will do."""
        webhook = self._webhook
        scopes = {"notice": to_json(notice), "env": self._variables()}
        body = notice.document() if webhook.body is None else render(webhook.body, scopes)
        content = (as_text(body) if isinstance(body, str) else json.dumps(body)).encode()
        headers = {"content-type": "application/json", ID: key}
        if webhook.secret is not None:
            secret = secret_key(render_text(webhook.secret, scopes), webhook.secret)
            headers |= signed_headers(secret, key, content, datetime.now(UTC))
        request = HttpRequest(
            url=render_text(webhook.url, scopes),
            method=webhook.method,
            headers={**headers, **render(webhook.headers, scopes)},
            body=content,
            seconds=webhook.timeout_ms / 1000,
            is_read=False,
        )
        await fetch(request)

    def _known(self, text: str) -> str | None:
        """Return what a template gives, if it reads only variables, and those are set here."""
        try:
            return render_text(text, {"env": self._variables()})
        except TemplateError:
            return None

    def _variables(self) -> dict[str, str]:
        return {name: value for name in self._env if (value := os.environ.get(name)) is not None}


@dataclass(frozen=True, slots=True)
class MailServer:
    """The mail server of the setting `smtp_url`: with TLS from the start (`smtps`), or by STARTTLS."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    is_tls: bool = False

    @classmethod
    def of_settings(cls) -> MailServer:
        """Return the mail server of the settings; raises `ConfigError` without one, and for a wrong URL."""
        form = "smtp://USER:PASSWORD@HOST:PORT, or smtps:// for TLS from the start"
        url = load_settings().smtp_url
        if not url:
            raise ConfigError(f"E-mail needs the setting `smtp_url` (REDRAFT_SMTP_URL): {form}")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, None
        if parts is None or parts.scheme not in ("smtp", "smtps") or not host or parts.path.strip("/"):
            raise ConfigError(f"The setting `smtp_url` (REDRAFT_SMTP_URL) is not of the form {form}")
        is_tls = parts.scheme == "smtps"
        return cls(
            host,
            port or (SMTPS_PORT if is_tls else SMTP_PORT),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            is_tls,
        )

    async def send(self, message: EmailMessage) -> None:
        """Hand a message over; raises an error that names the server."""
        import aiosmtplib  # noqa: PLC0415 (only agents that send mail load it)

        client = aiosmtplib.SMTP(
            hostname=self.host, port=self.port, use_tls=self.is_tls, start_tls=False, timeout=SMTP_SECONDS
        )
        async with client:
            if not self.is_tls and client.supports_extension("starttls"):
                await client.starttls()
            elif not self.is_tls and self.user and not _is_here(self.host):
                raise ConfigError(
                    f"The mail server {self.host!r} offers no encryption, so the password is not sent. Use "
                    "smtps:// if it has a port for TLS."
                )
            if self.user:
                await client.login(self.user, self.password)
            await client.send_message(message)


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")


class EmailChannel:
    """Send notices by e-mail.

    Raises `ConfigError` if nothing says from whom: neither `from`, nor a user of the server that is an
    address.
    """

    def __init__(self, email: Email, server: MailServer) -> None:
        self._server = server
        self._to = [email.to] if isinstance(email.to, str) else email.to
        self._sender = email.from_ or server.user
        for address in (*self._to, self._sender):
            if not is_address(address):
                whose = "'from' (by default the user of `smtp_url`)" if address == self._sender else "'to'"
                raise ConfigError(f"Expected an e-mail address in {whose}, got {address!r}")
        self.name = f"email {', '.join(self._to)}"
        self.events = email.events
        self.limit = email.limit

    async def send(self, notice: Notice, key: str, /) -> None:
        """Send a notice as plain text, with its page at the end."""
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        message["Subject"] = notice.title
        message["Date"] = format_datetime(moment_of(notice.timestamp) or datetime.now(UTC))
        message["Message-ID"] = f"<{key}@{parseaddr(self._sender)[1].rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content("\n\n".join(part for part in (notice.text, notice.url) if part) + "\n")
        async with asyncio.timeout(SMTP_SECONDS):
            await self._server.send(message)


def is_address(text: str) -> bool:
    """Return whether a text is an e-mail address, with or without a name."""
    address = parseaddr(text)[1]
    name, _, host = address.rpartition("@")
    return bool(name and host) and text.isprintable() and not set(address) & set(' ,;<>"()')
