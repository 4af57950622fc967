# ruff: noqa: E501 (a table: a case a line where it fits)

"""Errors in agent files have file, line, stage, substage and key, and are raised before anything is spent."""

import sys

import pytest

from redraft.cycles.check import check
from redraft.cycles.spec import (
    CONDITIONS,
    TEMPLATES,
    AgentFile,
    AgentSpec,
    agent_schema,
    memory_keys,
    parse_agent_file,
)
from redraft.errors import AgentFileError, ConfigError
from redraft.text.schema import Schema
from redraft.text.spec_file import TEMPLATED, unmet_conditions
from redraft.text.yaml import load_yaml
from support.agent_files import CAPTURE_METRICS, FULL_REFLECT, LEARN, UPDATE_STATE, whole

LEARN_AND_UPDATE = LEARN + UPDATE_STATE.partition("substages:\n")[2]
"""What is learned is "controlled by your update-state substage", which another excerpt shows."""


def read_rates(state): ...
def hold(batch): ...
def hold_once(batch, idempotency_key): ...


FUNCTIONS = {"read_rates": read_rates, "hold": hold, "hold_once": hold_once}


def model_for(name):
    if name == "nobody":
        raise ConfigError("'nobody' is not the name of a model.")


def checked(text):
    source = AgentFile(text, "agent.yaml")
    spec = parse_agent_file(source)
    check(spec, source, FUNCTIONS, model_for)
    return spec


@pytest.mark.parametrize("example", [LEARN_AND_UPDATE, UPDATE_STATE, CAPTURE_METRICS, FULL_REFLECT])
def test_the_specification_examples_are_valid(example):
    assert checked(whole(example)).stages.reflect.substages
    assert Schema(agent_schema()).check(load_yaml(whole(example))).valid


def test_memory_keys_come_from_prompts_and_retention():
    assert memory_keys(checked(whole(FULL_REFLECT))) == (
        "recentActions", "patterns", "constraints", "feedbackHistory", "qualityPatterns",
    )  # fmt: skip


def stage(name, *substages):
    """An agent file with one stage, whose substages begin in line 5."""
    body = "".join(
        "\n".join(("    - " if not at else "      ") + line for at, line in enumerate(one.splitlines()))
        + "\n"
        for one in substages
    )
    return f"name: t\nstages:\n  {name}:\n    substages:\n{body}"


ANALYZE = "type: analyze\nname: a\n"
LEARN_TWO = "type: learn\nname: l\nprompt: '{{ memory.two | json }} {{ memory.one | json }}'"
PLAN = "type: plan\nname: p\n"
EXECUTE = "type: execute\nname: e\nconfig:\n  actions:\n"
LOG = "  - {type: log, name: note, message: hello}\n"
UPDATE = "type: update-state\nname: u\nconfig:\n  retention:\n"

UPDATE_ONLY = "type: update-state\nname: u"

FILES = {
    # the file
    "no mapping": ("- a\n", 1, None, None, None, "an agent must be a mapping with 'name' and 'stages', got ['a']"),
    "empty": ("", 1, None, None, None, "an agent must be a mapping"),
    "no YAML": ("name: [\n", 2, None, None, None, "did not find"),
    "twice the same key": ("name: a\nname: b\n", 2, None, None, None, "duplicate key 'name'"),
    "no name": ("stages: {}\n", 1, None, None, "name", "'name' is missing"),
    "an empty name": ("name: ''\nstages: {}\n", 1, None, None, "name", "expected a non-empty string"),
    "a name that is a number": ("name: 5\nstages: {}\n", 1, None, None, "name", "expected a string, got 5"),
    "a name of two lines": ('name: "a\\nb"\n' + stage("reflect", "type: update-state\nname: u")[8:], 1, None, None, "name", "a visible name on one line, got 'a"),
    "a name of a space": ("name: ' '\n" + stage("reflect", "type: update-state\nname: u")[8:], 1, None, None, "name", "a visible name on one line, got ' '"),
    "a name with a NUL": ('name: "a\\0b"\n' + stage("reflect", "type: update-state\nname: u")[8:], 1, None, None, "name", "a visible name on one line"),
    "messages that nothing takes": ("triggers: [{type: message, topic: go}]\n" + stage("sense", "type: agent-messages\nname: m\nconfig: {topic: went}"), 1, None, None, "triggers.0", "for each message of the topic 'go', but nothing reads these messages; add a source"),
    "messages of any topic that nothing takes": ("triggers: [{type: message}]\n" + stage("sense", "type: agent-messages\nname: m\nconfig: {topic: went}"), 1, None, None, "triggers.0", "message of any topic"),
    "the list of webhooks of an earlier version": ("name: t\nnotify:\n  - type: webhook\n    url: x\nstages: {}\n", 2, None, None, "notify", "'notify' is one webhook: write its keys under 'notify', without a list; see 'Notifications' in docs/cycles.md"),
    "e-mail of an earlier version": ("name: t\nnotify: [{type: email, to: a@b.test}]\nstages: {}\n", 2, None, None, "notify", "the type 'email' no longer exists"),
    "the type of notifications of an earlier version": ("name: t\nnotify:\n  url: x\n  type: email\nstages: {}\n", 4, None, None, "notify.type", "'notify' is one webhook, so 'type' no longer exists"),
    "the limit of notifications of an earlier version": ("name: t\nnotify:\n  url: x\n  limit: {maxRuns: 1, perMs: 5}\nstages: {}\n", 4, None, None, "notify.limit", "a failure is sent when it begins and when it ends. For alerts, set the 'limit' of their action"),
    "the method of notifications of an earlier version": ("name: t\nnotify: {url: x, method: PUT}\nstages: {}\n", 2, None, None, "notify.method", "a notification is a POST request"),
    "an unknown event": ("name: t\nnotify: {url: x, events: [failures]}\nstages: {}\n", 2, None, None, "notify.events.0", "got 'failures'"),
    "no stages": ("name: t\n", 1, None, None, "stages", "'stages' is missing"),
    "stages without any": ("name: t\nstages: {}\n", 2, None, None, "stages", "at least one of the stages sense, reason, actuate, reflect"),
    "an unknown key": ("name: t\nstage: {}\n", 2, None, None, "stage", "did you mean 'stages'"),
    "a stage at the top": ("name: t\nreflect:\n  substages:\n    - {type: update-state, name: u}\n", 2, None, None, "reflect", "unknown key 'reflect'; it belongs under 'stages'"),
    "a stage at the top next to others": (stage("reflect", UPDATE_ONLY) + "sense: {}\n", 7, None, None, "sense", "unknown key 'sense'; it belongs under 'stages'"),
    "an unknown stage": ("name: t\nstages:\n  sens: {}\n", 3, "sens", None, None, "did you mean 'sense'"),
    "a stage without substages": ("name: t\nstages:\n  sense: {}\n", 3, "sense", None, "substages", "'substages' is missing"),
    "a stage with none": ("name: t\nstages:\n  sense: {substages: []}\n", 3, "sense", None, "substages", "a list that is not empty"),
    "an unknown trigger": ("name: t\ntriggers: [{type: timer}]\nstages: {}\n", 2, None, None, "triggers.0.type", "unknown type 'timer'"),
    "a trigger without a type": ("name: t\ntriggers: [{intervalMs: 5}]\nstages: {}\n", 2, None, None, "triggers.0.type", "'type' is missing"),
    "an interval of nothing": ("name: t\ntriggers: [{type: interval}]\nstages: {}\n", 2, None, None, "triggers.0.intervalMs", "'intervalMs' is missing"),
    "an interval of zero": ("name: t\ntriggers: [{type: interval, intervalMs: 0}]\nstages: {}\n", 2, None, None, "triggers.0.intervalMs", "at least 1, got 0"),
    "an interval as text": ("name: t\ntriggers: [{type: interval, intervalMs: 5s}]\nstages: {}\n", 2, None, None, "triggers.0.intervalMs", "expected a whole number, got '5s'"),
    "negative tokens": ("name: t\nmemory: {promptTokens: -1}\nstages: {}\n", 2, None, None, "memory.promptTokens", "got -1"),
    # substages
    "an unknown type": (stage("sense", "type: apii\nname: s\nconfig: {}"), 5, "sense", "s", "type", "unknown type 'apii'; did you mean 'api'"),
    "a type of another stage": (stage("sense", "type: learn\nname: s"), 5, "sense", "s", "type", "unknown type 'learn'"),
    "a SQL source of an earlier version": (stage("sense", "name: s\ntype: sql\nconfig: {url: x}"), 6, "sense", "s", "type", "the type 'sql' no longer exists; write `type: function`, and copy the function from 'Databases and MQTT' in docs/cycles.md"),
    "an MQTT source of an earlier version": (stage("sense", "type: mqtt\nname: s"), 5, "sense", "s", "type", "the type 'mqtt' no longer exists; write `type: function`"),
    "a SQL action of an earlier version": (stage("actuate", EXECUTE + LOG + "  - name: x\n    type: sql\n    query: q"), 11, "actuate", "e", "config.actions.1.type", "the type 'sql' no longer exists; write `type: function`"),
    "an MQTT action of an earlier version": (stage("actuate", EXECUTE + "  - {type: mqtt, topic: t}"), 9, "actuate", "e", "config.actions.0.type", "the type 'mqtt' no longer exists; write `type: function`"),
    "no type": (stage("sense", "name: s"), 5, "sense", "s", "type", "'type' is missing"),
    "no name of a substage": (stage("reflect", "type: update-state"), 5, "reflect", "number 1", "name", "'name' is missing"),
    "an unknown key of a substage": (stage("reason", ANALYZE + "promt: hello"), 7, "reason", "a", "promt", "did you mean 'prompt'"),
    "an unknown key of a config": (stage("sense", "type: csv\nname: s\nconfig: {path: x.csv, delimeter: ','}"), 7, "sense", "s", "config.delimeter", "did you mean 'delimiter'"),
    "a key of the config beside it": (stage("sense", "type: csv\nname: s\npath: x.csv"), 7, "sense", "s", "path", "unknown key 'path'; it belongs under 'config'"),
    "two of one name": (stage("reason", ANALYZE + "config: {function: read_rates}", ANALYZE + "config: {function: read_rates}"), 9, "reason", "a", "name", "two substages named 'a'"),
    "no config": (stage("sense", "type: api\nname: s"), 5, "sense", "s", "config", "'config' is missing"),
    "no URL": (stage("sense", "type: api\nname: s\nconfig: {}"), 7, "sense", "s", "config.url", "'url' is missing"),
    "a model's time without a prompt": (stage("reason", "type: analyze\nname: a\ntimeoutMs: 5\nconfig: {rules: [{name: r, when: 'true'}]}"), 7, "reason", "a", "timeoutMs", "'timeoutMs' needs a 'prompt'"),
    "an unknown method": (stage("sense", "type: api\nname: s\nconfig: {url: x, method: FETCH}"), 7, "sense", "s", "config.method", "got 'FETCH'"),
    "a delimiter of two": (stage("sense", "type: csv\nname: s\nconfig: {path: x, delimiter: ';;'}"), 7, "sense", "s", "config.delimiter", "got ';;'"),
    "rows of zero": (stage("sense", "type: csv\nname: s\nconfig: {path: x, last: 0}"), 7, "sense", "s", "config.last", "got 0"),
    # prompts
    "an analysis of nothing": (stage("reason", "type: analyze\nname: a"), 5, "reason", "a", None, "'analyze' needs a 'prompt', or in its config 'rules' or a 'function'"),
    "a timeout without a function": (stage("reason", ANALYZE + "config: {timeoutMs: 5, rules: [{name: r, when: 'true'}]}"), 7, "reason", "a", "config.timeoutMs", "it needs a 'function', but none is given"),
    "an evaluation of nothing": (stage("actuate", "type: evaluate\nname: a"), 5, "actuate", "a", None, "'checks' or a 'function'"),
    "a prompt without a schema": (stage("reason", ANALYZE + "prompt: hello"), 5, "reason", "a", None, "needs an 'outputSchema'"),
    "a schema without a prompt": (stage("reason", ANALYZE + "config: {function: read_rates}\noutputSchema: {}"), 8, "reason", "a", "outputSchema", "needs a 'prompt'"),
    "a model without a prompt": (stage("reason", ANALYZE + "config: {function: read_rates}\nmodel: x"), 8, "reason", "a", "model", "needs a 'prompt'"),
    "a schema that is none": (stage("reason", ANALYZE + "prompt: hello\noutputSchema: {type: objekt}"), 8, "reason", "a", "outputSchema", "schema"),
    "a schema of a list": (stage("reason", ANALYZE + "prompt: hello\noutputSchema: {type: array}"), 8, "reason", "a", "outputSchema.type", "must be an object, not 'array'"),
    "a model that is none": (stage("reason", ANALYZE + "prompt: hello\nmodel: nobody\noutputSchema: {}"), 8, "reason", "a", "model", "defined under 'models'"),
    "learning without a prompt": (stage("reflect", "type: learn\nname: l"), 5, "reflect", "l", "prompt", "'prompt' is missing"),
    "a target outside the memory": (stage("reflect", "type: learn\nname: l\nprompt: x\nconfig: {target: patterns}"), 8, "reflect", "l", "config.target", "expected a string that matches the pattern"),
    "a name of 201 characters": (stage("reflect", "type: update-state\nname: " + "u" * 201), 6, "reflect", "u" * 201, "name", "expected a string of at most 200 characters, got"),
    "learnings as feedback": (stage("reflect", "type: learn\nname: l\nprompt: x\nconfig: {target: memory.feedbackHistory}"), 8, "reflect", "l", "config.target", "'update-state' itself writes 'memory.feedbackHistory'"),
    "patterns for one of two keys": (stage("reflect", LEARN_TWO, UPDATE_ONLY), 7, "reflect", "l", "prompt", "it reads 'memory.one' and 'memory.two', and new patterns go to one key only; write which, such as 'target: memory.one', under 'config'"),
    # templates and conditions
    "a template that does not parse": (stage("reflect", "type: learn\nname: l\nprompt: '{{ memory. }}'"), 7, "reflect", "l", "prompt", "invalid template"),
    "a template that reaches out": (stage("reflect", "type: learn\nname: l\nprompt: '{{ memory.__class__ }}'"), 7, "reflect", "l", "prompt", "invalid template"),
    "an unknown scope": (stage("reflect", "type: learn\nname: l\nprompt: '{{ memry.patterns | json }}'"), 7, "reflect", "l", "prompt", "unknown name 'memry'; did you mean 'memory'"),
    "an unknown result": (stage("reflect", "type: learn\nname: l\nprompt: '{{ derivedData.executon }}'"), 7, "reflect", "l", "prompt", "'derivedData' has no 'executon'; did you mean 'execution'"),
    "an unknown part of the data": (stage("reflect", "type: learn\nname: l\nprompt: '{{ environmentalData.pay }}'"), 7, "reflect", "l", "prompt", "did you mean 'payload'"),
    "an action where there is none": (stage("reflect", "type: learn\nname: l\nprompt: '{{ action }}'"), 7, "reflect", "l", "prompt", "unknown name 'action'"),
    "a key of the number of the cycle": (stage("actuate", EXECUTE + "  - {type: log, name: x, message: '{{cycle.number}}'}"), 9, "actuate", "e", "config.actions.0.message", "'cycle' is the number of the cycle and has no 'number'; write {{cycle}}"),
    "an unknown key of an action": (stage("actuate", EXECUTE + "  - {type: log, name: x, message: '{{action.param}}'}"), 9, "actuate", "e", "config.actions.0.message", "'action' has no 'param'; did you mean 'params'"),
    "an unknown key of what was done": (stage("reflect", "type: learn\nname: l\nprompt: '{{ derivedData.execution.results | json }}'", UPDATE_ONLY), 7, "reflect", "l", "prompt", "'derivedData.execution' has no 'results'"),
    "an unknown key of what was decided": (stage("actuate", EXECUTE + "  - {type: log, name: x, when: derivedData.governance.violation, message: x}"), 9, "actuate", "e", "config.actions.0.when", "'derivedData.governance' has no 'violation'; did you mean 'violations'"),
    "learnings that update-state ignores": (stage("reflect", "type: learn\nname: l\nprompt: x\noutputSchema: {properties: {patterns: {type: array}}}", UPDATE_ONLY), 8, "reflect", "l", "outputSchema.properties", "'update-state' ignores 'patterns'; did you mean 'newPatterns'"),
    "insights that no key takes up": (stage("reflect", "type: learn\nname: l\nprompt: x\noutputSchema: {properties: {insights: {type: array}}}", UPDATE_ONLY), 8, "reflect", "l", "outputSchema.properties", "ignores 'insights'"),
    "a condition that does not parse": (stage("reason", ANALYZE + "config: {rules: [{name: r, when: '1 >'}]}"), 7, "reason", "a", "config.rules.0.when", "invalid condition"),
    "a condition of the unknown": (stage("reason", ANALYZE + "config: {rules: [{name: r, when: payload.rate > 5}]}"), 7, "reason", "a", "config.rules.0.when", "unknown name 'payload'"),
    "a rule without a condition": (stage("reason", ANALYZE + "config: {rules: [{name: r}]}"), 7, "reason", "a", "config.rules.0.when", "'when' is missing"),
    "a template deep in data": (stage("actuate", EXECUTE + "  - {type: api_call, name: x, url: u, body: {a: [{b: '{{ nobody }}'}]}}"), 9, "actuate", "e", "config.actions.0.body.a.0.b", "unknown name 'nobody'"),
    "an address of no use": (stage("sense", "type: api\nname: s\nconfig: {url: 'ftp://x'}"), 7, "sense", "s", "config.url", "got 'ftp://x'"),
    "an action's address of no use": (stage("actuate", EXECUTE + "  - {type: api_call, name: x, url: u}"), 9, "actuate", "e", "config.actions.0.url", "got 'u'"),
    "a template in a header": (stage("sense", "type: api\nname: s\nconfig: {url: x, headers: {a: '{{ nobody }}'}}"), 7, "sense", "s", "config.headers.a", "unknown name 'nobody'"),
    # environment variables
    "a variable in a prompt": ("env: [KEY]\n" + stage("reflect", "type: learn\nname: l\nprompt: '{{ env.KEY }}'"), 8, "reflect", "l", "prompt", "only requests and calls can read it"),
    "a variable in a line of the log": ("env: [KEY]\n" + stage("actuate", EXECUTE + "  - {type: log, name: x, message: '{{ env.KEY }}'}"), 10, "actuate", "e", "config.actions.0.message", "only requests and calls can read it"),
    "a variable that is not listed": ("env: [KEY]\n" + stage("sense", "type: api\nname: s\nconfig: {url: x, headers: {a: '{{ env.KEI }}'}}"), 8, "sense", "s", "config.headers.a", "'KEI' is not listed under 'env'"),
    # functions
    "a missing function": (stage("sense", "type: function\nname: s\nconfig: {function: read_rate}"), 7, "sense", "s", "config.function", "provides no function 'read_rate'; did you mean 'read_rates'"),
    "a function with a missing argument": (stage("actuate", EXECUTE + "  - {type: function, name: x, function: hold}"), 9, "actuate", "e", "config.actions.0.function", "'hold' can't be called with []: missing a required argument: 'batch'"),
    "a function with an unknown argument": (stage("sense", "type: function\nname: s\nconfig: {function: read_rates, with: {when: 5}}"), 7, "sense", "s", "config.function", "unexpected keyword argument 'when'"),
    # plans and actions
    "an action of nobody's": (stage("reason", PLAN + "config: {rules: [{action: hold}]}"), 7, "reason", "p", "config.rules.0.action", "no 'execute' declares an action 'hold'; none are defined"),
    "two actions of one name": (stage("actuate", EXECUTE + LOG + LOG), 10, "actuate", "e", "config.actions.1.name", "two actions named 'note'"),
    "an action of an unknown type": (stage("actuate", EXECUTE + "  - {type: mail, name: x}"), 9, "actuate", "e", "config.actions.0.type", "unknown type 'mail'"),
    "no actions": (stage("actuate", "type: execute\nname: e\nconfig: {actions: []}"), 7, "actuate", "e", "config.actions", "a list that is not empty"),
    "an alert without a message": (stage("actuate", EXECUTE + "  - {type: alert, name: x}"), 9, "actuate", "e", "config.actions.0.message", "'message' is missing"),
    "an unknown key in the limit of a function": (stage("actuate", EXECUTE + "  - {type: function, name: x, function: read_rates, limit: {maxruns: 1, perMs: 5}}"), 9, "actuate", "e", "config.actions.0.limit.maxruns", "unknown key 'maxruns'; did you mean 'maxRuns'?"),
    "a key missing in the limit of a function": (stage("actuate", EXECUTE + "  - {type: function, name: x, function: read_rates, limit: {perMs: 5}}"), 9, "actuate", "e", "config.actions.0.limit.maxRuns", "'maxRuns' is missing"),
    "no name of a function": (stage("actuate", EXECUTE + "  - {type: function, function: read_rates}"), 9, "actuate", "e", "config.actions.0.name", "'name' is missing"),
    "a function that is no name": (stage("actuate", EXECUTE + "  - {type: function, name: x, function: 5}"), 9, "actuate", "e", "config.actions.0.function", "got 5"),
    "governing before the plan": (stage("reason", "type: govern\nname: g\nconfig: {constraints: []}", PLAN + "config: {function: read_rates}"), 5, "reason", "g", None, "must come after 'plan'"),
    "authorizing before the plan": (stage("reason", "type: authorize\nname: g", PLAN + "config: {function: read_rates}"), 5, "reason", "g", None, "must come after 'plan'"),
    "an unknown mode": (stage("reason", "type: authorize\nname: g\nconfig: {mode: manual}"), 7, "reason", "g", "config.mode", "got 'manual'"),
    "a default that is none": (stage("reason", "type: authorize\nname: g\nconfig: {default: modify}"), 7, "reason", "g", "config.default", "got 'modify'"),
    # memory
    "a key outside the memory": (stage("reflect", UPDATE + "    patterns: {maxItems: 5}"), 9, "reflect", "u", "config.retention.patterns", "a memory key such as 'memory.patterns', got 'patterns'"),
    "a key within a key": (stage("reflect", UPDATE + "    memory.a.b: {maxItems: 5}"), 9, "reflect", "u", "config.retention.memory.a.b", "got 'memory.a.b'"),
    "a policy without its number": (stage("reflect", UPDATE + "    memory.patterns: {policy: max_items}"), 9, "reflect", "u", "config.retention.memory.patterns", "the policy 'max_items' needs 'maxItems'"),
    "two policies and one number": (stage("reflect", UPDATE + "    memory.patterns: {policy: [max_items, ttl], maxItems: 5}"), 9, "reflect", "u", "config.retention.memory.patterns", "the policy 'ttl' needs 'ttlMs'"),
    "a number of another policy": (stage("reflect", UPDATE + "    memory.patterns: {policy: ttl, ttlMs: 5, maxItems: 5}"), 9, "reflect", "u", "config.retention.memory.patterns.maxItems", "'maxItems' belongs to the policy 'max_items'; list both"),
    "no policy and no number": (stage("reflect", UPDATE + "    memory.patterns: {}"), 9, "reflect", "u", "config.retention.memory.patterns", "expected 'maxItems', 'ttlMs', or both"),
    "an unknown policy": (stage("reflect", UPDATE + "    memory.patterns: {policy: forever}"), 9, "reflect", "u", "config.retention.memory.patterns.policy", "got 'forever'"),
    "a negative number": (stage("reflect", UPDATE + "    memory.patterns: {maxItems: -1}"), 9, "reflect", "u", "config.retention.memory.patterns.maxItems", "got -1"),
    "a number that is true": (stage("reflect", UPDATE + "    memory.patterns: {maxItems: true}"), 9, "reflect", "u", "config.retention.memory.patterns.maxItems", "expected a whole number, got True"),
    "learning after writing": (stage("reflect", "type: update-state\nname: u", "type: learn\nname: l\nprompt: x"), 7, "reflect", "l", None, "'learn' must come before it"),
    "writing twice": (stage("reflect", "type: update-state\nname: u", "type: update-state\nname: v"), 7, "reflect", "v", None, "two substages of the type 'update-state'"),
    "measuring twice": (stage("reflect", "type: capture-metrics\nname: u", "type: capture-metrics\nname: v"), 7, "reflect", "v", None, "two substages of the type 'capture-metrics'"),
    "a flag that is none": (stage("reflect", "type: capture-metrics\nname: u\nconfig: {trackLLMTokens: 1}"), 7, "reflect", "u", "config.trackLLMTokens", "expected true or false, got 1"),
    "a flag that is misspelled": (stage("reflect", "type: capture-metrics\nname: u\nconfig: {trackLlmTokens: true}"), 7, "reflect", "u", "config.trackLlmTokens", "did you mean 'trackLLMTokens'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_errors_name_their_location(name):
    text, line, at, substage, key, message = FILES[name]
    with pytest.raises(AgentFileError) as raised:
        checked(text)
    error = raised.value
    assert (error.file, error.line, error.stage, error.substage, error.key) == (
        "agent.yaml",
        line,
        at,
        substage,
        key,
    )
    assert message in str(error)
    assert f"agent.yaml, line {line}" in str(error)


SEVERAL = {
    "mistakes in the form": (
        "nam: t\nmemory: {promptTokens: -1}\ntriggers: [{type: timer}]\nstages:\n  reflect:\n    substages:\n    - {type: learn}\n",
        ["line 1, nam: unknown key 'nam'; did you mean 'name'", "line 2, memory.promptTokens: ", "line 3, triggers.0.type: ",
         "line 7, stage 'reflect', substage 'number 1', name: 'name' is missing",
         "line 7, stage 'reflect', substage 'number 1', prompt: 'prompt' is missing"],
    ),
    "stages at the top": (
        "name: t\nsense: {}\nreflect: {}\nmemory: {promptTokens: -1}\n",
        ["line 2, sense: unknown key 'sense'; it belongs", "line 3, reflect: unknown key 'reflect'; it belongs", "line 4, memory.promptTokens: "],
    ),
    "mistakes in the meaning": (
        "triggers:\n- {type: message}\n- {type: cron, expression: never}\n"
        + stage("reason", ANALYZE + "prompt: '{{ memry }} {{ derivedData.x }}'\nmodel: nobody\noutputSchema: {type: array}",
                PLAN + "config: {function: read_rate, rules: [{action: hold, when: 1 >}]}", ANALYZE),
        ["line 2, triggers.0: it starts", "line 3, triggers.1: Invalid cron", "line 10, stage 'reason', substage 'a', prompt: 'derivedData' has no 'x'",
         "line 10, stage 'reason', substage 'a', prompt: unknown name 'memry'", "line 11, stage 'reason', substage 'a', model: 'nobody'",
         "line 12, stage 'reason', substage 'a', outputSchema.type: ", "line 15, stage 'reason', substage 'p', config.rules.0.when: invalid",
         "line 15, stage 'reason', substage 'p', config.function: ", "line 15, stage 'reason', substage 'p', config.rules.0.action: ",
         "line 16, stage 'reason', substage 'a': 'analyze' needs a 'prompt'", "line 17, stage 'reason', substage 'a', name: there are two"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_all_mistakes_of_a_pass_are_reported_together(name):
    text, begins = SEVERAL[name]
    with pytest.raises(AgentFileError) as raised:
        checked(text)
    found = [str(problem) for problem in raised.value.problems]
    assert [one[: len(f"agent.yaml, {says}")] for one, says in zip(found, begins, strict=False)] == [
        f"agent.yaml, {says}" for says in begins
    ]
    assert len(found) == len(begins)
    assert str(raised.value) == "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        stage("sense", "type: function\nname: s\nconfig: {function: read_rates}"),
        stage(
            "actuate",
            EXECUTE
            + "  - {type: function, name: x, function: hold_once, with: {batch: '{{ params.batch }}'}}",
        ),
        stage(
            "reason",
            "type: govern\nname: g\nconfig: {constraints: [{name: c, require: action.params.rate < 5}]}",
        ),
        stage("reflect", UPDATE + "    memory.patterns: {maxItems: 5, ttlMs: 5}"),
        stage("reflect", UPDATE + "    memory.patterns: {policy: [max_items, ttl], maxItems: 0, ttlMs: 0}"),
        stage(
            "reflect",
            "type: learn\nname: l\nprompt: '{{ memory.own }} {{ agent.name }} {{ cycle }}'",
            UPDATE_ONLY,
        ),
        stage("reflect", LEARN_TWO + "\nconfig: {target: memory.two}", UPDATE_ONLY),
        stage("reflect", LEARN_TWO.replace("memory.one", "memory.patterns"), UPDATE_ONLY),
        stage("reflect", LEARN_TWO.replace("prompt: '", "prompt: '{{ memory.patterns }} "), UPDATE_ONLY),
        stage(
            "reflect",
            LEARN_TWO + "\noutputSchema: {properties: {insights: {type: array}}}",
            "type: learn\nname: m\nprompt: '{{ memory.insights }}'",
            UPDATE_ONLY,
        ),
        stage(
            "reflect",
            "type: learn\nname: l\nprompt: x",
            "type: learn\nname: m\nprompt: '{{ derivedData.learnings | json }} {{ memory.insights }}'\noutputSchema: {properties: {insights: {type: array}}}",
            UPDATE_ONLY,
        ),
    ],
)
def test_accepts_valid_files(text):
    assert checked(text)
    assert Schema(agent_schema()).check(load_yaml(text)).valid


CONDITIONS_ON_KEYS = {
    "an analysis of nothing", "a timeout without a function", "an evaluation of nothing", "a prompt without a schema",
    "a schema without a prompt", "a model without a prompt", "a model's time without a prompt", "stages without any",
    "a policy without its number", "two policies and one number", "a number of another policy", "no policy and no number",
    "a key outside the memory", "a key within a key",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONDITIONS_ON_KEYS))
def test_the_schema_has_the_conditions_of_the_check(name):
    assert not Schema(agent_schema()).check(load_yaml(FILES[name][0])).valid


def test_conditions_of_specs_made_in_python_ignore_what_is_not_set():
    spec = AgentSpec.model_validate(
        {
            "name": "t",
            "stages": {
                "sense": None,
                "actuate": {
                    "substages": [
                        {
                            "type": "evaluate",
                            "name": "e",
                            "prompt": None,
                            "config": {"function": "hold_once"},
                        },
                        {
                            "type": "execute",
                            "name": "x",
                            "config": {
                                "actions": [
                                    {
                                        "type": "function",
                                        "name": "f",
                                        "function": "hold",
                                        "with": {"batch": object()},
                                    }
                                ]
                            },
                        },
                    ]
                },
            },
        }
    )
    assert list(unmet_conditions(spec)) == []


def test_specs_made_in_python_get_the_same_checks_without_lines():
    spec = AgentSpec.model_validate(
        load_yaml(stage("reflect", "type: learn\nname: l\nprompt: '{{ memry }}'"))
    )
    with pytest.raises(
        AgentFileError, match=r"The agent 't', stage 'reflect', substage 'l', prompt: unknown name 'memry'"
    ) as raised:
        check(spec, None, FUNCTIONS, model_for)
    assert (raised.value.line, raised.value.substage, raised.value.key) == (None, "l", "prompt")


def test_python_accepts_snake_case_names():
    spec = AgentSpec.model_validate(
        {
            "name": "t",
            "memory": {"prompt_tokens": 5},
            "stages": {
                "reflect": {"substages": [{"type": "learn", "name": "l", "prompt": "x", "output_schema": {}}]}
            },
        }
    )
    assert (spec.memory.prompt_tokens, spec.stages.reflect.substages[0].output_schema) == (5, {})


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), (b"\xff\xfe\x00", "is not UTF-8 text")]
)
def test_an_unreadable_file_is_named(tmp_path, content, message):
    path = tmp_path / "agent.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AgentFileError, match=message):
        AgentFile.read(path)


def test_rejects_a_yaml_bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(AgentFileError, match=r"200,000|aliases"):
        checked("\n".join(lines) + "\n")


def test_every_rendered_text_is_checked():
    schema = agent_schema()
    rendered = {
        key
        for part in [schema, *schema["$defs"].values()]
        for key, value in part["properties"].items()
        if TEMPLATED in str(value.get("description")) or TEMPLATED in str(value.get("additionalProperties"))
    }
    assert rendered <= TEMPLATES
    assert {"when", "require"} == CONDITIONS


@pytest.mark.parametrize(
    "file",
    [
        stage(
            "sense",
            "type: api\nname: s\nconfig: {url: 'http://x/{{ env.KEY }}', body: {a: ['{{ env.KEY }}']}}",
        ),
        stage("sense", "type: csv\nname: s\nconfig: {path: '{{ env.KEY }}/x.csv'}"),
        stage("sense", "type: function\nname: s\nconfig: {function: hold, with: {batch: '{{ env.KEY }}'}}"),
        stage(
            "actuate",
            EXECUTE + "  - {type: api_call, name: x, url: 'http://u', headers: {a: '{{ env.KEY }}'}}",
        ),
    ],
)
def test_requests_and_calls_read_the_environment(file):
    assert checked("env: [KEY]\n" + file).env == ["KEY"]


def test_rejects_invalid_variable_names():
    with pytest.raises(AgentFileError, match=r"line 1.*env\.0"):
        checked("env: ['MY KEY']\n" + stage("sense", "type: csv\nname: s\nconfig: {path: x}"))


@pytest.mark.parametrize(
    ("module", "text", "extra"),
    [
        ("httpx2", stage("sense", "type: api\nname: s\nconfig: {url: 'https://a.test/'}"), "http"),
        ("httpx2", stage("actuate", EXECUTE + "  - {type: api_call, name: x, url: 'https://a.test/'}"), "http"),
        ("httpx2", "notify: {url: 'https://a.test/'}\n" + stage("reason", ANALYZE + "prompt: hello"), "http"),
        ("cronsim", "triggers: [{type: cron, expression: '* * * * *'}]\n" + stage("reason", ANALYZE + "prompt: hello"), "cycles"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_installed_is_named_before_the_agent_runs(monkeypatch, module, text, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises((AgentFileError, ConfigError), match=rf"pip install 'redraft\[{extra}\]'"):
        checked(text)
