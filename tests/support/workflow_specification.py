"""The YAML and Python blocks of the specification of reflection actions, as printed."""

GENERATOR_BY_ACTION = r"""
generator:
  # Option 1: Use an action
  action: llm.call
  model: gpt-4
  prompt: "Generate a JSON user profile..."
"""

GENERATOR_BY_CODE = r"""
generator:
  # Option 2: Inline Python code
  run: |
    import json
    return json.dumps({"name": "test", "email": "test@example.com"})
"""

SCHEMA_EVALUATOR = r"""
evaluator:
  type: schema
  schema:
    type: object
    required: [name, email]
    properties:
      name:
        type: string
        minLength: 1
      email:
        type: string
        pattern: "^[^@]+@[^@]+\\.[^@]+$"
"""

LLM_EVALUATOR = r"""
evaluator:
  type: llm
  model: gpt-4
  prompt: |
    Evaluate if this JSON is a valid user profile:
    {{ state.reflection_output | tojson }}

    Requirements:
    - Has name and email fields
    - Email looks valid
    - No placeholder data
  examples:
    - input: '{"name": "John", "email": "john@test.com"}'
      output: '{"valid": true, "score": 1.0, "reason": "Valid profile"}'
    - input: '{"name": "", "email": "invalid"}'
      output: '{"valid": false, "score": 0.2, "reason": "Empty name, invalid email"}'
"""

CUSTOM_EVALUATOR = r"""
evaluator:
  type: custom
  language: python  # or: lua, prolog
  run: |
    import json
    try:
        data = json.loads(output) if isinstance(output, str) else output
        has_name = bool(data.get("name"))
        has_email = "@" in data.get("email", "")
        score = (has_name + has_email) / 2
        result = {
            "valid": score >= 1.0,
            "score": score,
            "errors": [] if score >= 1.0 else [{"message": "Missing required fields"}],
            "suggestions": ["Add name field"] if not has_name else []
        }
    except:
        result = {"valid": False, "score": 0.0, "errors": [{"message": "Invalid JSON"}]}
"""

CORRECTOR = r"""
corrector:
  action: llm.call
  model: gpt-4
  prompt: |
    Fix this JSON based on the validation errors:

    Original: {{ state.reflection_output | tojson }}

    Errors:
    {% for error in state.reflection_errors %}
    - {{ error.message }}
    {% endfor %}

    Return only the corrected JSON, no explanation.
"""

COMPLETE_EXAMPLE = r"""
name: json-generator-with-reflection
description: Generate valid JSON with self-correction

nodes:
  - name: generate_profile
    uses: reflection.loop
    with:
      generator:
        action: llm.call
        model: gpt-4
        prompt: |
          Generate a JSON user profile with name, email, and age.
          User request: {{ state.request }}
          Return only valid JSON.

      evaluator:
        type: schema
        schema:
          type: object
          required: [name, email, age]
          properties:
            name:
              type: string
              minLength: 1
            email:
              type: string
              pattern: "^[^@]+@[^@]+\\.[^@]+$"
            age:
              type: integer
              minimum: 0
              maximum: 150

      corrector:
        action: llm.call
        model: gpt-4
        prompt: |
          Fix this JSON based on validation errors:

          Original: {{ state.reflection_output | tojson }}

          Errors:
          {% for error in state.reflection_errors %}
          - Path: {{ error.path }}, Message: {{ error.message }}
          {% endfor %}

          Return only corrected JSON.

      max_iterations: 3
      on_failure: return_best
    output: profile

  - name: use_profile
    run: |
      if state.get("success"):
          return {"message": f"Created profile for {state['name']}"}
      else:
          return {"message": "Failed to generate valid profile", "best_attempt": state.get("reflection_best")}
"""

EVALUATE_EXAMPLE = r"""
nodes:
  - name: validate_output
    uses: reflection.evaluate
    with:
      data: "{{ state.generated_json }}"
      evaluator_type: schema
      schema:
        type: object
        required: [status, data]
    output: validation

  - name: check_result
    run: |
      if state["validation"]["valid"]:
          return {"status": "valid"}
      else:
          return {"status": "invalid", "errors": state["validation"]["errors"]}
"""

CORRECT_EXAMPLE = r"""
nodes:
  - name: fix_json
    uses: reflection.correct
    with:
      data: "{{ state.invalid_json }}"
      errors: "{{ state.validation_errors }}"
      prompt: |
        Fix this JSON:
        {{ state.invalid_json | tojson }}

        Errors: {{ state.validation_errors | tojson }}
    output: corrected
"""

FAILED_ERROR = r"""
from the_edge_agent.actions import ReflectionFailedError

try:
    result = graph.invoke({"request": "create user"})
except ReflectionFailedError as e:
    print(f"Reflection failed: {e}")
    print(f"History: {e.history}")
    # Each history entry: {"iteration": int, "output": any, "score": float, "valid": bool, "errors": list}
"""

GRACEFUL_DEGRADATION = r"""
- name: generate_with_fallback
  uses: reflection.loop
  with:
    generator:
      action: llm.call
      prompt: "Generate content..."
    evaluator:
      type: schema
      schema: {type: object, required: [content]}
    max_iterations: 3
    on_failure: return_best  # Return best attempt instead of failing
  output: result

- name: handle_result
  run: |
    if state.get("success"):
        return {"content": state["result"]["content"]}
    else:
        # Use best attempt or fallback
        best = state.get("reflection_best", {})
        return {"content": best.get("content", "Default content")}
"""
