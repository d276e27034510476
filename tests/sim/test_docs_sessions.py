"""Each command of the tutorial and the how-tos runs and prints what they show; ``--regenerate`` writes the outputs."""

from __future__ import annotations

import os

import pytest

from tests.support.console import ROOT, list_mistakes, read_steps, run_page, write_outputs

PAGES = (
    "docs/tutorial.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/howto/*.md")),
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a host of its own needs root")
PAGE = """\
Text.

```console
$ echo one
one
$ x=two
$ cat <<END
> $x
>
> END
two

```

More text.

```console
$ echo $x GPU-216dfd30-e16d-573f-84d7-a882f50b24a9 $((1 + 1)) ms
two GPU-00000000-0000-0000-0000-000000000000 7 ms
```
"""
PRINTED = ["one", "", "two", "two GPU-216dfd30-e16d-573f-84d7-a882f50b24a9 2 ms"]


@pytest.mark.native
@needs_root
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(page: str, request: pytest.FixtureRequest) -> None:
    path = ROOT / page
    text = path.read_text()
    assert read_steps(text), "no command"
    outputs = run_page(text)
    if request.config.getoption("--regenerate"):
        path.write_text(write_outputs(text, outputs))
    assert "\n\n".join(list_mistakes(path.read_text(), outputs)) == ""


@needs_root
def test_commands_run_in_order_in_one_shell_and_a_wrong_output_is_found() -> None:
    assert run_page(PAGE) == PRINTED
    assert list_mistakes(PAGE, PRINTED) == []
    (mistake,) = list_mistakes(PAGE.replace("\ntwo\n", "\nthree\n", 1), PRINTED)
    assert mistake.startswith("line 7: $ cat")
    assert "three" in mistake


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("vm01  ready", "vm02  ready", False),
        ("1 of 7 slices", "2 of 7 slices", False),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
        ("exit 5", "exit 6", False),
        ("10 GiB", "20 GiB", False),
        ("2g.20gb at 0:2", "2g.20gb at 2:2", False),
        ("0000:07:00.0", "0000:0f:00.0", False),
        ("MIG mode of GPU 0", "MIG mode of GPU 1", False),
        ("MIG-448ad4f5-31e0-528e-9e28-9cee17027a82", "MIG-00000000-31e0-528e-9e28-9cee17027a82", True),
        ("MIG-448ad4f5-31e0-528e-9e28-9cee17027a82", "GPU-448ad4f5-31e0-528e-9e28-9cee17027a82", False),
        ("on 2026-11-23 20:43:30: fan", "on 2027-01-02 03:04:05: fan", True),
        ("took 1.5 s", "took 22 s", True),
        ("process vgpumgr-hold (132)", "process vgpumgr-hold (4711)", True),
        ("WORKER    PID\nready   15574", "WORKER  PID\nready   15574", True),
    ],
)  # fmt: skip
def test_what_counts_as_the_same(shown: str, printed: str, same: bool) -> None:
    page = f"```console\n$ x\n{shown}\n```\n"
    assert (list_mistakes(page, [printed]) == []) is same


def test_outputs_are_written_in_their_places_and_only_where_one_differs() -> None:
    assert write_outputs(PAGE, PRINTED) == PAGE
    written = write_outputs(PAGE, ["four", *PRINTED[1:]])
    expected = PAGE.replace("\none\n", "\nfour\n").replace("\ntwo\n\n```", "\ntwo\n```")
    expected = expected.replace("00000000-0000-0000-0000-000000000000 7 ms", f"{PRINTED[3][8:]}")
    assert written == expected
    assert write_outputs(written, PRINTED) != written


def test_a_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="line 4"):
        read_steps("\n\n```console\nlost output\n```\n")
