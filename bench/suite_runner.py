"""Runs test modules of an installed package and prints what became of each test: ``suite_runner.py SECONDS MODULE...``

It runs in the environment of that package, each module in a process of its own. A line of JSON for each test: ``id``,
``outcome`` (passed, failed, skipped, ended: the process did not survive it) and ``why``. Standard library only.
"""

# ruff: noqa: N802, ARG002 (unittest's names and parameters)
import json
import os
import subprocess
import sys
import unittest
import warnings


class Printed(unittest.TestResult):
    """One line before each test, which may end this process, and one behind."""

    def __init__(self, out):
        super().__init__()
        self.out, self.parts = out, ""

    def put(self, test, outcome, why=""):
        line = {"id": test.id(), "outcome": outcome, "why": why[-800:]}
        print(json.dumps(line), file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.parts = ""
        self.put(test, "started")

    def stopTest(self, test):
        # a part failed: nothing else is said of the whole
        if self.parts:
            self.put(test, "failed", self.parts)
        super().stopTest(test)

    def addSuccess(self, test):
        self.put(test, "passed")

    def addSkip(self, test, reason):
        self.put(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self.put(test, "passed", "as its authors expect, it fails")

    def addUnexpectedSuccess(self, test):
        self.put(test, "failed", "its authors expect that it fails")

    def addSubTest(self, test, subtest, error):
        if error:
            self.parts = self._exc_info_to_string(error, test)

    def addFailure(self, test, error):
        self.put(test, "failed", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        # pytest's way to skip, in a test that unittest runs
        skipped = error[0].__name__ in ("Skipped", "SkipTest")
        why = str(error[1]) if skipped else self._exc_info_to_string(error, test)
        self.put(test, "skipped" if skipped else "failed", why)


def run_here(module):
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print is not for who reads the outcomes
    try:
        tests = unittest.defaultTestLoader.loadTestsFromName(module)
    except Exception as error:
        line = {"id": module, "outcome": "failed", "why": repr(error)}
        print(json.dumps(line), file=out, flush=True)
        return
    tests.run(Printed(out))


def run_apart(module, seconds):
    """In a process of its own; the lines of what it did, and of the test that it did not survive."""
    words = [sys.executable, __file__, "--here", module]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            text, _ = process.communicate(timeout=seconds)
            why = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            why = f"no end in {seconds} s"
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for line in lines:
        if line["outcome"] != "started":
            print(json.dumps(line), flush=True)
    if lines and lines[-1]["outcome"] == "started":
        print(json.dumps(lines[-1] | {"outcome": "ended", "why": why}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        run_here(sys.argv[2])
    else:
        for name in sys.argv[2:]:
            run_apart(name, float(sys.argv[1]))
