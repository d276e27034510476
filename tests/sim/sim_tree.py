# SPDX-License-Identifier: Apache-2.0
"""A simulated machine's files without the mount: quick, and a call that would sleep says so."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.sim_machine import running
from vgpumgr.sim import machine as machines
from vgpumgr.sim.control import Sleepers, WriteFaults
from vgpumgr.sim.lifecycle import build_tree
from vgpumgr.sim.pcibus import Asleep
from vgpumgr.sim.tree import Directory, File, Link, Node


class SimFiles:
    """Reads and writes files of the machine as a program on the mounted tree would."""

    def __init__(self, name: str, directory: Path) -> None:
        self.directory = directory
        machine = machines.running_machine(name)
        self.tree = build_tree(machine, "boot", directory, WriteFaults(), Sleepers())

    def resolve(self, path: str) -> str:
        """The path without links."""
        done = "/"
        for part in path.strip("/").split("/"):
            here = posixpath.normpath(posixpath.join(done, part))
            node = self.tree.find(here)
            if isinstance(node, Link):
                target = posixpath.join(posixpath.dirname(here), node.target)
                here = self.resolve(posixpath.normpath(target))
            done = here
        return done

    def node(self, path: str) -> Node:
        """The node there, links followed."""
        return self.tree.find(self.resolve(path))

    def read(self, path: str) -> str:
        """An attribute's text without the newline at its end."""
        node = self.node(path)
        assert isinstance(node, File)
        assert node.read is not None
        return node.read().decode().rstrip("\n")

    def write(self, path: str, value: object) -> Asleep | None:
        """Write a line. What it returns is the sleep that the writer is in, if it does not come back at once."""
        node = self.node(path)
        assert isinstance(node, File)
        assert node.write is not None
        try:
            node.write(f"{value}\n".encode())
        except Asleep as asleep:
            return asleep
        return None

    def list(self, path: str) -> list[str]:
        """The names in a directory."""
        node = self.node(path)
        assert isinstance(node, Directory)
        return sorted(node.entries)


@contextmanager
def sim_files(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimFiles]:
    """A machine below ``root`` with the environment of this process pointing to it."""
    with running(name, root, monkeypatch) as directory:
        yield SimFiles(name, directory)


def wake(asleep: Asleep | None) -> bool:
    """Whether the sleeper's condition holds; if so it goes on."""
    assert asleep is not None, "nobody sleeps"
    if not asleep.ready():
        return False
    if asleep.then is not None:
        asleep.then()
    return True


@contextmanager
def refused(number: int) -> Iterator[None]:
    """Expect this error number."""
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == number, caught.value
