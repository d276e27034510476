"""How Ansible reaches the container: by its namespaces, and by the directory that both see."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

from tests.systemd.container import Container

DOCUMENTATION = """
name: container
short_description: a container of the tests
description: Commands by nsenter, files by a directory that is seen on both sides.
options:
  directory:
    description: The directory of the container.
    vars: [{name: container_directory}]
  init:
    description: The process that is its first one.
    type: integer
    vars: [{name: container_init}]
"""


class Connection(ConnectionBase):  # type: ignore[misc] # Ansible has no types
    """One task's."""

    transport = "container"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command; its status and both streams."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = subprocess.run(
            self._container().words(cmd), input=in_data or b"", capture_output=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """A file for the container."""
        super().put_file(in_path, out_path)
        with tempfile.TemporaryDirectory(dir=self._container().out) as place:
            shutil.copyfile(in_path, Path(place) / "file")
            self.exec_command(f"cp /out/{Path(place).name}/file '{out_path}'")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """A file of the container's."""
        super().fetch_file(in_path, out_path)
        _, data, _ = self.exec_command(f"cat '{in_path}'")
        Path(out_path).write_bytes(data)

    def close(self) -> None:
        """Nothing stays open between commands."""
        self._connected = False

    def _container(self) -> Container:
        return Container(Path(self.get_option("directory")), self.get_option("init"))
