"""Redaction: the share of secrets found, the share of harmless texts changed, and the time."""

from __future__ import annotations

import sys
from random import Random
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table, verdict

from redraft.redact.kinds import Category
from redraft.redact.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SEEDS = range(21, 26)
RECALL, FALSE_ALARMS, MS_PER_KB = 0.97, 0.02, 5.0
HELD_OUT_SEEDS = range(101, 106)
HELD_OUT_RECALL, HELD_OUT_FALSE_ALARMS = 0.95, 0.03
SCRIPTS_RECALL, SCRIPTS_FALSE_ALARMS, NAMES_OF_THINGS = 0.95, 0.02, 0.01
REPORT = 1024
"""Characters of a report."""
REPORTS = 100
REPEATS = 3

EVERYTHING = Redactor(also=tuple(Category))


def found_table(corpora: dict[str, Callable[[int], list[Any]]], leaks: Callable[[Any, str], bool]) -> str:
    """Render the share of secrets that are withheld, a corpus a line."""
    rows: list[Sequence[object]] = []
    found, count = 0, 0
    for name, make in corpora.items():
        texts = [row for seed in SEEDS for row in make(seed)]
        here = sum(not leaks(row, EVERYTHING.redact(row.text).text) for row in texts)
        rows.append((name, len(texts), f"{here / len(texts):.3f}", ""))
        found, count = found + here, count + len(texts)
    share = found / count
    rows.append(("all", count, f"{share:.3f}", f">= {RECALL}: {verdict(-share, -RECALL)}"))
    print(table(["secrets, by corpus", "texts", "withheld", "target"], rows))
    return table(["secrets", "texts", "withheld", "target"], rows[-1:])


def alarms_table(harmless: list[str]) -> str:
    """Render the share of harmless texts in which something is withheld."""
    touched = sum(not EVERYTHING.is_clean(text) for text in harmless)
    share = touched / len(harmless)
    target = f"<= {FALSE_ALARMS}: {verdict(share, FALSE_ALARMS)}"
    return table(
        ["harmless texts", "touched", "share", "target"], [(len(harmless), touched, f"{share:.3f}", target)]
    )


def held_out_table(lines: list[Any], harmless: list[str], leaks: Callable[[Any, str], bool]) -> str:
    """Render what is withheld of lines that are held out, a kind a line, and the false alarms."""
    rows: list[Sequence[object]] = []
    kept = {line: not leaks(line, EVERYTHING.redact(line.text).text) for line in lines}
    for kind in dict.fromkeys(line.kind for line in lines):
        here = [is_kept for line, is_kept in kept.items() if line.kind == kind]
        rows.append((kind, len(here), f"{sum(here) / len(here):.3f}", ""))
    print(table(["held out, by kind", "lines", "withheld", ""], rows))
    name, count, lowest, _ = min(rows, key=lambda row: str(row[2]))
    rows = [(f"the kind that is found least: {name}", count, lowest, "")]
    share = sum(kept.values()) / len(kept)
    met = verdict(-share, -HELD_OUT_RECALL)
    rows.append(("all", len(kept), f"{share:.3f}", f">= {HELD_OUT_RECALL}: {met}"))
    touched = sum(not EVERYTHING.is_clean(text) for text in harmless) / len(harmless)
    met = verdict(touched, HELD_OUT_FALSE_ALARMS)
    rows.append(("harmless, touched", len(harmless), f"{touched:.3f}", f"<= {HELD_OUT_FALSE_ALARMS}: {met}"))
    return table(["held out", "lines", "withheld", "target"], rows)


def scripts_table(lines: list[Any], rules: list[Any], leaks: Callable[[Any, str], bool]) -> str:
    """Render recall and false alarms by script, for the lines developed against and those held out."""
    rows: list[Sequence[object]] = []
    for script in [*dict.fromkeys(line.script for line in lines), "all"]:
        cells: list[object] = []
        for held_out in (False, True):
            here = [line for line in lines if line.held_out is held_out and script in (line.script, "all")]
            personal = [line for line in here if line.parts]
            withheld = sum(not leaks(line, EVERYTHING.redact(line.text).text) for line in personal)
            harmless = [line for line in here if not line.parts]
            touched = sum(not EVERYTHING.is_clean(line.text) for line in harmless)
            cells += [f"{withheld / len(personal):.3f}", f"{touched / len(harmless):.3f}"]
        rows.append((script, sum(script in {line.script, "all"} for line in lines), *cells))
    met = (
        verdict(-float(str(rows[-1][4])), -SCRIPTS_RECALL),
        verdict(float(str(rows[-1][5])), SCRIPTS_FALSE_ALARMS),
    )
    rows.append((f"held out >= {SCRIPTS_RECALL}: {met[0]}; <= {SCRIPTS_FALSE_ALARMS}: {met[1]}", *[""] * 5))
    titles = ["script", "lines", "withheld", "harmless, touched", "held out: withheld", "harmless, touched"]
    names = [(rule, name) for rule in rules for name in rule.parts]
    gone = sum(name not in EVERYTHING.redact(rule.text).text for rule, name in names) / len(names)
    target = f"<= {NAMES_OF_THINGS}: {verdict(gone, NAMES_OF_THINGS)}"
    things = table(
        ["names of things in rules", "withheld", "share", "target"],
        [(len(names), round(gone * len(names)), f"{gone:.3f}", target)],
    )
    return f"{table(titles, rows)}\n\n{things}"


def times_table(secret: list[str], harmless: list[str]) -> str:
    """Render the median of milliseconds for a KB, and for a text, over texts of a kind."""
    dice = Random(1)
    dice.shuffle(secret)
    dice.shuffle(harmless)
    kinds = {
        "reports of 1 KB with a secret": [
            filled([line], harmless[at::REPORTS]) for at, line in enumerate(secret[:REPORTS])
        ],
        "1 KB of nothing but secrets": [filled([], dice.sample(secret, 60)) for _ in range(REPORTS)],
    }
    rows: list[Sequence[object]] = []
    for name, texts in kinds.items():
        taken = [milliseconds(text) for text in texts]
        each = [took / (len(text.encode()) / 1024) for took, text in zip(taken, texts, strict=True)]
        length = round(median(map(len, texts)))
        target = f"<= {MS_PER_KB:g}: {verdict(median(each), MS_PER_KB)}"
        rows.append((name, length, f"{median(taken):.2f}", f"{median(each):.2f}", target))
    return table(["at the median", "characters", "ms", "ms/KB", "target"], rows)


def filled(lines: list[str], others: Iterable[str]) -> str:
    """Return lines, and others around them, until they are as long as a report."""
    lines = list(lines)
    for other in others:
        if sum(map(len, lines)) >= REPORT:
            break
        lines.insert(len(lines) // 2, other)
    return "\n".join(lines)


def milliseconds(text: str) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        began = process_time()
        EVERYTHING.redact(text)
        best = min(best, process_time() - began)
    return best * 1000


def main() -> None:
    given = options(__doc__).parse_args()
    sys.path.insert(0, str(PROJECT / "tests"))
    from support import redact_corpus
    from support.redact_harmless import harmless_texts
    from support.redact_held_out import held_out_harmless, held_out_lines
    from support.redact_scripts import leaks_pieces, rule_lines, script_lines

    corpora = {
        "shapes, settings, code, commands, prose": redact_corpus.secret_rows,
        "in passing, as in error reports": redact_corpus.reported_rows,
        "in log lines, commands and sentences": redact_corpus.told_rows,
    }
    secret = [row.text for make in corpora.values() for row in make(SEEDS[0])]
    parts = (
        found_table(corpora, redact_corpus.leaks),
        alarms_table(harmless_texts()),
        held_out_table(
            [line for seed in HELD_OUT_SEEDS for line in held_out_lines(seed)],
            held_out_harmless(),
            redact_corpus.leaks_parts,
        ),
        scripts_table(script_lines(), rule_lines(), leaks_pieces),
        times_table(secret, harmless_texts()),
    )
    publish("redaction", "\n\n".join(parts), write=given.write)


if __name__ == "__main__":
    main()
