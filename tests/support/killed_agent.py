"""An agent for tests that kill its process: one call in each substage of a cycle, in a known order."""

from __future__ import annotations

AGENT = """\
name: killed
model: scripted
stages:
  sense:
    substages: [{type: function, name: look, config: {function: look}}]
  reason:
    substages:
      - type: plan
        name: plan
        prompt: Plan for {{ environmentalData.payload.rate }}
        outputSchema: {type: object, properties: {actions: {type: array, items: {type: string}}}}
  actuate:
    substages:
      - type: execute
        name: act
        config: {actions: [{type: function, name: first, function: first},
                           {type: function, name: second, function: second}]}
  reflect:
    substages:
      - type: learn
        name: learn
        prompt: Learn of {{ derivedData.execution | json }}
        outputSchema: {type: object, properties: {newPatterns: {type: array}}}
      - {type: update-state, name: keep}
      - {type: capture-metrics, name: count, config: {trackLLMTokens: true}}
"""
ORDER = ["look", "plan", "first", "second", "learn"]
