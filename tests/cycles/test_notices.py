import base64
import hashlib
import hmac
import json

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles.notices import Notice, Webhook, page_url
from redraft.cycles.spec import AgentSpec, Notify
from redraft.errors import AgentFileError, ConfigError
from support.cycles import run
from support.http_server import of_json, of_text, serving

TOLD = Notice("alert", "monitor", 7, "monitor: it is hot", "It is hot.", "2026-11-22T12:00:00.000Z")


def send(settings, notice=TOLD, env=()):
    run(Webhook(Notify.model_validate(settings), list(env)).send(notice, "key-1"))


def test_a_webhook_gets_the_notice_as_json():
    with serving({"/hook": of_text("{not json", "application/json")}) as server:
        send({"url": f"{server.url}/hook"})
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
            "cycle_id": TOLD.cycle_id,
        },
    }


def test_a_webhook_is_signed_and_shaped_as_its_file_says(monkeypatch):
    secret = base64.b64encode(b"seven times seven").decode()
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{secret}")
    monkeypatch.setenv("HOOK_PATH", "hook")
    settings = {
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
        settings = {"url": f"{server.url}/hook", "secret": "{{env.HOOK}}"}
        monkeypatch.delenv("HOOK")
        webhook = Webhook(Notify.model_validate(settings), ["HOOK"])
        monkeypatch.setenv("HOOK", "short")
        with pytest.raises(ConfigError, match=r"The secret '{{env.HOOK}}' must have at least 16 bytes"):
            run(webhook.send(TOLD, "key-1"))
        assert server.requests == []


def with_notify(notify):
    execute = {
        "type": "execute",
        "name": "e",
        "config": {"actions": [{"type": "log", "name": "l", "message": "x"}]},
    }
    stages = {"actuate": {"substages": [execute]}}
    return AgentSpec.model_validate({"name": "a", "env": ["HOOK"], "notify": notify, "stages": stages})


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ({"url": "{{ env.OTHER }}"}, "'OTHER' is not listed under 'env'"),
        ({"url": "{{ memory.patterns }}"}, "unknown name 'memory'"),
        (
            {"url": "http://x", "body": {"a": ["{{ notice.titel }}"]}},
            "'notice' has no 'titel'",
        ),
        ({"url": "http://x", "secret": "{{ env. }}"}, "invalid template"),
        ({"url": "ftp://x"}, "a URL that begins with http:// or https://"),
        ({"url": "{{ env.HOOK }}"}, "'{{ env.HOOK }}' must give a URL"),
        (
            {"url": "http://x", "secret": "{{ env.HOOK }}"},
            "The secret '{{ env.HOOK }}' must have at least 16 bytes, got 5",
        ),
    ],
)
def test_an_unusable_webhook_is_refused_before_the_first_cycle(notify, message, monkeypatch):
    monkeypatch.setenv("HOOK", "short")
    with pytest.raises(AgentFileError, match="notify") as error:
        CycleAgent(with_notify(notify))
    assert message in str(error.value)


def test_a_page_has_an_address_if_the_dashboard_has_one(monkeypatch):
    assert page_url("a", "7") == ""
    monkeypatch.setenv("REDRAFT_DASHBOARD_URL", "https://redraft.example.org/")
    assert page_url("a/ b", "7") == "https://redraft.example.org/agents/a%2F%20b?cycle=7#cycle"
    assert page_url("a", "7", "waiting") == "https://redraft.example.org/agents/a?cycle=7#waiting"
