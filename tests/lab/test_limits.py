"""Control groups of version 2 on a real kernel: what tests/unit/test_cgroups.py asks of the version that it finds."""

from __future__ import annotations

import sys

from tests.lab.host import LabHost
from vgpumgr.host.machine import LIB_DIR


def test_workers_are_held_by_control_groups_of_version_2(lab_host: LabHost) -> None:
    controllers = lab_host.check("cat /sys/fs/cgroup/cgroup.controllers").split()
    assert {"memory", "pids", "cpu"} <= set(controllers)
    root = LIB_DIR.parents[1]
    # loading the other plugins takes half a minute under emulation
    plugins = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
    run = f"PYTHONPATH={root} {plugins} {sys.executable} -m pytest -p pytest_timeout -q -p no:cacheprovider -rs"
    # the rate of processors is for a machine that has some
    told = lab_host.check(
        f"cd {root} && {run} tests/unit/test_cgroups.py -k 'not proportion'", timeout_s=1800
    )
    assert " passed" in told
    assert "skipped" not in told, told
    assert lab_host.check("ls -d /sys/fs/cgroup/vgpumgr-k-* 2>/dev/null | wc -l") == "0"
