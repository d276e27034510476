"""Runs test modules of an installed package and prints what became of each test: ``suite_runner.py SECONDS MODULE...``

It runs in the environment of that package, each module in a process of its own. What did not pass there runs once more
by itself: where one test loses the context of a process, those behind it fail for nothing. A line of JSON for each
test: ``id``, ``outcome`` (passed, failed, skipped, ended: the process did not survive it) and ``why``. Standard library
only.
"""

# ruff: noqa: N802, ARG002 (unittest's names and parameters)
import json
import os
import subprocess
import sys
import unittest
import warnings

#: tests that need more than the machine has: NAME=REASON, a line each
LEFT_OUT = dict(line.split("=", 1) for line in os.environ.get("SUITES_LEFT_OUT", "").splitlines())


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
        if test.id() in LEFT_OUT:
            why = LEFT_OUT[test.id()]
            setattr(test, test.id().rpartition(".")[2], lambda: test.skipTest(why))
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


def list_tests(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from list_tests(one)
        else:
            yield one.id()


def list_here(module):
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in list_tests(unittest.defaultTestLoader.loadTestsFromName(module)):
        print(json.dumps({"id": name}), file=out, flush=True)


def run_process(words, seconds):
    """Its lines, and why it ended."""
    with subprocess.Popen(
        [sys.executable, __file__, *words],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            text, _ = process.communicate(timeout=seconds)
            why = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
            why = f"no end in {seconds} s"
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")], why


def run_apart(name, seconds):
    """In a process of its own; what became of each test, also of the one that it did not survive."""
    lines, why = run_process(["--here", name], seconds)
    done = {line["id"]: line for line in lines if line["outcome"] != "started"}
    if lines and lines[-1]["outcome"] == "started":
        done[lines[-1]["id"]] = lines[-1] | {"outcome": "ended", "why": why}
    return done


def run_module(module, seconds):
    done = run_apart(module, seconds)
    bad = [line for line in done.values() if line["outcome"] in ("failed", "ended")]
    again = [line["id"] for line in bad if not line["why"].startswith("no end")]
    if any(line["outcome"] == "ended" for line in bad):
        listed, _ = run_process(["--list", module], seconds)
        again += [line["id"] for line in listed if line["id"] not in done]
    for name in again if len(done) > 1 else ():
        # what is no test's name is a class or a module that cannot be set up
        done |= {} if "(" in name or name == module else run_apart(name, seconds)
    if not done:
        done[module] = {"id": module, "outcome": "skipped", "why": "no test for what is installed"}
    for line in done.values():
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        run_here(sys.argv[2])
    elif sys.argv[1] == "--list":
        list_here(sys.argv[2])
    else:
        for each in sys.argv[2:]:
            run_module(each, float(sys.argv[1]))
