"""Serves a machine's ``/sys`` and ``/proc`` through FUSE, below the machine's ``root`` directory.

One process for each machine, started by ``vgpumgr sim start`` and ended by ``sim stop`` (an unmount). Where FUSE is not
to be had, ``write_snapshot`` leaves the same tree as plain files: it can be read, but it does not behave.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vgpumgr.host.files import make_directory
from vgpumgr.sim.control import Ignored, Sleepers, WriteFaults
from vgpumgr.sim.pcibus import Asleep, refuse
from vgpumgr.sim.tree import Directory, File, Link, MachineTree, Node

PAGE = 4096
"""What sysfs says of every attribute's size, and the most that one write may carry."""

T = TypeVar("T")
_NAP_S = 0.02
_REMEMBERED_S = 3600


class MachineOperations:
    """FUSE operations over a tree. Errors are ``OSError``, which the binding turns into error numbers."""

    use_ns = True

    def __init__(
        self,
        tree: MachineTree,
        faults: WriteFaults | None = None,
        sleepers: Sleepers | None = None,
        caller: Callable[[], int] = os.getpid,
    ) -> None:
        self._tree = tree
        self._faults = faults or WriteFaults()
        self._sleepers = sleepers or Sleepers()
        self._caller = caller
        self._handles = itertools.count(1)
        self._closers: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._started_ns = time.time_ns()

    def _find(self, path: str) -> Node:
        with self._lock:
            return self._tree.find(path)

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, Any]:
        """stat(2)."""
        node = self._find(path)
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), self._started_ns)
        size = PAGE if isinstance(node, File) else len(node.target) if isinstance(node, Link) else 0
        return {
            "st_mode": mode(node),
            "st_nlink": 1,
            "st_size": size,
            "st_uid": 0,
            "st_gid": 0,
        } | times

    def readdir(self, path: str, _fh: int) -> list[str]:
        """The names in a directory."""
        node = self._find(path)
        if not isinstance(node, Directory):
            raise refuse(errno.ENOTDIR)
        return [".", "..", *node.entries]

    def readlink(self, path: str) -> str:
        """A link's target."""
        node = self._find(path)
        if not isinstance(node, Link):
            raise refuse(errno.EINVAL)
        return node.target

    def open(self, path: str, flags: int) -> int:
        """Opens an attribute, if its mode allows what is asked (root included, as sysfs has it)."""
        node = self._find(path)
        if not isinstance(node, File):
            raise refuse(errno.EISDIR)
        access = flags & os.O_ACCMODE
        if (access != os.O_WRONLY and node.read is None) or (
            access != os.O_RDONLY and node.write is None
        ):
            raise refuse(errno.EACCES)
        if node.opened is None:
            return 0
        with self._lock:
            handle = next(self._handles)
            self._closers[handle] = node.opened(self._caller())
        return handle

    def release(self, _path: str, fh: int) -> int:
        """The last descriptor of an open file is closed, or its process ended."""
        with self._lock:
            closer = self._closers.pop(fh, None)
            if closer is not None:
                closer()
        return 0

    def read(self, path: str, size: int, offset: int, _fh: int) -> bytes:
        """An attribute's text."""

        def act() -> bytes:
            node = self._tree.find(path)
            if not isinstance(node, File) or node.read is None:
                raise refuse(errno.EIO)
            return node.read()

        return self._sleeping(act, b"")[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, _fh: int) -> int:
        """One write is one request to the kernel, as in sysfs."""
        if offset or len(data) > PAGE:
            raise refuse(errno.EINVAL)

        def act() -> None:
            node = self._tree.find(path)
            if not isinstance(node, File) or node.write is None:
                raise refuse(errno.EIO)
            self._faults.before_write(path)
            node.write(data)

        with contextlib.suppress(Ignored):
            self._sleeping(act, None)
        return len(data)

    def _sleeping(self, act: Callable[[], T], nothing: T) -> T:
        """Do it under the lock; sleep without the lock where the kernel would, other calls go on meanwhile."""
        asleep: Asleep | None = None
        while True:
            with self._lock:
                try:
                    if asleep is None:
                        return act()
                    if asleep.ready():
                        if asleep.then is not None:
                            asleep.then()
                            return nothing
                        asleep = None
                        continue
                except Asleep as caught:
                    asleep = caught
            with self._sleepers.sleeping(self._caller(), asleep.where):
                self._nap(asleep)

    def _nap(self, asleep: Asleep) -> None:
        while True:
            time.sleep(_NAP_S)
            with self._lock:
                if asleep.ready():
                    return

    def truncate(self, path: str, _length: int, _fh: int | None = None) -> int:
        """``echo x >attribute`` opens with O_TRUNC; sysfs ignores it."""
        self.getattr(path)
        return 0


def mode(node: Node) -> int:
    """The node's type and permission bits."""
    if isinstance(node, Directory):
        return stat.S_IFDIR | 0o755
    if isinstance(node, Link):
        return stat.S_IFLNK | 0o777
    return stat.S_IFREG | node.mode


def available() -> str | None:
    """None if FUSE can be used here, else why not."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    try:
        import mfusepy  # noqa: F401  (a probe: the binding fails to load without libfuse)
    except (ImportError, OSError) as error:
        return str(error)
    return None


def serve(tree: MachineTree, mountpoint: Path, faults: WriteFaults, sleepers: Sleepers) -> None:
    """Mount the tree and serve it until it is unmounted."""
    import mfusepy

    methods = {n: m for n, m in vars(MachineOperations).items() if not n.startswith("_")}
    operations_type = type("Operations", (MachineOperations, mfusepy.Operations), methods)
    mfusepy.FUSE(
        operations_type(tree, faults, sleepers, lambda: int(mfusepy.fuse_get_context()[2])),
        str(mountpoint),
        foreground=True,
        nothreads=False,
        direct_io=True,
        allow_other=os.geteuid() == 0,
        fsname="vgpumgr-sim",
        # The kernel may remember that a name was there: whatever is done with it comes to us all the same, and is
        # refused with ENOENT once it is gone. So a path of ten directories is not ten requests.
        attr_timeout=0,
        entry_timeout=_REMEMBERED_S,
        negative_timeout=0,
    )


def write_snapshot(directory: Directory, target: Path) -> None:
    """The tree as plain files, for where FUSE is missing: readable, but writes change nothing."""
    make_directory(target)
    for name, node in directory.entries.items():
        path = target / name
        if isinstance(node, Directory):
            write_snapshot(node, path)
        elif isinstance(node, Link):
            path.symlink_to(node.target)
        elif node.read is not None:
            path.write_bytes(node.read())
            path.chmod(node.mode)
