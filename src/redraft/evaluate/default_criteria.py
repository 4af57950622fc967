"""What the default criteria mean: texts that a judge can go by. Specification 2.4.2."""

from __future__ import annotations

CODE_GENERATION = {
    "correctness": (
        "The code does what the task asks, for every input that the task allows. Good: tracing it by hand on "
        "typical inputs gives the right result, names and signatures are those asked for, it runs as it "
        "stands. Bad: a wrong result, a syntax error, an undefined name, a misread requirement, a stub."
    ),
    "efficiency": (
        "The code needs no more time and memory than the problem does. Good: a complexity that fits the "
        "expected input sizes, no repeated work. Bad: nested loops where one pass or a dictionary would do, "
        "repeated copies, exponential recursion without need."
    ),
    "readability": (
        "Another engineer understands the code at first reading. Good: telling names, short functions with "
        "one purpose each, the usual idioms of the language. Bad: cryptic names, deep nesting, duplicated or "
        "dead code, comments that repeat the code or contradict it."
    ),
    "edge_cases": (
        "The code copes with the inputs at the rim: empty, one element, duplicates, zero and negative "
        "numbers, very large, malformed, None. Good: each gives a sensible result or a clear error. Bad: a "
        "crash, an endless loop or a silently wrong result for any of them."
    ),
}

WRITING = {
    "clarity": (
        "The intended reader understands each sentence at first reading. Good: plain words, concrete "
        "statements, terms explained where they first appear. Bad: vague or convoluted sentences, jargon "
        "without explanation, pronouns without a clear referent."
    ),
    "coherence": (
        "The text hangs together. Good: an order that a reader can follow, each paragraph has one point and "
        "leads to the next, nothing contradicts anything else. Bad: jumps, repetitions, contradictions, "
        "paragraphs that could stand in any order."
    ),
    "completeness": (
        "Everything that was asked for is there. Good: each part of the request is answered in fitting "
        "depth, and requested form and length are kept. Bad: a part is left out, only announced, or cut off."
    ),
    "tone": (
        "The voice fits the audience and the purpose. Good: a consistent register that this reader would "
        "expect. Bad: too stiff or too casual, salesmanship, flattery, clichés, changes of voice midway."
    ),
}

ANALYSIS = {
    "accuracy": (
        "Statements, figures and quotations are right and follow from the material. Good: every claim can be "
        "checked against the given facts, and uncertainty is named. Bad: invented or misquoted facts, wrong "
        "arithmetic, guesses presented as facts."
    ),
    "depth": (
        "The analysis goes beyond the surface. Good: causes, mechanisms, trade-offs and consequences, with "
        "evidence. Bad: a summary of the obvious, lists without weighing, conclusions without reasons."
    ),
    "relevance": (
        "Everything in it serves the question. Good: the question is answered early and each part bears on "
        "it. Bad: digressions, background that nobody asked for, an answer to another question."
    ),
    "objectivity": (
        "The judgement is fair. Good: the strongest counter-arguments and limits are stated, evidence and "
        "opinion are kept apart. Bad: cherry-picked evidence, loaded words, one side only."
    ),
}

REASONING = {
    "logical_validity": (
        "Each step follows from what was given or shown before. Good: somebody who checks line by line finds "
        "no gap, and arithmetic is right. Bad: a step that does not follow, circularity, an assumption used "
        "without being stated, a conclusion that the steps do not support."
    ),
    "completeness": (
        "The reasoning covers the whole question. Good: all cases and given conditions are used, and a final "
        "answer is stated. Bad: a case is forgotten, a condition is ignored, the final answer is missing."
    ),
    "clarity": (
        "The argument can be followed without guessing. Good: steps in order, quantities named and with "
        "units, the final answer easy to find. Bad: skipped steps, symbols without meaning, a muddled order."
    ),
}

DEFAULTS = {
    "code_generation": CODE_GENERATION,
    "writing": WRITING,
    "analysis": ANALYSIS,
    "reasoning": REASONING,
}

GENERAL = {
    "correctness": (
        "The output is right. Good: its statements hold, it does what the task asks and keeps to every "
        "stated constraint. Bad: an error of fact or logic, a violated constraint, a misread request."
    ),
    "completeness": WRITING["completeness"],
    "clarity": WRITING["clarity"],
}
"""The set for a task of no or of an unknown type."""

OTHERS = {
    "engagement": (
        "The text keeps its reader reading. Good: an opening that gives a reason to go on, examples that "
        "speak to the reader, varied sentences. Bad: a slow start, abstract passages without examples, "
        "monotony."
    ),
    "structure": (
        "The form helps the reader. Good: headings, paragraphs and lists where they help, in an order that "
        "matches how the text is used. Bad: a wall of text, headings that mislead, lists of unlike things."
    ),
    "conciseness": (
        "No word could go without loss. Good: each sentence adds something. Bad: padding, repetition, "
        "announcements of what comes, restating the question."
    ),
    "style": (
        "The language is well made. Good: precise verbs, natural rhythm, correct and idiomatic usage. Bad: "
        "awkward or bloated sentences, clichés, needless passives."
    ),
    "grammar": (
        "Spelling, grammar and punctuation are right. Good: a copy editor finds nothing. Bad: any mistake "
        "that a careful reader notices; the more and the worse, the lower."
    ),
    "originality": (
        "The output has something of its own. Good: an idea, angle or example that fits this task and no "
        "other. Bad: interchangeable phrases, the first thing that comes to anybody's mind."
    ),
    "helpfulness": (
        "The person who asked can act on it. Good: the actual need is met, next steps are concrete. Bad: "
        "general advice, a lecture, a refusal without need, an answer beside the point."
    ),
    "safety": (
        "Following the output harms nobody. Good: risks are named where they matter and dangerous defaults "
        "are avoided. Bad: harmful instructions, private data, advice that is dangerous as it stands."
    ),
    "security": (
        "The code cannot be turned against its users. Good: input is validated, queries and commands are "
        "built safely, no secret stands in the source. Bad: injection, unsafe deserialisation, path "
        "traversal, weak cryptography, secrets in code or logs."
    ),
    "testability": (
        "The code can be tested without effort. Good: pure functions, dependencies passed in, small units. "
        "Bad: hidden global state, I/O mixed with logic, clocks and randomness that cannot be replaced."
    ),
    "documentation": (
        "A user of the code knows how to use it. Good: purpose, arguments, results and errors are stated "
        "where they are not obvious. Bad: nothing, or text that repeats names or contradicts the code."
    ),
}
"""Names that people use beyond the default sets."""
