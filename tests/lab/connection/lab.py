"""How Ansible reaches the lab host: by its third shell, and by the directory that both see."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

from tests.lab.host import KeptShell

DOCUMENTATION = """
name: lab
short_description: the lab host's shell
description: Commands over virtio-serial, files over 9p.
options:
  directory:
    description: The directory of the lab host.
    vars: [{name: lab_directory}]
"""


class Connection(ConnectionBase):  # type: ignore[misc] # Ansible has no types
    """One task's."""

    transport = "lab"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command of any number of lines; its status and both streams."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        place = Path(tempfile.mkdtemp(dir=self._out()))
        (place / "command").write_text(cmd)
        (place / "in").write_bytes(in_data or b"")
        inside = f"/out/{place.name}"
        shell = KeptShell(self._out().parent / "shell.2")
        try:
            done = shell.run(
                f"sh {inside}/command <{inside}/in >{inside}/stdout 2>{inside}/stderr", 600
            )
        finally:
            shell.close()
        read = (place / "stdout").read_bytes(), (place / "stderr").read_bytes()
        shutil.rmtree(place)
        return done.status, *read

    def put_file(self, in_path: str, out_path: str) -> None:
        """A file for the lab host."""
        super().put_file(in_path, out_path)
        descriptor, name = tempfile.mkstemp(dir=self._out())
        os.close(descriptor)
        shutil.copyfile(in_path, name)
        self.exec_command(f"mv /out/{Path(name).name} '{out_path}'")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """A file of the lab host's."""
        super().fetch_file(in_path, out_path)
        _, data, _ = self.exec_command(f"cat '{in_path}'")
        Path(out_path).write_bytes(data)

    def close(self) -> None:
        """Nothing stays open between commands."""
        self._connected = False

    def _out(self) -> Path:
        return Path(self.get_option("directory")) / "out"
