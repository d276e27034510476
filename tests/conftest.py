"""What all tests share: golden files, rewritten with ``--regenerate``; skips that fail a run with ``--no-skips``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import sweeps
from tests.support.skips import list_unexpected_skips

# a busy machine is no failure
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")
# what a shell starts in the background ignores Ctrl-C, and so would every program that the tests start and interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = Path(__file__).parent / "golden"


#: what takes longest begins first, so that none of it is left when all else is done
LONGEST = (
    "tests/fresh/", "tests/lab/", "tests/systemd/", "tests/sanitize/", "tests/recovery/test_proof.py",
    "tests/unit/test_packages.py", "tests/unit/test_rpm.py", "tests/unit/test_wheel.py", "tests/recovery/",
    "tests/fuzz/", "tests/sim/test_pytorch.py", "tests/guest/", "tests/api/", "tests/hostile/",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate", action="store_true", help="write the golden files anew; review the diff"
    )
    parser.addoption(
        "--no-skips", action="store_true", help="a test that is skipped for want of something fails"
    )


def has_driver() -> bool:
    """Whether this process has loaded a libcuda: it stays, also in what it forks, so that other tests are no longer of
    machines without a driver.
    """
    if "VGPUMGR_PTX_GPU" in os.environ:
        return False  # tests of PTX on a GPU; see tests/sim/ptx_gpu.py
    return "/libcuda.so" in Path("/proc/self/maps").read_text()


def pytest_configure(config: pytest.Config) -> None:
    # where pytest-xdist does not run, its marks are there all the same
    config.addinivalue_line("markers", "xdist_group(name): pytest-xdist's")


# after those of the directories, which name groups of their own; before pytest-xdist, which writes them into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file that share what they have set up run in one process, which sets it up once."""
    for item in items:
        if not item.get_closest_marker("xdist_group") and shares_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=rank)
    sweeps.place_last(items)


def shares_fixture(item: pytest.Item) -> bool:
    """Whether its module, or the whole run, has a fixture of it that is no test's own; pytest's do not count."""
    found = getattr(item, "_fixtureinfo", None)
    if found is None:
        return False
    return any(
        one.scope in ("module", "session", "package") and one.baseid
        for fixtures in found.name2fixturedefs.values()
        for one in fixtures
    )


def rank(item: pytest.Item) -> int:
    """Where a test stands in a run."""
    for number, name in enumerate(LONGEST):
        if item.nodeid.startswith(name):
            return number
    return len(LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """In xdist's workers: tests of one group share a machine, and must not be spread. The group stands in their ids,
    unless this pytest and this xdist do not go together.
    """
    if has_driver():
        raise pytest.UsageError("a test module loads a libcuda: do that in a process of its own")
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(f"pytest-xdist does not group {item.nodeid}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    sweeps.skip_if_late(item)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if has_driver():
        pytest.fail(f"{item.nodeid} or one before it has loaded a libcuda into this process")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if list_unexpected_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", ())
    if late := [r.nodeid for r in skipped if str(r.longrepr[2]).endswith(sweeps.LEFT_OUT)]:
        terminalreporter.section(f"{len(late)} parts of sweeps left out: {sweeps.LEFT_OUT}")
        for name in late:
            terminalreporter.line(name)
    if found := list_unexpected_skips(terminalreporter.config):
        terminalreporter.section("skipped, but ./run setup should have brought what they need")
        for line in found:
            terminalreporter.line(line, red=True)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text is what ``tests/golden/<name>`` says."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regenerate"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {name}; run pytest --regenerate and review it"
        assert text == path.read_text()

    return check
