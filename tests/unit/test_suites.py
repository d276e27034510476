"""Each test of another project's suite gets an outcome, also one that kills its process or does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.suites import REQUIREMENTS, RUNNER, WAYS, Outcome, read_outcomes, write_table

SUITE = """
import os, time, unittest

class Tests(unittest.TestCase):
    def test_a_passes(self):
        print("said by a test")
    def test_b_fails(self):
        self.assertEqual(1, 2)
    @unittest.skip("not here")
    def test_c_is_skipped(self):
        pass
    def test_d_has_a_part_that_fails(self):
        with self.subTest(part=1):
            self.fail("a part")
    @unittest.expectedFailure
    def test_e_is_expected_to_fail(self):
        self.fail()
    def test_f_{end}(self):
        {code}
    def test_g_is_not_reached(self):
        pass
"""


def run_suite(directory: Path, end: str, code: str) -> list[Outcome]:
    (directory / "foreign.py").write_text(SUITE.format(end=end, code=code))
    done = subprocess.run(
        [sys.executable, RUNNER, "5", "foreign", "not_there"],
        env=os.environ | {"PYTHONPATH": str(directory)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return read_outcomes(done.stdout)


def test_every_test_has_its_outcome(tmp_path: Path) -> None:
    found = run_suite(tmp_path, "ends_the_process", "os.kill(os.getpid(), 9)")
    names = [(one.name.rpartition(".")[2][5:6], one.outcome) for one in found[:6]]
    assert names == [
        ("a", "passed"), ("b", "failed"), ("c", "skipped"), ("d", "failed"), ("e", "passed"), ("f", "ended"),
    ]  # fmt: skip
    assert "1 != 2" in found[1].why
    assert found[2].why == "not here"
    assert found[5].why == "exit status -9"
    # a module that cannot be loaded is one that failed
    assert [one.outcome for one in found[6:]] == ["failed"]


def test_one_that_does_not_end_is_ended(tmp_path: Path) -> None:
    found = run_suite(tmp_path, "sleeps", "time.sleep(60)")
    assert (found[5].outcome, found[5].why) == ("ended", "no end in 5.0 s")


def test_the_table_has_what_did_not_pass() -> None:
    outcomes = [
        Outcome("numba.cuda.tests.a.T.one", "passed", ""),
        Outcome("numba.cuda.tests.a.T.two", "failed", "Traceback\n  File\nValueError: no"),
        Outcome("numba.cuda.tests.a.T.three", "ended", "exit status -11"),
    ]
    text = write_table(dict.fromkeys(WAYS, outcomes))
    assert "| directly | 1 | 1 | 0 | 1 |" in text
    assert text.count("- `a.T.two`: ValueError: no\n") == 2
    assert "- `a.T.three`: exit status -11" in text


def test_every_requirement_is_pinned_and_nvjitlink_is_none() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)
    assert not any("nvjitlink" in line for line in lines)
