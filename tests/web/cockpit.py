"""Debian's Cockpit in namespaces of its own, with the package's page, before the daemon of a scene."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.places import short
from tests.web.scene import ROOT, Scene
from tools import package

#: unpacked by set-up
UNPACKED = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache")) / "cockpit"
#: Cockpit has fixed paths below /usr, and the page has the daemon's socket below /run. ``--local-session`` asks for no
#: password: the session is that of the user who starts it.
ENTER = """\
set -e
mount -t overlay overlay -o "ro,lowerdir=$1/usr:/usr" /usr
mount -t tmpfs tmpfs /run
mkdir /run/vgpumgr /run/home
chown "$6" /run/home
mount --bind "$2" /run/vgpumgr
exec 3<&"$4"
exec env -i LISTEN_PID=$$ LISTEN_FDS=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/run/home \\
    XDG_DATA_DIRS="$3:/usr/share" /usr/lib/cockpit/cockpit-ws --no-tls --local-session="$5"
"""
#: the session of another user, as Cockpit's own login makes it without administrative access
BRIDGE = """\
#!/bin/sh
exec setpriv --reuid={user} --regid={user} {groups} --inh-caps=-all --bounding-set=-all cockpit-bridge "$@"
"""


@contextmanager
def run_cockpit(scene: Scene, user: int = 0, group: int | None = None) -> Iterator[str]:
    """The address of a Cockpit whose menu has the page, as the package installs it, in a session of a user who is in
    one group besides the own one, or in none.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root (namespaces)")
    assert UNPACKED.is_dir(), "Cockpit is not unpacked: ./run setup"
    data = Path(tempfile.mkdtemp(prefix="vgc.", dir=short()))
    package._fill_cockpit(data / "cockpit/vgpumgr")
    bridge = "cockpit-bridge"
    if user:
        data.chmod(0o755)
        groups = "--clear-groups" if group is None else f"--groups={group}"
        (data / "bridge").write_text(BRIDGE.format(user=user, groups=groups))
        (data / "bridge").chmod(0o755)
        bridge = str(data / "bridge")
    log = data / "log"
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as stderr:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", ENTER, "enter",
             str(UNPACKED), f"{scene.env['VGPUMGR_SIM']}/host/run", str(data), str(listener.fileno()), bridge,
             str(user)],
            pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
    try:
        _await_answer(process, address, log)
        yield address
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(data)


def _await_answer(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(OSError), urlopen(address, timeout=10):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
