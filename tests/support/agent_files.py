"""Agent files for tests: the specification's examples as printed, inside a whole file."""

from __future__ import annotations

from textwrap import dedent, indent

LEARN = """\
reflect:
  substages:
    - type: learn
      name: pattern-learner
      prompt: |
        Review this cycle's outcome and extract learnings.

        Actions taken:
        {{derivedData.execution | json}}

        Evaluation results:
        {{derivedData.evaluation | json}}

        Human feedback received this cycle:
        {{memory.feedbackHistory | json}}

        Existing patterns:
        {{memory.patterns | json}}

        Analyze:
        1. Which actions succeeded? Which failed and why?
        2. Are there new patterns to remember?
        3. Should any existing patterns be updated?
        4. If operators rejected or modified decisions, what can we learn?

        Extract actionable insights to improve future decision-making.
      outputSchema:
        type: object
        properties:
          newPatterns:
            type: array
            items:
              type: object
              properties:
                description:
                  type: string
                type:
                  type: string
                  enum: [success, failure, correlation, operator-override, threshold-drift]
                confidence:
                  type: number
          reinforcedPatterns:
            type: array
            items:
              type: string
          deprecatedPatterns:
            type: array
            items:
              type: string
          insights:
            type: array
            items:
              type: string
"""
"""Specification 004, Learn."""

UPDATE_STATE = """\
reflect:
  substages:
    - type: update-state
      name: memory-update
      config:
        retention:
          memory.recentActions:
            policy: max_items
            maxItems: 100 # Keep only the last 100 actions

          memory.patterns:
            policy: ttl
            ttlMs: 604800000 # Discard patterns older than 7 days

          memory.feedbackHistory:
            policy: max_items
            maxItems: 200 # Keep last 200 feedback exchanges
"""
"""Specification 004, UpdateState."""

CAPTURE_METRICS = """\
reflect:
  substages:
    - type: capture-metrics
      name: cycle-metrics
      config:
        trackCycleDuration: true # Time from Sense start to Reflect end
        trackLLMTokens: true # Total LLM tokens used this cycle
        trackAnomalyCount: true # Number of anomalies detected
        trackAlertCount: true # Number of alerts published
"""
"""Specification 004, CaptureMetrics."""

FULL_REFLECT = """\
reflect:
  substages:
    - type: learn
      name: quality-feedback-learner
      prompt: |
        Review this cycle's quality monitoring outcome and extract learnings.
        Pay special attention to human feedback received during this cycle.

        Actions taken:
        {{derivedData.execution | json}}

        Human feedback received this cycle:
        {{memory.feedbackHistory | json}}

        Existing quality patterns:
        {{memory.qualityPatterns | json}}

        Analyze whether operators approved or rejected actions, identify
        false positives, and extract new patterns for future cycles.
      outputSchema:
        type: object
        properties:
          newPatterns:
            type: array
            items:
              type: object
              properties:
                description:
                  type: string
                type:
                  type: string
                  enum:
                    [quality-rule, false-positive, threshold-drift, operator-override, correlation]
                confidence:
                  type: number
                source:
                  type: string
                  enum: [agent-observation, operator-feedback, outcome-evaluation]
          confidenceAdjustment:
            type: number
            minimum: -0.2
            maximum: 0.2

    - type: update-state
      name: memory-update
      config:
        retention:
          memory.recentActions:
            policy: max_items
            maxItems: 100
          memory.qualityPatterns:
            policy: ttl
            ttlMs: 604800000 # 7 days
          memory.feedbackHistory:
            policy: max_items
            maxItems: 200

    - type: capture-metrics
      name: metrics
      config:
        trackLLMTokens: true
        trackCycleDuration: true
        trackAnomalyCount: true
"""
"""Specification 004, Full Reflect Example."""


def whole(*stages: str, name: str = "monitor") -> str:
    """An agent file that holds these stages."""
    inside = "".join(indent(dedent(stage), "  ") for stage in stages)
    return f"name: {name}\nmodel: scripted-for-tests\nstages:\n{inside}"
