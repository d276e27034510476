"""The field's words: private ones are counted for each file, and no count rises above its allowance.

``tests/golden/words.txt`` has the allowances; a file without a line has none. ``pytest --regenerate`` lowers them to
the present counts and never raises one. If the table does not exist, it writes a new one from the present counts.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests/golden/words.txt"

#: each with what to write instead
WORDS = {
    r"settl(?:e|es|ed|ing)": "recover, recovery",
    r"look(?:s|ed|ing)? (?:again|at)|(?:a|each|every|next|last|two|one) looks?": "observe, snapshot",
    r"tells?|told": "describe, report, list",
    r"(?:'s|the) note": "domain metadata",
    r"rooms?": "capacity, free",
    r"seats?": "placement",
    r"wish(?:es)?": "constraints",
    r"nearness": "NUMA policy",
    r"promises?|kept places?": "reservations",
    r"given (?:device|function|one)s?": "device grant",
    r"somebody|someone|anybody|nobody|whoever|whomever": "the thing's name",
    r"he|him|his": "the thing's name",
    r"what is (?:there|ours)": "the thing's name, observed state",
    r"(?:make|makes|made|making) (?:it |them |this |that |all )?good": "repair",
    r"lets? (?:it |them )?go|letting go": "close, release",
}
PRIVATE = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
#: parts of the names of functions, methods and classes
NAMES = re.compile(
    r"(?:^|_)(?:settl(?:e|es|ed|ing)|look|tell|seats?|wishes|nearness|promises?|given|together|room)(?=_|$)"
)
#: a verb of the command line
VERB = re.compile(r"\bsim tell\b")
#: names in documents are those of tests, files and commands
QUOTED = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
GENERATED = re.compile(r"generated", re.IGNORECASE)


def list_texts(source: str) -> Iterator[str]:
    """Comments, strings with docstrings (of f-strings what is between the values), and names of definitions."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def list_names(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()


def count_words(text: str) -> int:
    """How many private words a text has; a line break is a space."""
    return len(PRIVATE.findall(VERB.sub("", " ".join(text.split()))))


def count_python(source: str) -> int:
    return sum(map(count_words, list_texts(source))) + sum(
        len(NAMES.findall(name)) for name in list_names(source)
    )


def count_document(text: str) -> int:
    """Generated documents say what the code says, where it is counted."""
    is_generated = GENERATED.search("\n".join(text.splitlines()[:5])) is not None
    return 0 if is_generated else count_words(QUOTED.sub("", text))


def count_all() -> dict[str, int]:
    """The counts of all files that have any."""
    found = {p: count_python(p.read_text()) for p in (ROOT / "vgpumgr").rglob("*.py")}
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        found[page] = count_document(page.read_text())
    return {str(p.relative_to(ROOT)): count for p, count in sorted(found.items()) if count}


def read_table(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {name: int(count) for count, name in rows}


def lower(allowed: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """The allowances, no higher than before."""
    return {name: min(allowed[name], count) for name, count in counts.items() if name in allowed}


def format_table(counts: Mapping[str, int]) -> str:
    return "".join(f"{count:5} {name}\n" for name, count in counts.items())


def test_no_file_has_more_private_words_than_it_had(request: pytest.FixtureRequest) -> None:
    counts = count_all()
    if not TABLE.exists():
        assert request.config.getoption("--regenerate"), "no table; run pytest --regenerate"
        TABLE.write_text(format_table(counts))
    elif request.config.getoption("--regenerate"):
        TABLE.write_text(format_table(lower(read_table(TABLE.read_text()), counts)))
    allowed = read_table(TABLE.read_text())
    more = {name: n for name, n in counts.items() if n > allowed.get(name, 0)}
    assert not more, f"private words (see WORDS for what to write instead): {more}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""Settles what somebody left."""', 2),
        ("x = 1  # tells of it", 1),
        ("def tell_users(): ...", 1),
        ("class HostGiven: ...", 1),
        ('y = f"{settle} looks at {somebody}"', 1),
        ("settle = somebody = 1", 0),
        ('hint = "vgpumgr sim tell NAME gone ADDRESS"', 0),
        ('"""Recovers it where\nsomebody\nlets go."""', 2),
    ],
)
def test_what_counts(source: str, count: int) -> None:
    assert count_python(source) == count


def test_quoted_names_in_documents_do_not_count() -> None:
    assert count_document("The test `test_somebody_settles` passes.\n\n    told\n") == 1


def test_allowances_only_fall() -> None:
    assert lower({"a": 3, "b": 1, "gone": 2}, {"a": 2, "b": 5, "new": 1}) == {"a": 2, "b": 1}
