"""Small tasks: short texts. All that is asked can be seen and counted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from _task import BenchTask

from redraft import QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Callable

Check = tuple[bool, str]


def writing(name: str, prompt: str, **checks: Callable[[str], Check]) -> BenchTask:
    """Ask for a text; each check looks at the whole reply, a Markdown fence included."""
    criteria = tuple(
        QualityCriterion(
            key, threshold=1.0, evaluator="function", evaluator_config={"function": check, "raw": True}
        )
        for key, check in checks.items()
    )
    return BenchTask(f"text-{name}", prompt, criteria)


def lines_of(output: str) -> list[str]:
    return [line.strip() for line in output.strip().splitlines() if line.strip()]


def words_of(output: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+(?:['\u2019-][A-Za-z0-9]+)*", output)


def words(least: int, most: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        count = len(words_of(output))
        return least <= count <= most, f"It has {count} words; it must have {least} to {most}."

    return check


def bullets(count: int, most_words: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        lines = lines_of(output)
        if not all(line.startswith("- ") for line in lines):
            return False, 'Each line must be a bullet that starts with "- ", and there must be no other line.'
        if len(lines) != count:
            return False, f"It has {len(lines)} bullets; it must have exactly {count}."
        longest = max(len(words_of(line)) for line in lines)
        return (
            longest <= most_words,
            f"The longest bullet has {longest} words; at most {most_words} are allowed.",
        )

    return check


def lines(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = len(lines_of(output))
        return found == count, f"It has {found} lines; it must have exactly {count}."

    return check


def sentences(count: int, end: str = ".") -> Callable[[str], Check]:
    def check(output: str) -> Check:
        ends = re.findall(r"[.!?]+(?=\s|$)", output.strip())
        good = len(ends) == count and all(found == end for found in ends)
        return (
            good,
            f"It must have exactly {count} sentences that end with {end!r}; the ends found are {ends}.",
        )

    return check


def initials(wanted: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = "".join(line[0] for line in lines_of(output))
        return found == wanted, f"The lines start with {found!r}; they must start with {wanted!r}."

    return check


def holds(*wanted: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        missing = [part for part in wanted if part not in output]
        return not missing, f"It must contain {', '.join(map(repr, missing))}, in exactly this spelling."

    return check


def avoids(*banned: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = [word for word in banned if word in output.lower()]
        return not found, f"It must not contain {', '.join(map(repr, found))}."

    return check


def at_most(characters: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        count = len(output.strip())
        return count <= characters, f"It has {count} characters; at most {characters} are allowed."

    return check


def hashtags(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = re.findall(r"#\w+", output)
        return len(found) == count, f"It has {len(found)} hashtags; it must have exactly {count}."

    return check


def sorted_list(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = [item.strip() for item in output.strip().rstrip(".").split(",")]
        if len(found) != count:
            return False, f"It has {len(found)} items between commas; it must have exactly {count}."
        return found == sorted(found, key=str.lower), f"The items are not in alphabetical order: {found}."

    return check


def lower_case(output: str) -> Check:
    return output == output.lower(), "It must be in lower case throughout."


def numbered(count: int, most_words: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = lines_of(output)
        if [line.split(" ")[0] for line in found] != [f"{number}." for number in range(1, count + 1)]:
            return False, f'It must have exactly {count} lines, which start with "1. " to "{count}. ".'
        longest = max(len(words_of(line)) - 1 for line in found)
        return (
            longest <= most_words,
            f"The longest line has {longest} words; at most {most_words} are allowed.",
        )

    return check


WRITINGS = (
    writing(
        "sky",
        "Explain in one sentence of 20 to 30 words why the sky is blue.",
        length=words(20, 30),
        sentence=sentences(1),
    ),
    writing(
        "bullets",
        'Give exactly 5 reasons to sleep enough, each on a line that starts with "- ", at most 6 words a '
        "line.",
        bullets=bullets(5, 6),
    ),
    writing(
        "haiku",
        "Write a haiku about rain: exactly 3 lines, 8 to 17 words.",
        lines=lines(3),
        length=words(8, 17),
    ),
    writing(
        "acrostic",
        "Write 4 lines about the night whose first letters are M, O, O, N.",
        initials=initials("MOON"),
    ),
    writing(
        "shouts",
        "Write exactly 3 sentences that cheer on a runner. Each must end with a single exclamation mark.",
        sentences=sentences(3, "!"),
    ),
    writing(
        "title",
        "Give one title for a blog post about garden birds, 3 to 6 words, all in lower case, without quotes.",
        length=words(3, 6),
        case=lower_case,
        plain=avoids('"', "title"),
    ),
    writing(
        "animals",
        "List 7 animals in alphabetical order, in one line, with commas between them, and nothing else.",
        items=sorted_list(7),
        line=lines(1),
    ),
    writing(
        "steps",
        'Say how to make tea in exactly 6 numbered lines, "1. " to "6. ", at most 7 words each.',
        steps=numbered(6, 7),
    ),
    writing(
        "email",
        "Write an email of at most 60 words that asks for the payment of invoice 1042. It starts with "
        '"Dear" and has the words "Best regards,".',
        length=words(15, 60),
        parts=holds("Dear", "1042", "Best regards,"),
    ),
    writing(
        "post",
        "Announce a bakery's opening on Saturday in at most 120 characters, with exactly 2 hashtags.",
        length=at_most(120),
        tags=hashtags(2),
        day=holds("Saturday"),
    ),
    writing(
        "banned",
        "Describe the sea in 25 to 40 words without using the words blue, water, wave, ocean or deep.",
        length=words(25, 40),
        taboo=avoids("blue", "water", "wave", "ocean", "deep"),
    ),
    writing(
        "summary",
        "Sum this up in one sentence of at most 14 words that contains the word battery: The new phone "
        "has a bright screen and a good camera, but reviewers agree that it has to be charged twice a "
        "day.",
        length=words(5, 14),
        sentence=sentences(1),
        word=holds("battery"),
    ),
)
