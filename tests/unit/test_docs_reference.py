"""docs/reference/cli.md is what the command tree says; ``--regenerate`` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import list_verbs
from tools.manpages import list_pages, write_reference

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"


def test_the_reference_is_that_of_the_command_tree(request: pytest.FixtureRequest) -> None:
    text = write_reference()
    if request.config.getoption("--regenerate"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "run pytest --regenerate"


def test_every_visible_verb_and_option_is_in_it_and_in_a_manual_page() -> None:
    text = PAGE.read_text()
    manual = "\n".join(page for _, page in list_pages("")).replace("\\-", "-")
    verbs = [path for path, verb in list_verbs() if not verb.hidden]
    assert len(verbs) > 70
    hidden = ("help", "host ", "sim serve")
    for path, verb in list_verbs():
        if verb.hidden or path.startswith(hidden):
            continue
        assert f"# vgpumgr {path}\n" in text
        _, _, section = text.partition(f"# vgpumgr {path}\n")
        section = section.partition("\n#")[0]
        names = [name for one in verb.params if not one.hidden for name in one.opts]
        for name in (name for name in names if name.startswith("--")):
            assert name in section, (path, name)
            assert name in manual, (path, name)
