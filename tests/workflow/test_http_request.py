"""http.request: hosts that the file lists, and secrets from the environment."""

# ruff: noqa: E501 (files on a line)

import asyncio
import sys

import pytest

from redraft.errors import ConfigError, OutputError, WorkflowError
from redraft.stores.sqlite import MemoryStore
from redraft.workflow import Workflow
from redraft.workflow.actions import check_host
from support.http_server import of_json, of_text, redirect, serving


def run(text, state=None, **options):
    return Workflow.from_text(text, **{"keep": False, **options}).run_sync(state).state


def request(server, more="", path="/"):
    return (
        f"env: [SHOP_KEY]\nhosts: [127.0.0.1]\nnodes:\n- name: ask\n  uses: http.request\n"
        f"  with: {{url: '{server.url}{path}'{more}}}\n  output: reply\n"
    )


def test_a_request_returns_data_and_sends_secrets_of_the_environment(monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "se" + "same")
    store = MemoryStore()
    more = ", method: POST, headers: {X-Api-Key: '{{ env.SHOP_KEY }}', X-N: '{{ state.n }}'}, body: {name: '{{ state.name }}', n: '{{ state.n }}'}"
    with serving({"/": of_json({"price": 24.5})}) as server:
        state = run(request(server, more), {"name": "lamp", "n": 2}, keep=store)
        sent = server.requests[0]
    assert state["reply"] == {"price": 24.5}
    assert (sent.headers["x-api-key"], sent.headers["x-n"]) == ("sesame", "2")
    assert sent.body == b'{"name": "lamp", "n": 2}'
    kept = asyncio.run(kept_records(store))
    assert "24.5" in kept
    assert "sesame" not in kept


async def kept_records(store):
    return repr([await store.find(kind) for kind in ("workflow", "step", "run")])


def test_what_goes_wrong_names_the_request():
    with (
        serving({"/": of_text("sorry", status=503)}) as server,
        pytest.raises(OutputError, match="status 503, sorry"),
    ):
        run(request(server))


@pytest.mark.parametrize("url", ["https://a.test/", "{{ state.url }}"])
def test_a_build_without_the_extra_is_an_error_at_the_node(monkeypatch, url):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    text = f"hosts: [a.test]\nnodes:\n- name: ask\n  uses: http.request\n  with: {{url: '{url}'}}\n"
    with pytest.raises(WorkflowError, match=r"pip install 'redraft\[http\]'") as caught:
        Workflow.from_text(text)
    assert (caught.value.line, caught.value.node) == (5, "ask")


def test_a_redirect_does_not_leave_the_hosts():
    with (
        serving({"/": redirect("http://localhost:9/")}) as server,
        pytest.raises(OutputError, match="only redirects on the same host"),
    ):
        run(request(server))


def test_a_host_from_the_state_has_to_be_listed():
    text = "hosts: [127.0.0.1]\nnodes:\n- {name: ask, uses: http.request, with: {url: '{{ state.url }}'}}\n"
    with serving({"/": of_json(1)}) as server:
        assert run(text, {"url": server.url + "/"})["ask"] == 1
        with pytest.raises(WorkflowError, match=r"'localhost' with port \d+ is not listed") as caught:
            run(text, {"url": server.url.replace("127.0.0.1", "localhost")})
        assert (caught.value.line, caught.value.node) == (3, "ask")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://a.test/x", "a.test"),
        ("https://A.test/x", "a.TEST"),
        ("https://a.test:8443/", "a.test"),
        ("https://a.test:8443/", "a.test:8443"),
        ("https://a.test/", "a.test:443"),
        ("http://a.test/", "a.test:80"),
        ("https://b.a.test/", "*.a.test"),
        ("http://[::1]:8099/x", "[::1]:8099"),
        ("http://[::1]:8099/x", "[::1]"),
        ("http://[2001:DB8::1]/", "[2001:db8::1]:80"),
    ],
)
def test_hosts_that_are_listed(url, host):
    check_host(url, [host])


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://b.test/", "a.test"),
        ("http://[::1]:8098/", "[::1]:8099"),
        ("http://[::2]/", "[::1]"),
        ("https://a.test.evil.test/", "a.test"),
        ("https://evil-a.test/", "*.a.test"),
        ("https://a.test@evil.test/", "a.test"),
        ("https://evil.test/#a.test", "a.test"),
        ("https://evil.test\\@a.test/", "evil.test"),
        ("https://evil.test\\@a.test/", "a.test"),
        ("https://a.test\t.evil.test/", "a.test"),
        ("http://a.test/", "a.test:443"),
        ("https://a.test/", "*.a.test"),
        ("file:///etc/passwd", "a.test"),
        ("", "a.test"),
    ],
)
def test_hosts_that_are_not_listed(url, host):
    with pytest.raises(
        ConfigError, match=r"is not listed under 'hosts'|credentials|Invalid URL|must begin with"
    ):
        check_host(url, [host])
