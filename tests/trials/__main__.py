"""``python -m tests.trials [WORD...]``: takes each guarantee away in a copy of the tree, and runs its tests there.

Words choose the trials whose guarantee contains one of them. It fails if a test does not notice, or if a change
cannot be made or built: then the table is not true any more. A trial takes about half a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.trials.guarantees import TRIALS, Trial

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".cache", "__pycache__", "build", "_lib", "*.pyc")


class TrialError(Exception):
    """A change that cannot be tried."""


def build(tree: Path) -> None:
    done = subprocess.run(
        ["./run", "python", "-c", ""], cwd=tree, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TrialError(f"the tree does not build:\n{done.stderr[-3000:]}")


def run_tests(tree: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """They pass, or one of them fails; nothing else is an answer."""
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", *tests]
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise TrialError(f"{' '.join(tests)} did not run:\n{done.stdout[-3000:]}")
    return done


def check_unchanged(tree: Path, trials: Sequence[Trial]) -> None:
    """A test that fails anyway would notice nothing."""
    done = run_tests(tree, list(dict.fromkeys(test for trial in trials for test in trial.tests)))
    if done.returncode or " skipped" in done.stdout:
        raise SystemExit(f"the tests do not pass without a change:\n{done.stdout[-3000:]}")


def check_lines(trials: Sequence[Trial]) -> None:
    """The table is of the sources as they are."""
    stale = [t.guarantee for t in trials if t.old not in (ROOT / t.file).read_text()]
    if stale:
        raise SystemExit(f"lines of the table that its sources do not have: {', '.join(stale)}")


def is_noticed(tree: Path, trial: Trial) -> bool:
    path = tree / trial.file
    before = path.read_text()
    path.write_text(before.replace(trial.old, trial.new, 1))
    try:
        if not trial.file.endswith(".py"):
            build(tree)
        return run_tests(tree, trial.tests).returncode == 1
    finally:
        path.write_text(before)


def main(words: list[str]) -> int:
    chosen = [t for t in TRIALS if not words or any(word in t.guarantee for word in words)]
    missed = []
    check_lines(chosen)
    with tempfile.TemporaryDirectory(prefix="vgtrials") as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
        rules = tree / "CMakeLists.txt"
        rules.write_text(
            rules.read_text().replace(" -Werror", "")
        )  # a change may leave something unused
        build(tree)
        check_unchanged(tree, chosen)
        for trial in chosen:
            try:
                found = "noticed" if is_noticed(tree, trial) else "MISSED"
            except TrialError as error:
                found = f"BROKEN {error}"
            print(f"{found}  {trial.guarantee}", flush=True)
            missed += [] if found == "noticed" else [trial.guarantee]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
