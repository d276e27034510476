"""``vgpumgr-guest``: CUDA libraries of the package in place of those that wheels and conda packages bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.transport_rig import LIB
from vgpumgr.virtio.channel import SHIMS

pytestmark = pytest.mark.native
SCRIPT = Path(__file__).resolve().parents[2] / "templates/guest/vgpumgr-guest"
#: of NVIDIA's wheels in an environment; below ``lib`` of a conda environment they have the same names
WHEELS = (
    "nvidia/cu13/lib/libcublas.so.13",
    "nvidia/cu13/lib/libcufft.so.12",
    "nvidia/nccl/lib/libnccl.so.2",
)
#: the last is not ours to replace: it runs as it is
KEPT = "nvidia/cu13/lib/libnvrtc.so.13"


@dataclass
class Guest:
    """A VM's files in a directory: the package, and an environment with NVIDIA's wheels."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        (self.root / "usr/bin").mkdir(parents=True)
        (self.root / "usr/lib").mkdir()
        shutil.copy(SCRIPT, self.root / "usr/bin")
        (self.root / "usr/lib/vgpumgr").symlink_to(LIB / "guest")
        self.place.mkdir(parents=True)
        (self.venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for name in (*WHEELS, KEPT):
            self.install(name)
        # LD_AUDIT of a test run that is audited itself would be one of two
        self.env.pop("LD_AUDIT", None)

    @property
    def venv(self) -> Path:
        return self.root / "some place/v"

    @property
    def place(self) -> Path:
        return self.venv / "lib/python3.13/site-packages"

    def install(self, name: str) -> None:
        """A library of the vendor's: one that can be loaded, and is not ours."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy(LIB / "sim" / "libcublas.so.13", path)

    def call(
        self, *words: str | Path, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", self.root / "usr/bin/vgpumgr-guest", *words],
            env=env or self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def list_replaced(self) -> set[str]:
        """Those that are links to the package's."""
        return {name for name in WHEELS if self.is_link(name)}

    def is_link(self, name: str) -> bool:
        path = self.place / name
        assert path.exists(), f"{name} is gone"
        return path.is_symlink() and path.resolve() == (LIB / "guest" / path.name).resolve()

    def list_files(self) -> dict[str, bytes]:
        """All files of the environment with what is in them."""
        found = (path for path in self.venv.rglob("*") if not path.is_dir())
        return {str(path.relative_to(self.venv)): path.read_bytes() for path in found}


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(tmp_path)


def test_adopted_and_released_an_environment_is_as_it_was(guest: Guest) -> None:
    before = guest.list_files()
    first = guest.call("adopt", guest.venv)
    assert (first.returncode, first.stderr) == (0, "")
    assert "3 replaced, 0 were before" in first.stdout
    assert guest.list_replaced() == set(WHEELS)
    assert not (guest.place / KEPT).is_symlink()
    assert "0 replaced, 3 were before" in guest.call("adopt", guest.venv).stdout
    assert guest.call("release", guest.venv).stdout.endswith("3 put back\n")
    assert guest.list_files() == before
    assert guest.call("release", guest.venv).stdout == "0 put back\n"


def test_a_wheel_that_is_upgraded_is_adopted_again(guest: Guest) -> None:
    guest.call("adopt", guest.venv)
    guest.install(WHEELS[0])
    assert guest.list_replaced() == set(WHEELS[1:])
    assert "1 replaced, 2 were before" in guest.call("adopt", guest.place).stdout
    assert guest.list_replaced() == set(WHEELS)


def test_a_wheel_that_is_removed_or_upgraded_leaves_nothing_behind(guest: Guest) -> None:
    guest.call("adopt", guest.venv)
    (guest.place / WHEELS[1]).unlink()  # as pip does, which knows nothing of what is beside it
    guest.install(WHEELS[0])
    assert guest.call("release", guest.venv).stdout.endswith("1 put back\n")
    assert sorted(path.name for path in guest.venv.rglob("lib*.so*")) == [
        "libcublas.so.13",
        "libnccl.so.2",
        "libnvrtc.so.13",
    ]
    assert not guest.is_link(WHEELS[0])


def test_links_of_a_package_that_is_gone_are_released(guest: Guest) -> None:
    before = guest.list_files()
    guest.call("adopt", guest.venv)
    (guest.root / "usr/lib/vgpumgr").unlink()
    assert guest.call("adopt", guest.venv).returncode == 3
    assert guest.call("release", guest.venv).returncode == 0
    assert guest.list_files() == before


@pytest.mark.parametrize("step", range(1, 11))
def test_ended_at_any_step_it_loses_no_library(guest: Guest, step: int) -> None:
    """The tools that change files fail from the Nth on, which is what a full disk or a kill leaves."""
    tools = guest.root / "tools"
    tools.mkdir()
    for tool in ("ln", "mv", "cp"):
        real = shutil.which(tool)
        text = f'#!/bin/sh\necho >>{tools}/done\n[ $(wc -l <{tools}/done) -lt {step} ] || exit 1\nexec {real} "$@"\n'
        (tools / tool).write_text(text)
        (tools / tool).chmod(0o755)
    before = guest.list_files()
    done = guest.call("adopt", guest.venv, env=guest.env | {"PATH": f"{tools}:{guest.env['PATH']}"})
    finished = step > 3 * len(WHEELS)
    assert done.returncode == (0 if finished else 3)
    assert ("cannot be replaced" in done.stderr) != finished
    assert len(guest.list_replaced()) == min(3, (step - 1) // 3)
    if step % 2:
        assert guest.call("adopt", guest.venv).returncode == 0
        assert guest.list_replaced() == set(WHEELS)
    assert guest.call("release", guest.venv).returncode == 0
    assert guest.list_files() == before


LOADS = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
names = {line.split(maxsplit=5)[5].rstrip() for line in open("/proc/self/maps") if "/lib" in line}
print(*sorted(names), sep="\\n")
"""


def test_a_program_that_is_run_gets_the_packages_libraries(guest: Guest) -> None:
    """By absolute paths, as PyTorch's and cuda-pathfinder's; what the package does not have is NVIDIA's."""
    paths = [str(guest.place / name) for name in (*WHEELS, KEPT)]
    before = guest.list_files()
    done = guest.call("run", sys.executable, "-c", LOADS, *paths)
    assert (done.returncode, done.stderr) == (0, "")
    mapped = set(done.stdout.splitlines())
    ours = {str((LIB / "guest" / Path(name).name).resolve()) for name in WHEELS}
    assert ours <= mapped
    assert {path for path in mapped if path.startswith(str(guest.venv))} == {
        str(guest.place / KEPT)
    }
    assert guest.list_files() == before
    plain = subprocess.run(
        [sys.executable, "-c", LOADS, *paths], capture_output=True, text=True, check=True
    )
    assert not ours & set(plain.stdout.splitlines())


def test_what_a_program_starts_gets_them_too_and_its_exit_code_is_passed_on(guest: Guest) -> None:
    path = str(guest.place / WHEELS[0])
    words = f"[sys.executable, '-c', {LOADS!r}, {path!r}]"
    code = f"import subprocess, sys; subprocess.run({words}, check=True); sys.exit(7)"
    done = guest.call("run", sys.executable, "-c", code)
    assert done.returncode == 7, done.stderr
    assert str((LIB / "guest/libcublas.so.13").resolve()) in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--help"], 0, "usage: vgpumgr-guest run"),
        ([], 2, "usage: vgpumgr-guest run"),
        (["run"], 2, "usage"),
        (["adopt"], 2, "usage"),
        (["adopt", "a", "b"], 2, "usage"),
        (["remove", "a"], 2, "usage"),
        (["adopt", "/no/where"], 3, "/no/where is no directory\ntry: name the environment"),
        (["adopt", "/usr"], 3, "/usr is no environment: neither pyvenv.cfg nor conda-meta"),
        (["release", "/"], 3, "/ is no environment"),
        (["run", "/no/program"], 127, "/no/program"),
    ],
)  # fmt: skip
def test_wrong_words_change_nothing(guest: Guest, words: list[str], code: int, text: str) -> None:
    done = guest.call(*words)
    assert done.returncode == code, done.stderr
    assert text in (done.stdout if code == 0 else done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="root may write anywhere")
def test_an_environment_of_another_user_is_refused(guest: Guest) -> None:
    for path in (guest.venv, *guest.venv.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    before = guest.list_files()
    words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sh",
        guest.root / "usr/bin/vgpumgr-guest",
    ]
    done = subprocess.run(
        [*words, "adopt", guest.venv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"cannot be replaced\ntry: as the user who owns {guest.venv}" in done.stderr
    assert guest.list_files() == before


def test_overrides_for_uv_leave_out_what_the_package_has() -> None:
    """Each wheel of NVIDIA's whose library is in the package, for CUDA 12 and 13; none of those that run in a guest."""
    lines = (SCRIPT.parent / "uv-overrides").read_text().splitlines()
    found = {line.partition(" ;")[0] for line in lines if not line.startswith("#")}
    assert all(line.endswith('; sys_platform == "never"') for line in lines if line[0] != "#")
    of = {
        "libcudart": "cuda-runtime",
        "libcupti": "cuda-cupti",
        "libcublasLt": "cublas",
        "libnvshmem_host": "nvshmem",
    }
    names = {name.partition(".so")[0] for name in SHIMS} - {
        "libcuda",
        "libnvidia-ml",
        "vgpumgr-audit",
    }
    wheels = {of.get(name, name.removeprefix("lib").lower()) for name in names}
    #: these have a number in both
    numbered = {"cudnn", "cusparselt", "nccl", "nvshmem"}
    wanted = {f"nvidia-{w}-cu12" for w in wheels}
    wanted |= {f"nvidia-{w}-cu13" if w in numbered else f"nvidia-{w}" for w in wheels}
    assert wanted <= found
    assert not {name for name in found if "nvrtc" in name or "nvjitlink" in name}
