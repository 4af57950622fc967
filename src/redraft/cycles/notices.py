"""Notices: notify people that an agent waits for a decision, raised an alert, failed or recovered."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from redraft._codec import to_json
from redraft._texts import as_text, counted, shortened
from redraft._validation import is_web_address
from redraft.cycles.cycle import render_text
from redraft.cycles.memory import stamp_of
from redraft.cycles.records import objects_in, values_in
from redraft.cycles.spec import NoticeEvent
from redraft.cycles.webhook import ID, secret_key, signed_headers
from redraft.errors import ConfigError
from redraft.http import HttpRequest, fetch, require_http
from redraft.settings import load_settings
from redraft.stores.base import Record
from redraft.text.characters import visible
from redraft.text.templates import TemplateError, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.records import CycleRecord
    from redraft.cycles.spec import Notify

MAX_TITLE, MAX_LINE, MAX_LINES = 150, 500, 20


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification about a cycle: plain data, redacted before it is sent."""

    event: NoticeEvent
    agent: str
    cycle: int
    """The number of the cycle."""
    title: str
    """A single line."""
    text: str
    """Several lines."""
    timestamp: str
    severity: str = "warning"
    url: str = ""
    """The page of the cycle on the dashboard; empty without the setting `dashboard_url`."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data of this kind of event: the plan and its deadline, the failures, or the recovered steps."""
    cycle_id: str = ""
    """The ULID of the cycle."""

    def document(self) -> dict[str, Any]:
        """The notice as JSON data: the default body of a webhook."""
        fields = to_json(self)
        return {
            "schema_version": 1,
            "type": f"agent.{fields.pop('event')}",
            "timestamp": fields.pop("timestamp"),
            "data": fields,
        }


def waiting_notice(record: CycleRecord, agent: str, default: str | None, now: str) -> Notice:
    """The notice that a cycle waits for a person to decide on its plan.

    `default` is the decision that applies after `record.waits_until`.
    """
    derived = record.derived_data
    approved = values_in(derived, "governance", "approved")
    plan = [entry for entry in objects_in(derived, "plan", "actions") if entry.get("id") in approved]
    names = ", ".join(dict.fromkeys(str(entry.get("action")) for entry in plan))
    until = None if record.waits_until is None else record.waits_until.isoformat(timespec="seconds")
    lines = [
        f"Cycle {record.number} of {agent} plans {counted(len(plan), 'action')} and is waiting for a person."
    ]
    lines += [_line(str(anomaly.get("message"))) for anomaly in objects_in(derived, "analysis", "anomalies")]
    lines += ["", *(_plan_line(entry) for entry in plan), ""]
    lines.append("There is no time limit." if until is None else f"If nobody decides by {until}: {default}.")
    lines.append(f"Decide on its page, or with: redraft approve {shlex.quote(agent)}")
    return _notice(
        "waiting",
        record,
        agent,
        f"{agent} is waiting for you: {names}",
        _text(lines),
        now,
        {"plan": plan, "waits_until": until, "default": default},
    )


def alert_notice(cycle: Cycle, alert: str, severity: str, message: str, now: str) -> Notice:
    """The notice of an alert."""
    agent = cycle.spec.name
    return _notice("alert", cycle, agent, f"{agent}: {message}", message, now, {"alert": alert}, severity)


def _notice(
    event: NoticeEvent,
    cycle: CycleRecord | Cycle,
    agent: str,
    title: str,
    text: str,
    now: str,
    details: Mapping[str, Any],
    severity: str = "warning",
) -> Notice:
    title = shortened(visible(title), MAX_TITLE)
    url = page_url(agent, cycle.id, "waiting" if event == "waiting" else "cycle")
    return Notice(event, agent, cycle.number, title, text, now, severity, url, details, cycle.id)


def page_url(agent: str, cycle: str, part: Literal["cycle", "waiting"] = "cycle") -> str:
    """The URL of a cycle on the dashboard; empty without the setting `dashboard_url`.

    `cycle` is its id. `part` is the section to show: the cycle, or the form to decide on its plan.
    """
    base = load_settings().dashboard_url
    if not base:
        return ""
    return f"{base.rstrip('/')}/agents/{quote(agent, safe='')}?cycle={cycle}#{part}"


def _line(text: str) -> str:
    return shortened(visible(text), MAX_LINE)


def _plan_line(action: Mapping[str, Any]) -> str:
    params, reason = action.get("params"), action.get("reason")
    params_text = f" {json.dumps(params, ensure_ascii=False)}" if params else ""
    return _line(f"- {action.get('action')}{params_text}{f': {reason}' if reason else ''}")


def _text(lines: Sequence[str]) -> str:
    more = len(lines) - MAX_LINES
    return "\n".join([*lines[:MAX_LINES], f"... and {counted(more, 'more line')}"] if more > 0 else lines)


class Webhook:
    """Posts notices to the URL in an agent's file, signed if the file has a secret.

    Raises `ConfigError` for an unusable URL or secret, unless it depends on the notice or on a variable that
    is not set in this process.
    """

    def __init__(self, notify: Notify, env: Sequence[str]) -> None:
        require_http("A webhook")
        self._notify = notify
        self._env = env
        if (url := self._rendered(notify.url)) is not None and not is_web_address(url):
            raise ConfigError(f"{notify.url!r} must give a URL that begins with http:// or https://.")
        if notify.secret is not None and (secret := self._rendered(notify.secret)) is not None:
            secret_key(secret, notify.secret)

    @property
    def unset(self) -> list[str]:
        """The variables of its URL and secret that are not set in this process."""
        read = f"{self._notify.url} {self._notify.secret}"
        return [name for name in self._env if f"env.{name}" in read and name not in os.environ]

    def sends(self, *events: NoticeEvent) -> bool:
        """Whether notices of any of these events are sent."""
        return not set(events).isdisjoint(self._notify.events)

    async def send(self, notice: Notice, key: str) -> None:
        """Post a notice, with `key` as its idempotency key; any status below 400 is a success."""
        notify = self._notify
        scopes = {"notice": to_json(notice), "env": self._variables()}
        body = notice.document() if notify.body is None else render(notify.body, scopes)
        content = (as_text(body) if isinstance(body, str) else json.dumps(body)).encode()
        headers = {"content-type": "application/json", ID: key}
        if notify.secret is not None:
            secret = secret_key(render_text(notify.secret, scopes), notify.secret)
            headers |= signed_headers(secret, key, content, datetime.now(UTC))
        request = HttpRequest(
            url=render_text(notify.url, scopes),
            method="POST",
            headers={**headers, **render(notify.headers, scopes)},
            body=content,
            seconds=notify.timeout_ms / 1000,
            is_read=False,
        )
        await fetch(request)

    def _rendered(self, text: str) -> str | None:
        """Render a template that reads only variables that are set; None for other templates."""
        try:
            return render_text(text, {"env": self._variables()})
        except TemplateError:
            return None

    def _variables(self) -> dict[str, str]:
        return {name: value for name in self._env if (value := os.environ.get(name)) is not None}


FAILURES = "failures"
"""The kind and the key of the record of the failing steps."""
ENDS_AFTER = timedelta(minutes=10)
"""How long a step must run without a failure before it is reported as recovered."""


class Failures:
    """The failing steps of an agent: each is reported when it begins to fail, and when it has recovered.

    A step has recovered once a cycle ran without its failure, at least ten minutes after the last failure.
    So a step that fails now and then is reported only once.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._last: dict[str, str] = {}
        """The failing steps, each with the time of its last failure."""
        self._stored: dict[str, str] | None = None

    def load(self, stored: Record | None) -> None:
        """Load the failing steps of an earlier process. Until then, `report` returns no record."""
        self._stored = {} if stored is None else dict(stored.data["last"])
        self._last = {**self._stored, **self._last}

    def report(self, record: CycleRecord, now: datetime) -> tuple[list[Notice], list[Record]]:
        """The notices of new failures and recoveries in a cycle, and the records to store with it."""
        stamp, earlier = stamp_of(now), stamp_of(now - ENDS_AFTER)
        failures = list(record.metrics.failures) or [record.error] * bool(record.error)
        steps = {failure.partition(": ")[0]: failure for failure in reversed(failures)}
        begun = [failure for failure in failures if failure.partition(": ")[0] not in self._last]
        # The steps after one that failed the cycle did not run. A clock may have been set back.
        last = {step: min(at, stamp) for step, at in self._last.items()} | dict.fromkeys(steps, stamp)
        recovered = [step for step, at in last.items() if record.status != "failed" and at <= earlier]
        self._last = {step: at for step, at in last.items() if step not in recovered}
        agent, number, notices = self._agent, record.number, list[Notice]()
        if begun:
            lines = [f"Cycle {number} of {agent} {record.status} with:", "", *map(_line, failures)]
            details = {"status": record.status, "failures": failures}
            title = f"{agent}: {begun[0]}"
            notices.append(_notice("failure", record, agent, title, _text(lines), stamp, details))
        if recovered:
            lines = [f"By cycle {number} of {agent}, these no longer fail:", "", *map(_line, recovered)]
            title = f"{agent} has recovered: {', '.join(recovered)}"
            details = {"steps": recovered}
            notices.append(_notice("recovery", record, agent, title, _text(lines), stamp, details, "info"))
        if self._stored is None or self._stored == self._last:
            return notices, []
        self._stored = self._last
        return notices, [Record(FAILURES, FAILURES, {"last": self._last})]
