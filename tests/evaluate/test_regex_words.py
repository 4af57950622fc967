# ruff: noqa: E501 (a table: one row reads better than folded)
"""Patterns in words: 200 patterns as people use them, each with a text that passes it."""

import re

import pytest

from redraft.evaluate.regex_words import phrase_of
from redraft.text.regex import compile_pattern

QUOTED = "matches the regular expression `{}`"

WORDS = [
    # Fixed words.
    (r"Ask us!\s*$", "", "Ask us!", 'ends with "Ask us!"'),
    (r"^\s*Dear", "", "Dear Ada", 'begins with "Dear"'),
    ("^(Yes|No)$", "", "No", 'is "Yes" or "No"'),
    ("^(?:GET|POST|PUT)$", "", "PUT", 'is one of "GET", "POST" or "PUT"'),
    ("^ok$", "", "ok", 'is "ok"'),
    ("foo|bar", "s", "a bar", 'contains "foo" or "bar"'),
    (r"\bTODO\b", "i", "todo", 'contains "TODO" in upper or lower case'),
    ("(?i)sorry", "", "Sorry", 'contains "sorry" in upper or lower case'),
    (r"v1\.2", "", "v1.2", 'contains "v1.2"'),
    (r"^https://", "", "https://a.org", 'begins with "https://"'),
    (r"\.py$", "", "a.py", 'ends with ".py"'),
    (r"^colou?r$", "", "color", 'is "colour" or "color"'),
    (r"^.*thanks.*$", "", "many thanks", 'is one line that contains "thanks"'),
    (r"^.*thanks.*$", "s", "many\nthanks", 'contains "thanks"'),
    (r"^.*thanks.*$", "m", "many\nthanks", 'contains "thanks"'),
    ("a b", "x", "ab", 'contains "ab"'),
    ("^- ", "m", "- a", 'has a line that begins with "- "'),
    (r"^\+.*\bprint\(", "m", "+ print(", 'has a line that begins with a plus sign, any text and "print("'),
    ("[^!]$", "", "tea", "does not end with an exclamation mark"),
    ("^[^#]", "", "tea", "does not begin with a hash sign"),
    ("[^.!?]$", "", "tea", "does not end with a dot, an exclamation mark or a question mark"),
    ("^[^A-Z]*$", "", "tea", "does not contain a capital letter"),
    ("^[^,;]+$", "", "tea", "does not contain a comma or a semicolon"),
    ("^[^a-z]+$", "i", "12", "does not contain a letter"),
    (r"^\D+$", "", "tea", "does not contain a digit"),
    (r"[\s\S]*END$", "", "a\nEND", 'ends with "END"'),
    (r"\n\n", "", "a\n\nb", "contains an empty line"),
    (r"\A# ", "m", "# a", 'begins with "# "'),
    (r"foo\Z", "m", "a foo", 'ends with "foo"'),
    (r"^\d{1,2}[A-F]$", "", "12A", "consists of one or two digits followed by a capital letter from A to F"),
    # Dates and times.
    (r"^\d{4}-\d{2}-\d{2}$", "", "2026-03-01", "has the form YYYY-MM-DD"),
    (r"^[0-9]{4}/[0-9]{2}/[0-9]{2}$", "", "2026/03/01", "has the form YYYY/MM/DD"),
    (r"^[\d.]{4}-\d\d$", "", "20.1-03", "consists of four digits or dots, a hyphen, and two digits"),
    (r"^(\d{4})-(\d{2})-(\d{2})$", "", "2026-03-01", "has the form YYYY-MM-DD"),
    (r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", "", "2026-03-01", "has the form YYYY-MM-DD"),
    (r"^(19|20)\d\d-\d\d-\d\d$", "", "2026-03-01", "has the form YYYY-MM-DD"),
    (r"^2026-\d\d-\d{2}$", "", "2026-03-01", "has the form 2026-MM-DD"),
    (r"^\d{4}-\d{2}$", "", "2026-03", "has the form YYYY-MM"),
    (r"^\d{4}-W\d{2}$", "", "2026-W09", "has the form YYYY-Www"),
    (r"^\d{2}\.\d{2}\.\d{4}$", "", "01.03.2026", "has the form DD.MM.YYYY"),
    (r"^\d\d:\d\d$", "", "09:30", "has the form HH:MM"),
    (r"^([01]\d|2[0-3]):[0-5]\d$", "", "09:30", "has the form HH:MM"),
    (r"^\d{2}:\d{2}:\d{2}$", "", "09:30:00", "has the form HH:MM:SS"),
    (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$", "", "2026-03-01T09:30", "has the form YYYY-MM-DDTHH:MM"),
    (r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$", "", "2026-03-01 09:30:00", "has the form YYYY-MM-DD HH:MM:SS"),
    (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$", "", "2026-03-01T09:30:00Z", "has the form YYYY-MM-DDTHH:MM:SSZ"),
    (r"^INV-\d{4}-\d{2}-\d{2}$", "", "INV-2026-03-01", "has the form INV-YYYY-MM-DD"),
    (r"^INV-\d{4}-\d{2}-\d{2}-\d{3}$", "", "INV-2026-03-01-001",
     "consists of INV-YYYY-MM-DD- followed by three digits"),
    (r"\d{4}-\d{2}-\d{2}", "", "on 2026-03-01", "contains text of the form YYYY-MM-DD"),
    # Not every whole number passes these.
    (r"^-?\d{1,3}$", "", "-12", "consists of an optional hyphen followed by one to three digits"),
    (r"^[+-]?\d{1,3}(,\d{3})*$", "", "1,234", "matches the regular expression `{}`"),
    (r"^\d{1,3}\.\d{2}$", "", "12.50", "consists of one to three digits, a dot and two digits"),
    # A negated class at an end is denied only if nothing follows it.
    (r"^[^a]", "", "bee", 'does not begin with "a"'),
    (r"^[^a]b", "", "cb", 'begins with a character other than "a" followed by "b"'),
    (r"^[^a]\d$", "", "b1", 'consists of a character other than "a" followed by a digit'),
    (r"\d[^!]$", "", "a 1b", "ends with a digit followed by a character other than an exclamation mark"),
    # A lookahead is about the whole text.
    (r"^(?=.*\d)[^a]", "", "b1", "matches the regular expression `{}`"),
    (r"^(?=.*\d).{8,}", "", "abcdefghi1", "matches the regular expression `{}`"),
    # A repeated group is any text only if `.` is all that it repeats.
    (r"^(?:.x)*a$", "", "1xa", "matches the regular expression `{}`"),
    (r"^a(?:)*", "", "a", "matches the regular expression `{}`"),
    (r"^(?:)*$", "", "", "matches the regular expression `{}`"),
    # Kinds that have a name.
    (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "", "ada@example.org", "is an e-mail address"),
    (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "", "ada@example.org", "is an e-mail address"),
    (r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$", "", "ada@example.org", "is an e-mail address"),
    (r"[\w.+-]+@[\w-]+\.[\w.-]+", "", "to ada@example.org", "contains an e-mail address"),
    (r"^https?://\S+$", "", "http://a.org", 'is a URL that begins with "http://" or "https://"'),
    (r"^https://[^\s/]+(/\S*)?$", "", "https://a.org", 'is a URL that begins with "https://"'),
    (r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", "",
     "123e4567-e89b-42d3-a456-426614174000", "is a UUID"),
    (r"^(\d{1,3}\.){3}\d{1,3}$", "", "8.8.8.8", "is an IPv4 address"),
    (r"^\d+\.\d+\.\d+$", "", "1.2.3", "is a semantic version (MAJOR.MINOR.PATCH)"),
    (r"^\d+\.\d{2}$", "", "1.20", "is a number with two decimal places"),
    (r"^-?\d+(\.\d+)?$", "", "1.2", "is a decimal number"),
    (r"^-?\d+$", "", "-1", "is a whole number"),
    (r"^[a-z0-9]+(?:-[a-z0-9]+)*$", "", "my-post", "is a slug (small letters, digits and single hyphens)"),
    (r"^\+[1-9]\d{6,14}$", "", "+4366012345",
     "is a phone number in international form (a plus sign, then digits only)"),
    # A few pieces in a row.
    (r"^[A-Z]\d{2}$", "", "A12", "consists of a capital letter followed by two digits"),
    (r"^[A-Z]{3}-\d{4}$", "", "ABC-1234", "consists of three capital letters, a hyphen and four digits"),
    (r"^TEA-\d{3}$", "", "TEA-001", 'consists of "TEA-" followed by three digits'),
    (r"^#[0-9a-fA-F]{6}$", "", "#00ff00", "consists of a hash sign followed by six hexadecimal digits"),
    (r"^#[0-9a-f]{3}$", "", "#0f0", "consists of a hash sign followed by three lowercase hexadecimal digits"),
    (r"^[0-9A-F]{8}$", "", "0A1B2C3D", "consists of eight uppercase hexadecimal digits"),
    (r"^[0-9a-f]{6}$", "i", "00FF00", "consists of six hexadecimal digits"),
    (r"^[0-9a-f:]+$", "", "fe:01", "consists only of digits, small letters from a to f or colons"),
    (r"^[0-9a-f]{40}$", "", "0" * 40, "consists of 40 lowercase hexadecimal digits"),
    (r"^[A-Z]{2}$", "", "AT", "consists of two capital letters"),
    (r"^\d+$", "", "12", "consists only of digits"),
    (r"^\d{5}$", "", "12345", "consists of five digits"),
    (r"^[A-Z][a-z]+$", "", "Ada", "consists of a capital letter followed by small letters"),
    (r"^[A-Z]+", "", "ABC", "begins with capital letters"),
    (r"^[a-z_]+$", "", "a_b", "consists only of small letters or underscores"),
    (r"^[a-zA-Z0-9]{3,16}$", "", "ada1", "consists only of three to 16 letters or digits"),
    (r"^\d{1,3}%$", "", "12%", "consists of one to three digits followed by a percent sign"),
    (r"^\d{5}(-\d{4})?$", "", "12345", "consists of five digits, optionally followed by a hyphen and four digits"),
    (r"^(978|979)\d{10}$", "", "9783161484100", 'consists of "978" or "979" followed by ten digits'),
    (r"^(\+\d{1,3}[- ]?)?\d{10}$", "", "+43 6601234567", QUOTED),
    (r"^\d{3}[-.]?\d{4}$", "", "555-0123",
     "consists of three digits, optionally a hyphen or a dot, and four digits"),
    (r"^[A-Z][^.]*\.$", "", "Tea.",
     "consists of a capital letter, any number of characters other than a dot, and a dot"),
    (r'^"[^"]+"$', "", '"a"',
     "consists of a double quote, characters other than a double quote, and a double quote"),
    (r"^\{[\s\S]*\}$", "", "{}", 'consists of "{{", any text and "}}"'),
    (r"^\d{4}-Q[1-4]$", "", "2026-Q1", 'consists of four digits, "-Q" and a digit from 1 to 4'),
    (r"\bv\d+\.\d+", "", "v1.2", 'contains "v", digits, a dot and digits'),
    (r"^#\w+", "", "#tea", "begins with a hash sign followed by letters, digits or underscores"),
    (r"[.!?]$", "", "So!", "ends with one of a dot, an exclamation mark or a question mark"),
    (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "", "Abcdefg1",
     "has at least 8 characters on one line, among them a capital letter and a digit"),
    (r"^(?=.*[a-z]).{8,}$", "i", "ABCDEFGH", "has at least 8 characters on one line, among them a letter"),
    # Lengths.
    ("^.{1,30}$", "", "a", "has 1 to 30 characters on one line"),
    ("^.{0,30}$", "", "a", "has at most 30 characters on one line"),
    ("^.{8,}$", "", "abcdefgh", "has at least 8 characters on one line"),
    ("^.{1,30}$", "s", "a\nb", "has 1 to 30 characters"),
    (r"^[\s\S]{1,280}$", "", "a\nb", "has 1 to 280 characters"),
    ("^.*$", "", "a", "is on one line"),
    ("^.*$", "s", "a\nb", QUOTED),
    (r"^\d*$", "", "12", "consists only of digits"),
    (r"^\s*$", "", " ", "consists only of white space"),
    # What has no words is quoted.
    ("^a|b$", "", "a", QUOTED),
    ("a|", "", "", QUOTED),
    (r"^(\d)\1$", "", "11", QUOTED),
    (r"^(?!.*foo).*$", "", "bar", QUOTED),
    (r"^[A-Z]{2}\d{2}[A-Z0-9]{4}\d{7}([A-Z0-9]?){0,16}$", "", "AT611904300234573201", QUOTED),
]  # fmt: skip

OTHERS = [
    (r"^\d{3}-\d{2}-\d{4}$", "123-45-6789"), (r"^\(\d{3}\) \d{3}-\d{4}$", "(202) 555-0123"),
    (r"^\d{3}-\d{3}-\d{4}$", "202-555-0123"), (r"^\d{2}/\d{2}/\d{4}$", "01/03/2026"),
    (r"^\d{1,2}/\d{1,2}/\d{4}$", "1/3/2026"), (r"^\d{8}$", "20260301"), (r"^\d{14}$", "20260301093000"),
    (r"^\d{2}-[A-Z][a-z]{2}-\d{4}$", "01-Mar-2026"), (r"^[A-Z][a-z]{2} \d{1,2}, \d{4}$", "Mar 1, 2026"),
    (r"^\d{1,2}:\d{2} (AM|PM)$", "9:30 AM"), (r"^\d{2}:\d{2}-\d{2}:\d{2}$", "09:30-10:30"),
    (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$", "2026-03-01T09:30:00.000Z"),
    (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[+-]\d{2}:\d{2}$", "2026-03-01T09:30:00+01:00"),
    (r"^P\d+D$", "P3D"), (r"^\d{4}$", "2026"), (r"^(19|20)\d{2}$", "2026"), (r"^20\d{2}$", "2026"),
    (r"^Q[1-4] \d{4}$", "Q1 2026"), (r"^KW ?\d{1,2}$", "KW 9"), (r"^\d{4}/\d{2}$", "2026/03"),
    (r"^[A-Z]{2}-\d{4}$", "AB-1234"), (r"^[A-Z]{2}\d{6}$", "AB123456"), (r"^[A-Z]{1,3}-\d{1,4}$", "A-1"),
    (r"^ORD-\d{6}$", "ORD-123456"), (r"^ORD-[0-9A-F]{8}$", "ORD-0A1B2C3D"), (r"^SKU\d{5}$", "SKU12345"),
    (r"^[A-Z]{3}\d{3}[A-Z]$", "ABC123D"), (r"^[A-Z0-9]{6}$", "A1B2C3"), (r"^[A-Z0-9-]+$", "A-1"),
    (r"^[A-Z]{4}-[A-Z]{4}-\d{4}$", "ABCD-EFGH-1234"), (r"^#\d+$", "#12"), (r"^[A-Z]+-\d+$", "ABC-12"),
    (r"^PR-\d+: .+$", "PR-12: Fix"), (r"^(feat|fix|docs): .+$", "fix: it"),
    (r"^(feat|fix|docs|chore)(\([a-z-]+\))?: .+$", "fix(api): it"), (r"^v\d+\.\d+\.\d+$", "v1.2.3"),
    (r"^v?\d+\.\d+\.\d+$", "1.2.3"), (r"^\d+\.\d+$", "1.2"), (r"^\d+(\.\d+){1,3}$", "1.2"),
    (r"^\d+\.\d+\.\d+(-[a-z0-9.]+)?$", "1.2.3"), (r"^sha256:[0-9a-f]{64}$", "sha256:" + "0" * 64),
    (r"^[0-9a-f]{7,40}$", "0a1b2c3"), (r"^0x[0-9a-fA-F]+$", "0x1F"), (r"^[01]+$", "0101"),
    (r"^[0-9A-F]{2}(:[0-9A-F]{2}){5}$", "00:1A:2B:3C:4D:5E"), (r"^[A-Za-z0-9+/]+=*$", "YQ=="),
    (r"^[A-Za-z0-9_-]{22}$", "a" * 22), (r"^[0-9A-HJKMNP-TV-Z]{26}$", "0" * 26),
    (r"^\$\d+$", "$12"), (r"^\$\d+\.\d{2}$", "$12.00"), (r"^€\d+,\d{2}$", "€12,00"),
    (r"^\d+,\d{2} €$", "12,00 €"), (r"^\d{1,3}(,\d{3})*$", "1,000"), (r"^\d{1,3}(\.\d{3})*,\d{2}$", "1.000,00"),
    (r"^\d+ (EUR|USD)$", "12 EUR"), (r"^(EUR|USD) \d+\.\d{2}$", "EUR 12.00"), (r"^\d+%$", "12%"),
    (r"^\d{1,2}(\.\d)?%$", "1.5%"), (r"^-?\d+\.\d$", "-1.5"), (r"^[+-]\d+$", "+1"), (r"^\d+(st|nd|rd|th)$", "3rd"),
    (r"^0?\.\d+$", "0.5"), (r"^[1-5]$", "3"), (r"^[1-9]\d*$", "12"), (r"^(100|[1-9]?\d)$", "42"),
    (r"^\d+/\d+$", "1/2"), (r"^\d+ of \d+$", "1 of 2"), (r"^\d+-\d+$", "1-2"), (r"^\d+(, \d+)*$", "1, 2"),
    (r"^\d+ (days?|weeks?)$", "3 days"), (r"^\d+ ?(kg|g|mg)$", "3 kg"), (r"^\d+(\.\d+)? ?(km|m)$", "3 km"),
    (r"^\d+x\d+$", "2x3"), (r"^\d+[smhd]$", "5m"), (r"^-?\d{1,3}\.\d+, ?-?\d{1,3}\.\d+$", "48.2, 16.3"),
    (r"^[A-Z]{3}$", "EUR"), (r"^[a-z]{2}$", "de"), (r"^[a-z]{2}-[A-Z]{2}$", "de-AT"),
    (r"^[a-z]{2}(-[A-Z]{2})?$", "de"), (r"^[A-Z]{2}\d{2} ?(\d{4} ?){4}$", "AT61 1904 3002 3457 3201"),
    (r"^[A-Z]{6}[A-Z0-9]{2}([A-Z0-9]{3})?$", "GIBAATWW"), (r"^[A-Z]{2}\d+$", "AT123"),
    (r"^ATU\d{8}$", "ATU12345678"), (r"^\d{4} ?\d{4} ?\d{4} ?\d{4}$", "4111 1111 1111 1111"),
    (r"^97[89]-\d-\d{2,7}-\d{1,6}-\d$", "978-3-16-148410-0"), (r"^\d{9}[\dX]$", "123456789X"),
    (r"^10\.\d{4,9}/\S+$", "10.1000/182"), (r"^[A-Z]{1,2}-?\d{1,5} ?[A-Z]{1,2}$", "W-12345 A"),
    (r"^[A-Z]\d[A-Z] ?\d[A-Z]\d$", "K1A 0B1"), (r"^\d{4} [A-Z]{2}$", "1234 AB"), (r"^[A-Z]-\d{4}$", "A-1010"),
    (r"^\+\d{1,3} \d+$", "+43 660"), (r"^0\d{3,4}[ /-]?\d+$", "0660/12345"), (r"^@\w{1,15}$", "@ada"),
    (r"^#[A-Za-z]\w*$", "#tea"), (r"(^|\s)#\w+", "a #tea"), (r"^[a-z][a-z0-9_]*$", "a_1"),
    (r"^[a-z]+([A-Z][a-z]+)*$", "camelCase"), (r"^([A-Z][a-z]+)+$", "PascalCase"), (r"^[A-Z]+(_[A-Z]+)*$", "A_B"),
    (r"^[A-Z_]+=.*$", "A=1"), (r"^--[a-z-]+$", "--dry-run"), (r"^/[a-z/]+$", "/a/b"), (r"^(/\w+)+$", "/a/b"),
    (r"^\./\S+$", "./a"), (r"^[\w-]+\.(png|jpg)$", "a.png"), (r"^\w+\.py$", "a.py"), (r"^[\w/]+\.py:\d+$", "a.py:3"),
    (r"^test_\w+$", "test_a"), (r"^def \w+\(", "def f("), (r"^class [A-Z]\w+", "class Tea"),
    (r"^import \w+", "import re"), (r"^SELECT\s", "SELECT a"), (r"^```", "```"), (r"```python\n", "```python\na"),
    (r"^\{.*\}$", "{}"), (r"^\[.*\]$", "[]"), (r"^<[a-z]+>", "<p>"), (r"</[a-z]+>$", "</p>"), (r"<\w+ ?/>", "<br/>"),
    (r"^# .+", "# Tea"), (r"^#{1,3} \w", "## Tea"), (r"^## Summary$", "## Summary"), (r"\[.+\]\(.+\)", "[a](b)"),
    (r"\[\d+\]", "as in [1]"), (r"\(\w+, \d{4}\)", "(Ada, 1843)"), (r"^\d+\. ", "1. a"), (r"^[-*] ", "- a"),
    (r"^\w+: .+$", "a: b"), (r"^[^:]+: [^:]+$", "a: b"), (r"^\"[^\"]+\"$", '"a"'), (r"^'.*'$", "'a'"),
    (r"^[A-Z].*\.$", "So be it."), (r"^[A-Z].{0,60}$", "Tea"), (r"^[^.]*$", "tea"), (r"^\S+ \S+$", "a b"),
    (r"^\w+( \w+){0,4}$", "a b c"), (r"^(\w+ ){2}\w+$", "a b c"), (r"^[A-Z][a-z]+ [A-Z][a-z]+$", "Ada Byron"),
    (r"^[A-Z][a-z]+, [A-Z]\.$", "Byron, A."), (r"^(Mr|Ms|Dr)\. [A-Z]\w+$", "Dr. Tea"), (r"^[A-Z]\.( [A-Z]\.)*$", "A. B."),
    (r"^Dear \w+,", "Dear Ada,"), (r"Best regards,\n\w+$", "Best regards,\nAda"), (r"\?$", "Tea?"), (r"!{1,3}$", "Tea!!"),
    (r"[A-Z]{2,}", "the NASA"), (r"\d", "a 1"), (r"\d{4,}", "12345"), (r"[^\x00-\x7f]", "é"), (r"\s", "a b"),
    (r"^[\w\s]+$", "a b"), (r"^[a-z ]+$", "a b"), (r"^[a-zA-Z]+$", "Tea"), (r"^[A-Z\d]{8}$", "ABCD1234"),
    (r"^[^\s]+$", "tea"), (r"^\w{3,}$", "tea"), (r"^.+$", "tea"), (r"^.{3}$", "tea"), (r"^[aeiou]", "in"),
    (r"^(?i:yes)$", "YES"), (r"^(?P<year>\d{4})$", "2026"), (r"^(a|b)+$", "ab"), (r"^(\d{3}-)?\d{4}$", "1234"),
    (r"^\d{3}(?:-\d{3})?$", "123"), (r"^[A-D]$", "A"), (r"^[A-D][+-]?$", "B+"), (r"^[1-9][0-9]{3}-[0-9]{2}$", "1234-56"),
    (r"^ISO \d{4,5}$", "ISO 9001"), (r"^RFC ?\d{4}$", "RFC 2822"), (r"^CVE-\d{4}-\d{4,}$", "CVE-2026-1234"),
    (r"^arn:aws:\w+:", "arn:aws:s3:"), (r"^s3://[a-z0-9.-]+/.+$", "s3://a/b"), (r"^(dev|staging|prod)-\d$", "dev-1"),
    (r"^gpt-\d(\.\d)?(-\w+)?$", "gpt-5"), (r"^[a-z]+:[a-z0-9.-]+$", "a:b-1"), (r"^\w+\[\d+\]$", "a[0]"),
    (r"^(true|false)$", "true"), (r"^(y|n)$", "y"), (r"^[YN]$", "Y"), (r"^(low|medium|high)$", "low"),
    (r"^(\d{1,2}):([0-5]\d)$", "9:30"), (r"^T\d{2}$", "T01"), (r"^[A-Z]{2}[0-9]{2}[A-Z]{3}$", "AB12CDE"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "flags", "text", "expected"), WORDS)
def test_a_pattern_is_described_in_plain_words(pattern, flags, text, expected):
    assert phrase_of(pattern, flags).affirmed == expected.format(pattern)


@pytest.mark.parametrize(
    ("pattern", "words", "matching", "other"),
    [
        (r"^.*tea.*$", 'is one line that contains "tea"', "a tea b", "a\ntea"),
        (r"\A.*tea.*\Z", 'is one line that contains "tea"', "a tea b", "tea\nb"),
        (r"^tea.*$", 'is one line that begins with "tea"', "tea b", "tea\nb"),
        (r"^.*tea$", 'is one line that ends with "tea"', "a tea", "a\ntea"),
        (r"^.*tea", 'contains "tea" in its first line', "a tea\nb", "a\ntea"),
        (r"tea.*$", 'contains "tea" in its last line', "a\ntea b", "tea\nb"),
        (r"^tea.*milk$", 'consists of "tea", any text and "milk" on one line', "tea, milk", "tea\nmilk"),
        (r"tea.*milk", 'contains "tea", any text and "milk" on one line', "a\ntea, milk", "tea\nmilk"),
        (r"tea.*", 'contains "tea"', "a\ntea\nb", "a"),
        (r".*tea$", 'ends with "tea"', "a\nb tea", "tea\nb"),
        (r"^.*tea[\s\S]*$", 'contains "tea"', "a tea\nb", "a"),  # says less than it could
    ],
)
def test_a_dot_does_not_match_a_line_break(pattern, words, matching, other):
    assert phrase_of(pattern).affirmed == words
    spans = compile_pattern(pattern).spans
    assert spans(matching)
    assert not spans(other)


@pytest.mark.parametrize(
    ("pattern", "about", "expected"),
    [
        ("^[A-Z]{2}$", "country", "is an international country code (two capital letters)"),
        ("^[A-Z]{2}$", "Names the country.", "is an international country code (two capital letters)"),
        ("^[A-Z]{3}$", "currency", "is an international currency code (three capital letters)"),
        ("^[a-z]{2}$", "language", "is an international language code (two small letters)"),
        ("^[A-Z]{4}$", "country", "consists of four capital letters"),
        ("^[A-Z]{2}$", "grade", "consists of two capital letters"),
    ],
)
def test_codes_are_named_by_what_they_are_about(pattern, about, expected):
    assert phrase_of(pattern, about=about).affirmed == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("TODO", 'does not contain "TODO"'),
        (r"^\d+$", "does not consist only of digits"),
        (r"^\d\d:\d\d$", "does not have the form HH:MM"),
        ("^(Yes|No)$", 'is not "Yes" or "No"'),
        ("[^!]$", "ends with an exclamation mark"),
        ("(?=a)b", "does not match the regular expression `(?=a)b`"),
    ],
)
def test_a_forbidden_pattern(pattern, expected):
    assert phrase_of(pattern).denied == expected


@pytest.mark.parametrize(
    "pattern",
    [r"^([\w-]+)+!$", r"^(?=(\w+)+$)([\w-]+)+!$", "[[a]x", "((a{100}){100}){100}", "(", "a" * 3_000],
)
def test_slow_odd_and_invalid_patterns_are_described_or_quoted_in_bounded_time(pattern):
    assert phrase_of(pattern).affirmed


def candidates(sentence):
    """Return what a model could copy: what is quoted, and up to three words in a row with a digit or capital."""
    quoted = re.findall(r'"([^"]+)"', sentence)
    runs = set()
    for part in re.split(r'"[^"]*"|`', sentence):
        words = part.split()
        runs |= {" ".join(words[start : start + count]) for count in (1, 2, 3) for start in range(len(words))}
    stripped = {run.strip("().,") for run in runs}
    return {*quoted, *(run for run in runs | stripped if not re.fullmatch("[a-z ]*", run))}


TABLE = [(pattern, flags, text) for pattern, flags, text, _ in WORDS] + [(p, "", text) for p, text in OTHERS]
FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def test_the_table_is_large_and_right():
    assert len({pattern for pattern, _, _ in TABLE}) >= 200
    wrong = [row for row in TABLE if not re.search(row[0], row[2], sum(FLAGS[flag] for flag in row[1]))]
    assert not wrong


def test_no_phrase_holds_a_text_that_passes():
    for pattern, flags, _ in TABLE:
        expression = re.compile(pattern, sum(FLAGS[flag] for flag in flags))
        if any(map(expression.search, ("words", "Words", "plain words"))) or not re.search(
            r"\\[dw]|\[.+\]", pattern
        ):
            continue  # any words pass, or only fixed words do, which have to be named
        copied = {text for text in candidates(phrase_of(pattern, flags).affirmed) if expression.search(text)}
        named = {text for text in copied if text in pattern or text.strip() in "?!*-"}
        assert copied == named, pattern
