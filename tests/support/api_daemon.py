"""A daemon on fakes, as a process of its own: ``python -m tests.support.api_daemon DIR [SLOW [HANG]]``.

Members of group 70001 administrate, those of 70002 may look. SLOW seconds pass in each channel start. After
HANG seconds a change counts as one that does not end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from tests.support.service import make_bench
from vgpumgr.app.application import Application
from vgpumgr.app.metrics import Collected, MetricsService
from vgpumgr.host.machine import Machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.server import page
from vgpumgr.server.access import Access
from vgpumgr.server.server import HANG_S, _listen, _only_daemon, serve

ADMIN_GID, VIEWER_GID = 70001, 70002


def main() -> None:
    """Serve until SIGTERM."""
    directory = Path(sys.argv[1])
    slow_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    hang_s = float(sys.argv[3]) if len(sys.argv) > 3 else HANG_S
    # a bundle of the test's in the place of the one that was built, or was not
    page.WEB_DIR = directory / "web"
    application = make_application(directory, slow_s)
    access = Access(frozenset({0}), ADMIN_GID, VIEWER_GID)
    with _only_daemon(application.machine), _listen(application.machine) as listener:
        opener = lambda: nullcontext(application)  # noqa: E731
        asyncio.run(serve(application.machine, listener, opener, access, hang_s=hang_s))


def make_application(directory: Path, slow_s: float) -> Application:
    """The application on one board with two VMs, in memory."""
    scene = make_bench(directory)
    start = scene.channels.start

    def start_slowly(spec) -> None:  # type: ignore[no-untyped-def]
        time.sleep(slow_s)
        # for a test that must see it run, however long that test's own programs take
        while (directory / "hold").exists():
            time.sleep(0.05)
        start(spec)

    scene.channels.start = start_slowly  # type: ignore[method-assign]
    machine = Machine(
        "fakes",
        directory,
        directory,
        directory,
        "test:///default",
        config_path=directory / "vgpumgr.toml",
    )
    metrics = MetricsService(lambda _: Collected(), open_statistics(machine.run_dir))
    return Application(machine, scene.service.parts, metrics)


if __name__ == "__main__":
    main()
