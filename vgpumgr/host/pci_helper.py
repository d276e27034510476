"""The helper process that changes PCI functions: ``python -m vgpumgr.host.pci_helper ROOT FD``.

A write may wait for ever: an unbind until the last user closes the device, a number of virtual functions
behind a removal. Each call does all of one change, so that a late one completes it by itself.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vgpumgr.host.files import read_text
from vgpumgr.host.helper_server import HelperFaultError, serve

_BUS = "sys/bus/pci"
_MODPROBE = "/sbin/modprobe"
_ATTEMPTS = 5


class Changes:
    """The calls; ``root`` stands for ``/`` before ``/sys``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_override(self, address: str) -> str | None:
        """What ``driver_override`` says."""
        path = self._device(address) / "driver_override"
        try:
            # what another program has written there need not be text
            text = path.read_text(errors="replace").strip()
        except OSError as error:
            raise _fault(error, path) from error
        return None if text in ("", "(null)") else text

    def bind(self, address: str, driver: str) -> str | None:
        """From whatever driver it has to ``driver``; answers whose it is then."""
        device = self._device(address)
        self._write(device / "driver_override", driver)
        if self._driver(address) != driver:
            self._unbind(address)
            self._probe(address)
        return self._driver(address)

    def release(self, address: str, driver: str | None, override: str | None) -> str | None:
        """To the driver of before (None: to none), with the override of before."""
        self._write(self._device(address) / "driver_override", override or "\n")
        if self._driver(address) != driver:
            self._unbind(address)
            if driver is not None:
                self._probe(address)
            if driver is not None and self._driver(address) is None:
                self._write(self._root / _BUS / "drivers" / driver / "bind", address)
        return self._driver(address)

    def set_vf_count(self, address: str, count: int) -> None:
        """With autoprobe off meanwhile, so that no driver of the host takes the new ones."""
        device = self._device(address)
        autoprobe = device / "sriov_drivers_autoprobe"
        before = autoprobe.read_text().strip() if count and autoprobe.exists() else None
        if before is not None:
            self._write(autoprobe, "0")
        try:
            self._write(device / "sriov_numvfs", str(count))
        finally:
            if before not in (None, "0"):
                self._write(autoprobe, str(before))

    def unbind(self, addresses: Sequence[str]) -> None:
        """Leaves functions without a driver."""
        for address in addresses:
            self._unbind(address)

    def write_attributes(self, address: str, values: Sequence[tuple[str, str]]) -> list[str | None]:
        """Writes attributes below the function's directory in order, and reads them back: None for
        what cannot be read.
        """
        device = self._device(address)
        for name, value in values:
            self._write(device / name, value)
        return [read_text(device / name) for name, _ in values]

    def read_attributes(self, address: str, names: Sequence[str]) -> list[str | None]:
        """Reads attributes; None for what cannot be read."""
        device = self._device(address)
        return [read_text(device / name) for name in names]

    def load_module(self, name: str) -> str | None:
        """modprobe; answers what it complains of, None where it succeeded."""
        if self._root != Path("/"):
            return "modules are loaded on the real machine only"
        try:
            result = subprocess.run(
                [_MODPROBE, "--", name], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return f"{_MODPROBE}: {error.strerror}"
        return None if result.returncode == 0 else result.stderr.strip() or "modprobe failed"

    def run_program(self, path: str, arguments: Sequence[str], repeat_on: str) -> str | None:
        """A vendor's program; returns what it complains of, None where it succeeded. It is run again for
        a few seconds while it complains of ``repeat_on``.
        """
        program = self._root / path.lstrip("/")
        argv = [str(program), *arguments]
        said = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(1)
            try:
                result = subprocess.run(argv, capture_output=True, text=True, check=False)
            except OSError as error:
                return f"{program}: {error.strerror}"
            said = (result.stderr + result.stdout).strip()
            if result.returncode == 0 and repeat_on not in said:
                return None
            if repeat_on not in said:
                return said or f"exit status {result.returncode}"
        return said

    def _device(self, address: str) -> Path:
        return self._root / _BUS / "devices" / address

    def _driver(self, address: str) -> str | None:
        link = self._device(address) / "driver"
        try:
            return link.readlink().name
        except OSError as error:
            if error.errno == errno.ENOENT and self._device(address).exists():
                return None
            raise _fault(error, link) from error

    def _unbind(self, address: str) -> None:
        driver = self._driver(address)
        if driver is None:
            return
        try:
            self._write(self._root / _BUS / "drivers" / driver / "unbind", address)
        except HelperFaultError:
            if self._driver(address) == driver:
                raise  # else another program was quicker

    def _probe(self, address: str) -> None:
        self._write(self._root / _BUS / "drivers_probe", address)

    def _write(self, path: Path, value: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, value.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _fault(error, path, value) from error


def _fault(error: OSError, path: Path, value: str | None = None) -> HelperFaultError:
    data = {
        "errno": error.errno or 0,
        "text": error.strerror or str(error),
        "path": str(path),
        "value": None if value is None else value.strip(),
    }
    return HelperFaultError("sysfs", data)


if __name__ == "__main__":
    serve(int(sys.argv[2]), Changes(Path(sys.argv[1])))
