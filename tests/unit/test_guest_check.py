"""``vgpumgr-guest-check``, which says in a VM why its programs find no GPU: where each check passes, and where not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.unprivileged import as_nobody
from tests.unit.calls_rig import null_channel
from tests.unit.test_managed_memory import NO_FAULTS
from tests.unit.transport_rig import LIB, Rig
from vgpumgr import __version__
from vgpumgr.virtio.channel import SHIMS

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="has no shims"),
]
PROGRAM = LIB / "guest" / "vgpumgr-guest-check"
PCI = "sys/bus/pci/devices/0000:07:02.0"
PORT = "sys/class/virtio-ports/vport1p1/name"
CUDA = "usr/lib/vgpumgr/libcuda.so.1"
NAMES = [
    "channel",
    "agent",
    "gpu 0",
    "libraries",
    "loader",
    "environment",
    "wheels",
    "managed-memory",
]


@dataclass
class Guest:
    """Files of a VM in a directory, and a channel."""

    root: Path
    env: dict[str, str]
    program: Path = PROGRAM
    before: list[str] = field(default_factory=list)

    def write(self, path: str, text: str) -> Path:
        """A file of the VM."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def remove(self, *paths: str) -> None:
        """Takes files away."""
        for path in paths:
            (self.root / path).unlink()

    def cache(self, *lines: str) -> None:
        """What the VM's ldconfig prints."""
        text = "\n".join(f"\t{line}" for line in lines)
        self.write("sbin/ldconfig", f"#!/bin/sh\ncat <<'E'\n{text}\nE\n").chmod(0o755)

    def run(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """The exit code; result and text of each check."""
        words = [*self.before, str(self.program), "--root", str(self.root)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        found = re.findall(
            r"^(\S+(?: \d+)?) +(ok|warning|problem|skipped) +(.*(?:\n  try: .*)?)$",
            done.stdout,
            re.MULTILINE,
        )
        results = {name: (result, text) for name, result, text in found}
        for result, text in results.values():
            assert ("\n  try: " in text) == (result in ("warning", "problem")), text
        counts = [sum(r == kind for r, _ in results.values()) for kind in ("problem", "warning")]
        last = done.stdout.splitlines()[-1]
        assert [int(word) for word in re.findall(r"\d+", last)] == counts
        return done.returncode, results


@pytest.fixture(scope="module", params=["ring", "serial"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with null_channel(request.param) as found:
        yield found


@pytest.fixture
def guest(rig: Rig, tmp_path: Path) -> Guest:
    dropped = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_AUDIT")
    env = {key: value for key, value in rig.env.items() if key not in dropped}
    made = Guest(tmp_path / "root", env)
    made.write(f"{PCI}/vendor", "0x1af4\n")
    made.write(f"{PCI}/device", "0x1110\n")
    with made.write(f"{PCI}/resource2", "").open("r+b") as memory:
        memory.truncate(64 << 20)
    made.write(PORT, "org.vgpumgr.0\n")
    for name in SHIMS:
        made.write(f"usr/lib/vgpumgr/{name}", "")
        (made.root / "usr/lib/vgpumgr" / name).write_bytes((LIB / "guest" / name).read_bytes())
    made.cache(f"libcuda.so.1 (libc6,x86-64) => {made.root}/{CUDA}")
    return made


def test_a_vm_with_a_gpu_passes(guest: Guest) -> None:
    code, found = guest.run()
    assert code == 0, found
    assert list(found) == NAMES
    assert {result for result, _ in found.values()} == {"ok"}
    text = "0000:07:02.0 (shared memory, 64 MiB), port org.vgpumgr.0"
    assert found["channel"][1] == text
    assert f"the host answers version {__version__}" in found["gpu 0"][1]


def change_version(guest: Guest) -> None:
    """A program, and so a package, of another version than the host's."""
    text = (
        Path(__file__).parents[2] / "vgpumgr/virtio/native/generated/vg_interface.h"
    ).read_text()
    hash_ = bytes(int(word, 16) for word in re.findall(r"0x([0-9a-f]{2})\b", text))
    words = [int(word, 16) for word in re.findall(r"0x([0-9a-f]{16}),", text)]
    first, changed = (word.to_bytes(8, "little") for word in (words[0], words[0] ^ 1))
    program, data = guest.root / "check", PROGRAM.read_bytes()
    assert hash_ in data
    assert first in data
    program.write_bytes(data.replace(hash_, hash_[::-1]).replace(first, changed))
    program.chmod(0o755)
    guest.program = program


def hide(guest: Guest) -> None:
    guest.env["CUDA_VISIBLE_DEVICES"] = ""


def lead_away(guest: Guest) -> None:
    guest.env["LD_LIBRARY_PATH"] = str(guest.write("opt/libcuda.so.1", "").parent)


def forbid_faults(guest: Guest) -> None:
    code = f"import ctypes, os, sys\nfrom ctypes import addressof\n{NO_FAULTS}\nos.execv(sys.argv[1], sys.argv[1:])"
    guest.before = [sys.executable, "-c", code]


def install_wheel(guest: Guest) -> Path:
    """An environment with NVIDIA's wheels is active; returns one of their libraries."""
    library = guest.write(
        "v/lib/python3.13/site-packages/nvidia/cu13/lib/libcublas.so.13", "NVIDIA's"
    )
    guest.env["VIRTUAL_ENV"] = str(guest.root / "v")
    return library


def install_conda(guest: Guest) -> None:
    guest.write("c/lib/libcudart.so.12", "NVIDIA's")
    guest.env["CONDA_PREFIX"] = str(guest.root / "c")


#: what spoils each check; its result, and words of its text
SPOILED: list[tuple[str, Callable[[Guest], object], str, str]] = [
    ("channel", lambda g: g.remove(f"{PCI}/device", PORT), "problem", "no device of a channel"),
    ("channel", lambda g: g.remove(f"{PCI}/resource2", PORT), "problem", "--transport serial"),
    ("agent", lambda g: g.env.update(VGPUMGR_AGENT="/no/where"), "problem", "systemctl enable"),
    ("gpu", lambda g: g.env.update(VGPUMGR_AGENT="/no/where"), "skipped", "needs the agent"),
    ("gpu 0", change_version, "warning", "the host refuses 1 of the "),
    ("libraries", change_version, "problem", "of another version"),
    ("libraries", lambda g: g.remove(CUDA), "problem", "libcuda.so.1 (No such file"),
    ("loader", lambda g: g.cache(), "problem", "as root: ldconfig"),
    ("loader", lambda g: g.cache("libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1"),
     "problem", "another driver first: /usr/lib/libcuda.so.1"),
    ("loader", lambda g: g.remove("sbin/ldconfig"), "skipped", "no ldconfig"),
    ("environment", hide, "problem", "hides all GPUs"),
    ("environment", lead_away, "problem", "another driver"),
    ("wheels", install_wheel, "warning", "NVIDIA's driver: libcublas.so.13\n  try: vgpumgr-guest run PROGRAM"),
    ("wheels", install_conda, "warning", "/c has libraries that need NVIDIA's driver: libcudart.so.12"),
    ("managed-memory", forbid_faults, "warning", "Operation not permitted"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spoil", "result", "text"), SPOILED)
def test_what_is_wrong_is_named(
    guest: Guest, name: str, spoil: Callable[[Guest], object], result: str, text: str
) -> None:
    spoil(guest)
    code, found = guest.run()
    assert (found[name][0], text in found[name][1]) == (result, True), found
    assert code == (3 if "problem" in {result for result, _ in found.values()} else 0)


def test_each_check_has_a_case_in_which_it_does_not_pass() -> None:
    named = {name for name, _, result, _ in SPOILED if result != "skipped"}
    assert named == set(NAMES)


def test_an_environment_whose_libraries_are_replaced_passes(guest: Guest) -> None:
    library = install_wheel(guest)
    guest.env["LD_AUDIT"] = str(LIB / "guest" / "vgpumgr-audit.so")
    assert guest.run()[1]["wheels"][1].startswith("vgpumgr-guest run puts")
    del guest.env["LD_AUDIT"]
    assert guest.run()[1]["wheels"][0] == "warning"
    library.unlink()
    library.symlink_to("/usr/lib/vgpumgr/libcublas.so.13")
    assert guest.run()[1]["wheels"] == (
        "ok",
        f"{guest.root}/v has links to this package's libraries",
    )
    library.unlink()
    assert guest.run()[1]["wheels"] == ("ok", f"{guest.root}/v has no CUDA libraries of its own")


def test_a_driver_of_32_bits_is_not_what_a_program_finds(guest: Guest) -> None:
    ours = f"libcuda.so.1 (libc6,x86-64) => {guest.root}/{CUDA}"
    guest.cache("libcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1", ours)
    assert guest.run()[0] == 0


def test_a_user_who_may_not_connect_is_told(guest: Guest, rig: Rig, tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3], rig.directory):
        path.chmod(0o755)
    rig.socket.chmod(0o600)
    try:
        code, found = as_nobody(guest.run)
    finally:
        rig.socket.chmod(0o666)
    assert (code, found["agent"][0]) == (3, "problem")
    assert "user 65534 may not connect" in found["agent"][1]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--version"], 0, f"vgpumgr-guest-check {__version__}\n"),
        (["--help"], 0, "usage: vgpumgr-guest-check"),
        (["--nosuch"], 2, "usage: vgpumgr-guest-check"),
        (["one", "two"], 2, "usage: vgpumgr-guest-check"),
    ],
)
def test_options(words: list[str], code: int, text: str) -> None:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    shown, other = (done.stderr, done.stdout) if code else (done.stdout, done.stderr)
    assert (done.returncode, shown.startswith(text), other) == (code, True, "")


def test_a_full_disk_is_no_success(guest: Guest) -> None:
    with Path("/dev/full").open("w") as full:
        words = [PROGRAM, "--root", guest.root]
        done = subprocess.run(words, env=guest.env, stdout=full, check=False)
    assert done.returncode == 1
