"""The demo, a test and the packages on a stock Debian, made just now: with what set-up installs, and nothing else.

Where this machine is that Debian, its set-up has compiled the native part by the same commands, and that is taken over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Debian 12 and 13, each with its own Python, which may be older or newer than the one that runs this
SUITES = ("bookworm", "trixie")
#: bringing what only tests need is minutes of fetching: once here, and once wherever this test itself runs;
#: the tutorial is read on the same one
TESTED = "trixie"
#: from a clone to the end of the tutorial, as a reader would type it
TUTORIAL = (
    "./run python -m tests.support.console docs/tutorial.md",
    "echo tutorial done after $SECONDS s",
)
DEMO = (
    "./run demo",
    # the demo brought nothing that only tests need
    "if .cache/venv/bin/python -c 'import pytest' 2>/dev/null; then echo pytest is here; exit 1; fi",
    "echo demo done",
)
TEST = ("./run test --fast -q tests/unit/test_model.py", "echo test done")
PACKAGES = (
    # what the packages depend on comes from this Debian; no npm registry may be in reach of it
    "./run package --without-page",
    "apt-get install -y -qq --no-install-recommends ./dist/vgpumgr_*.deb ./dist/vgpumgr-host_*.deb",
    "(cd / && vgpumgr --version && vgpumgr config check && vgpumgr virtio guest-package --out /tmp/guest.tar.gz)",
    # ssh's library is there: nothing listens
    "(cd / && vgpumgr --host root@127.0.0.1 gpu list 2>&1 | grep 'Connection refused')",
    "apt-get purge -y -qq vgpumgr vgpumgr-host",
    "test ! -e /var/lib/vgpumgr && test ! -e /usr/lib/vgpumgr-host && test ! -e /etc/vgpumgr",
    "apt-get install -y -qq --no-install-recommends ./dist/vgpumgr-guest_*.deb",
    "ldconfig -p | grep '/usr/lib/vgpumgr/libcuda.so.1$'",
    "echo packages done",
)


@pytest.mark.fresh
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("suite", SUITES)
def test_the_demo_and_a_test_run_on_a_stock_debian(suite: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root (namespaces)")
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap")
    log = tmp_path / "log"
    more = suite == TESTED
    commands = (*(TUTORIAL if more else ()), *DEMO, *(TEST if more else ()), *PACKAGES)
    done = run_in_fresh_root(log, suite, " && ".join(f"{{ {command}; }}" for command in commands))
    text = log.read_text(errors="replace")
    assert done == 0, text[-6000:]
    if more:
        assert re.search(r"^docs/tutorial.md: \d+ commands, \d+ s, 0 differ$", text, re.MULTILINE)
        assert re.search(r"^tutorial done after \d+ s$", text, re.MULTILINE)
    story, _, checks = text.partition("\ndemo done\n")
    for program in ("vectoradd", "matmul", "reduction"):
        assert f"\nvm01$ {program}\nPASS {program} " in story
    assert "\n# Everything is free again.\n" in story
    assert list_untrue((ROOT / "docs/demo.md").read_text(), story) == []
    if more:
        tested, _, checks = checks.partition("\ntest done\n")
        assert " passed in " in tested
    assert checks.endswith("\npackages done\n")
    # every pin holds for the Python of this Debian
    assert "cannot be had" not in text
    assert "do not fit together" not in text


def list_untrue(page: str, story: str) -> list[str]:
    """Lines of the page's session that the demo does not print: numbers that differ from run to run do not
    count, and ``...`` stands for the rest of a line.
    """
    session = page.partition("```console\n")[2].partition("```")[0].splitlines()
    assert len(session) > 40
    printed = "\n".join(["", *map(_simplify, story.splitlines()), ""])
    lines = [(line, "\n" + _simplify(line.removesuffix("..."))) for line in session]
    return [
        line
        for line, text in lines
        if (text.rstrip() if line.endswith("...") else f"{text}\n") not in printed
    ]


def _simplify(line: str) -> str:
    line = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]+)*\b|[0-9]+(\.[0-9]+)?", "N", line)
    return " ".join(line.removeprefix("host").split())


def test_a_line_that_the_demo_does_not_print_is_found() -> None:
    session = "".join(
        f"$ step {n} of it\n" for n in "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst"
    )
    readme = f"```console\n{session}vm has 3 and ...\nnever printed\n```"
    story = session.replace("$", "host$") + "vm has 4 and more\n"
    assert list_untrue(readme, story) == ["never printed"]


def run_in_fresh_root(log: Path, suite: str, command: str) -> int:
    """Exit status of a shell command in the clone of this project; all it printed goes to ``log``."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [HERE / "fresh_root.sh", suite, command],
            cwd=ROOT, env=os.environ | {"PYTHON": sys.executable},
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            return process.wait()
        finally:
            process.terminate()
            process.wait()
