import base64
import hashlib
import hmac
import json
import socket

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles.notices import MailServer, Notice, channel_of, page_url
from redraft.cycles.spec import AgentSpec, Email, Webhook
from redraft.errors import AgentFileError, ConfigError
from support.cycles import run
from support.http_server import of_json, of_text, serving
from support.mail_server import mail_server

TOLD = Notice("alert", "monitor", 7, "monitor: it is hot", "It is hot.", "2026-11-22T12:00:00.000Z")
OPS = "ops@example.org"


def send(settings, notice=TOLD, env=()):
    kind = Webhook if settings["type"] == "webhook" else Email
    run(channel_of(kind.model_validate(settings), list(env)).send(notice, "key-1"))


def test_a_webhook_gets_the_notice_as_json():
    with serving({"/hook": of_text("{not json", "application/json")}) as server:
        send({"type": "webhook", "url": f"{server.url}/hook"})
        [request] = server.requests
    assert (request.command, request.headers["content-type"]) == ("POST", "application/json")
    assert request.headers["webhook-id"] == "key-1"
    assert "webhook-signature" not in request.headers
    assert json.loads(request.body) == {
        "schema_version": 1,
        "type": "agent.alert",
        "timestamp": TOLD.timestamp,
        "data": {
            "agent": "monitor",
            "cycle": 7,
            "title": "monitor: it is hot",
            "text": "It is hot.",
            "severity": "warning",
            "url": "",
            "details": {},
        },
    }


def test_a_webhook_is_signed_and_shaped_as_its_file_says(monkeypatch):
    secret = base64.b64encode(b"seven times seven").decode()
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{secret}")
    monkeypatch.setenv("HOOK_PATH", "hook")
    settings = {
        "type": "webhook",
        "url": "{{env.BASE}}/{{env.HOOK_PATH}}",
        "headers": {"x-agent": "{{notice.agent}}"},
        "body": {"text": "*{{notice.title}}*", "cycle": "{{notice.cycle}}"},
        "secret": "{{env.HOOK_SECRET}}",
    }
    with serving({"/hook": of_json({})}) as server:
        monkeypatch.setenv("BASE", server.url)
        send(settings, env=["BASE", "HOOK_SECRET", "HOOK_PATH"])
        [request] = server.requests
    assert json.loads(request.body) == {"text": "*monitor: it is hot*", "cycle": 7}
    assert request.headers["x-agent"] == "monitor"
    signed = f"key-1.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(b"seven times seven", signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"


def test_a_secret_that_is_too_short_is_not_used(monkeypatch):
    monkeypatch.setenv("HOOK", "short")
    with serving({"/hook": of_json({})}) as server:
        settings = {"type": "webhook", "url": f"{server.url}/hook", "secret": "{{env.HOOK}}"}
        monkeypatch.delenv("HOOK")
        channel = channel_of(Webhook.model_validate(settings), ["HOOK"])
        monkeypatch.setenv("HOOK", "short")
        with pytest.raises(ConfigError, match=r"The secret '{{env.HOOK}}' must have at least 16 bytes"):
            run(channel.send(TOLD, "key-1"))
        assert server.requests == []


def test_an_email_is_plain_text_with_a_subject_and_the_page():
    notice = Notice(
        "waiting", "a", 7, "a waits\r\nBcc: b@c.de", "Ünlike — it", TOLD.timestamp, url="https://x/y"
    )
    with mail_server() as server:
        email = Email.model_validate(
            {"type": "email", "to": [OPS, "Bo <bo@example.org>"], "from": "a@b.example"}
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REDRAFT_SMTP_URL", server.url)
            channel = channel_of(email, [])
        with pytest.raises(ValueError, match=r"newline|linefeed"):
            run(channel.send(notice, "key-1"))  # the titles of notices have no line breaks
        run(channel.send(Notice(**{**as_dict(notice), "title": "a waits"}), "key-1"))
        [message] = server.messages
    assert message["subject"] == "a waits"
    assert (message["from"], message["to"]) == ("a@b.example", f"{OPS}, Bo <bo@example.org>")
    assert message.recipients == [OPS, "bo@example.org"]
    assert message["message-id"] == "<key-1@b.example>"
    assert message["auto-submitted"] == "auto-generated"
    assert message.get_content().replace("\r\n", "\n") == "Ünlike — it\n\nhttps://x/y\n"


def as_dict(notice):
    return {name: getattr(notice, name) for name in Notice.__dataclass_fields__}


def test_a_password_is_sent_to_this_machine_or_encrypted_only(monkeypatch):
    word = "pass" + "word"
    with mail_server(auth_require_tls=False) as server:
        at = f"smtp://me%40example.org:{word}@127.0.0.1:{server.port}"
        monkeypatch.setenv("REDRAFT_SMTP_URL", at)
        send({"type": "email", "to": OPS})
        assert server.logins == [("me@example.org", word)]
        assert server.messages[0]["from"] == "me@example.org"


def test_a_password_is_not_sent_in_the_clear_over_the_network(monkeypatch):
    with mail_server(auth_require_tls=False) as server:
        # Another name of this machine, which the agent takes for any other one.
        monkeypatch.setattr("redraft.cycles.notices._is_here", lambda host: False)
        monkeypatch.setenv("REDRAFT_SMTP_URL", f"smtp://me%40example.org:{'x' * 9}@127.0.0.1:{server.port}")
        with pytest.raises(ConfigError, match="offers no encryption, so the password is not sent"):
            send({"type": "email", "to": OPS})
        assert server.logins == []


def test_a_mail_server_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("redraft.cycles.notices.SMTP_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("REDRAFT_SMTP_URL", f"smtp://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Exception, match=r"(?i)time|^$"):
            send({"type": "email", "to": OPS, "from": OPS})


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example", MailServer("mail.example", 587)),
        ("smtps://mail.example", MailServer("mail.example", 465, is_tls=True)),
        ("smtp://a%40b.de:c%3A@[::1]:25/", MailServer("::1", 25, "a@b.de", "c:")),
        ("", None),
        ("mail.example", None),
        ("http://mail.example", None),
        ("smtp://:25", None),
        ("smtp://mail.example:many", None),
        ("smtp://mail.example/path", None),
    ],
)
def test_the_setting_smtp_url(monkeypatch, url, server):
    monkeypatch.setenv("REDRAFT_SMTP_URL", url)
    if server is not None:
        assert MailServer.of_settings() == server
        assert "c:" not in repr(server)
    else:
        with pytest.raises(ConfigError, match=r"smtp://USER:PASSWORD@HOST:PORT"):
            MailServer.of_settings()


def with_notify(*told):
    execute = {
        "type": "execute",
        "name": "e",
        "config": {"actions": [{"type": "log", "name": "l", "message": "x"}]},
    }
    stages = {"actuate": {"substages": [execute]}}
    return AgentSpec.model_validate({"name": "a", "env": ["HOOK"], "notify": list(told), "stages": stages})


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([{"type": "email", "to": OPS}], "E-mail needs the setting `smtp_url`"),
        ([{"type": "webhook", "url": "{{ env.OTHER }}"}], "'OTHER' is not listed under 'env'"),
        ([{"type": "webhook", "url": "{{ memory.patterns }}"}], "unknown name 'memory'"),
        (
            [{"type": "webhook", "url": "http://x", "body": {"a": ["{{ notice.titel }}"]}}],
            "'notice' has no 'titel'",
        ),
        ([{"type": "webhook", "url": "http://x", "secret": "{{ env. }}"}], "invalid template"),
        (
            [{"type": "webhook", "url": "http://x"}] * 2,
            "has the same destination as an earlier one, 'webhook http://x'",
        ),
        ([{"type": "webhook", "url": "ftp://x"}], "a URL that begins with http:// or https://"),
        ([{"type": "webhook", "url": "{{ env.HOOK }}"}], "or https://, got '{{ env.HOOK }}'"),
        (
            [{"type": "webhook", "url": "http://x", "secret": "{{ env.HOOK }}"}],
            "The secret '{{ env.HOOK }}' must have at least 16 bytes, got 5",
        ),
    ],
)
def test_what_can_not_work_is_refused_before_the_first_cycle(told, message, monkeypatch):
    monkeypatch.setenv("HOOK", "short")
    with pytest.raises(AgentFileError, match="notify") as error:
        CycleAgent(with_notify(*told))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("email", "message"),
    [
        ({"to": OPS}, "in 'from' .* got ''"),
        ({"to": "ops", "from": OPS}, "in 'to', got 'ops'"),
        ({"to": [OPS, f"x\r\n{OPS}"], "from": OPS}, "in 'to'"),
        ({"to": OPS, "from": "a b@c.de"}, "in 'from'"),
    ],
)
def test_what_is_no_address_is_refused(monkeypatch, email, message):
    monkeypatch.setenv("REDRAFT_SMTP_URL", "smtp://mail.example")
    with pytest.raises(AgentFileError, match=message):
        CycleAgent(with_notify({"type": "email", **email}))


def test_a_page_has_an_address_if_the_dashboard_has_one(monkeypatch):
    assert page_url("a", 7) == ""
    monkeypatch.setenv("REDRAFT_DASHBOARD_URL", "https://redraft.example.org/")
    assert page_url("a/ b", 7) == "https://redraft.example.org/agents/a%2F%20b?cycle=7#cycle"
    assert page_url("a", 7, "waiting") == "https://redraft.example.org/agents/a?cycle=7#waiting"
    assert page_url("a", 5_000_000_001) == "https://redraft.example.org/agents/a"
