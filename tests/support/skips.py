"""Skips: a test that is skipped for want of something fails a run with ``--no-skips``."""

from __future__ import annotations

import pytest

from tests.support import sweeps

#: what may be missing where all is set up: these tests are of machines without a driver
EXPECTED_SKIPS = ("this machine has a libcuda.so.1", sweeps.LEFT_OUT)


def list_unexpected_skips(config: pytest.Config) -> list[str]:
    """Where and why; empty without ``--no-skips`` and in xdist's workers."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("--no-skips", default=False):
        return []
    reasons = [(r.nodeid, str(r.longrepr[2])) for r in reporter.stats.get("skipped", ())]
    return [f"{where}: {why}" for where, why in reasons if not why.endswith(EXPECTED_SKIPS)]
