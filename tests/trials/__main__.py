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
from pathlib import Path

from tests.trials.guarantees import TRIALS, Trial

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".cache", "__pycache__", "build", "_lib", "*.pyc")


def build(tree: Path) -> None:
    done = subprocess.run(
        ["./run", "python", "-c", ""], cwd=tree, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the tree does not build:\n{done.stderr[-3000:]}")


def run_tests(tree: Path, trial: Trial) -> bool:
    """Whether all of its tests pass."""
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", *trial.tests]
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{trial.guarantee}: the tests did not run:\n{done.stdout[-3000:]}")
    return done.returncode == 0


def is_noticed(tree: Path, trial: Trial) -> bool:
    path = tree / trial.file
    before = path.read_text()
    path.write_text(before.replace(trial.old, trial.new, 1))
    try:
        if not trial.file.endswith(".py"):
            build(tree)
        return not run_tests(tree, trial)
    finally:
        path.write_text(before)


def main(words: list[str]) -> int:
    chosen = [t for t in TRIALS if not words or any(word in t.guarantee for word in words)]
    missed = []
    with tempfile.TemporaryDirectory(prefix="vgtrials") as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
        rules = tree / "CMakeLists.txt"
        rules.write_text(
            rules.read_text().replace(" -Werror", "")
        )  # a change may leave something unused
        build(tree)
        for trial in chosen:
            noticed = is_noticed(tree, trial)
            print(f"{'noticed' if noticed else 'MISSED '}  {trial.guarantee}", flush=True)
            missed += [] if noticed else [trial.guarantee]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
