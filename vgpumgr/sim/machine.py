"""Simulated machines: their data files, and the directory that a running one lives in.

A machine is one TOML file in ``machines/``; what its GPUs are comes from ``data/boards.toml`` and the MIG profile
tables of ``data/mig-profiles.json``. A running machine is a directory of ``$VGPUMGR_SIM_ROOT`` with the state file
that the simulated vendor libraries share, a copy of the data file, and ``root``, where its ``/sys`` is mounted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from pydantic import ValidationError

from vgpumgr.errors import Exit, VgpumgrError
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.host.machine import find_sim_root, make_sim_root
from vgpumgr.sim.machine_model import Board, Machine, MachineFile, MigTables
from vgpumgr.sim.vgpu_model import VgpuTypes

_HERE = Path(__file__).parent
_LIB = _HERE.parent / "_lib"
_STATE = "state"
_DATA = "machine.toml"
_ROOT = "root"
_HOST = "host"
#: paths of sockets below it must stay short
_LONGEST_NAME = 64


class SimulatorError(VgpumgrError):
    """A simulated machine's data is wrong, or its state cannot be made."""

    id = "VG090"


class MachineNotFoundError(SimulatorError):
    """No data file or no running machine has this name."""

    id = "VG091"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class MachineRunsError(SimulatorError):
    """A machine of this name runs already."""

    id = "VG092"
    exit_code = Exit.BUSY
    http_status = 409


class SimulatorPermissionError(SimulatorError):
    """The directory of the simulated machines is another user's."""

    id = "VG093"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


def sim_root() -> Path:
    """The directory of all running machines: ``$VGPUMGR_SIM_ROOT``, else in ``/run`` or ``$XDG_RUNTIME_DIR``."""
    return find_sim_root(os.environ)


def known_machines() -> list[str]:
    """The names of the machines that can be started."""
    return sorted(path.stem for path in (_HERE / "machines").glob("*.toml"))


def load_machine(name: str) -> Machine:
    """The machine of that name from its data file.

    Raises MachineNotFoundError, or SimulatorError where the data is wrong.
    """
    path = _HERE / "machines" / f"{name}.toml"
    if name not in known_machines():
        raise MachineNotFoundError(
            f"no simulated machine is called {name!r}",
            hint=f"one of: {', '.join(known_machines())}",
        )
    return read_machine(path, name)


def read_machine(path: Path, name: str | None = None) -> Machine:
    """The machine of a data file anywhere; its name is the file's unless given. Raises SimulatorError."""
    try:
        data = MachineFile.model_validate(tomllib.loads(path.read_text()))
        boards = {
            board: Board.model_validate(fields)
            for board, fields in tomllib.loads((_HERE / "data/boards.toml").read_text()).items()
        }
        tables = MigTables.model_validate_json((_HERE / "data/mig-profiles.json").read_text())
        vgpus = VgpuTypes.model_validate(
            tomllib.loads((_HERE / "data/vgpu-types.toml").read_text())
        )
        return Machine.build(name or path.stem, data, boards, tables, vgpus)
    except (OSError, ValueError) as err:  # pydantic's and tomllib's errors are ValueErrors
        raise SimulatorError(f"cannot use the machine file {path}", cause=_brief(err)) from err


def _brief(err: Exception) -> str:
    if isinstance(err, ValidationError):
        first = err.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(err)


def machine_directory(name: str) -> Path:
    """Where a running machine of this name lives, whether it runs or not."""
    if not name or "/" in name or name.startswith(".") or len(name) > _LONGEST_NAME:
        raise MachineNotFoundError(f"{name!r} is no name of a machine")
    return sim_root() / name


def create_machine(name: str, data_file: Path | None = None) -> Path:
    """Start a machine: make its directory and state, with all GPUs as after boot. Returns the directory.

    ``data_file``: of a machine that is not among the known ones. Raises MachineRunsError if it runs already.
    """
    machine = read_machine(data_file, name) if data_file else load_machine(name)
    directory = machine_directory(name)
    make_sim_root(os.environ)
    # made aside and renamed: a machine that can be seen is whole
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    try:
        staging.chmod(0o755)
        make_directory(staging / _ROOT)
        # the machine's QEMUs, of whatever user, get through to their sockets
        make_directory(staging / _HOST)
        (staging / _HOST).chmod(0o755)
        source = data_file or _HERE / "machines" / f"{name}.toml"
        replace_file(staging / _DATA, source.read_text(encoding="utf-8"))
        _run_tool("create", staging, lines="".join(f"{line}\n" for line in machine.state_lines()))
        _publish(staging, directory, name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return directory


def _publish(staging: Path, directory: Path, name: str) -> None:
    try:
        staging.rename(directory)
    except OSError as err:
        if not directory.exists():
            raise
        raise MachineRunsError(
            f"the simulated machine {name} runs already", hint=f"vgpumgr sim stop {name}"
        ) from err


def boot_state(directory: Path) -> None:
    """Bring the state of a running machine to what it is after a reboot. Raises SimulatorError."""
    _run_tool("boot", directory)


def set_gpu_field(directory: Path, gpu: int, field: str, value: int) -> None:
    """Change a field of a GPU of a running machine from outside. Raises SimulatorError."""
    _run_tool("set", directory, str(gpu), field, str(value))


def add_event(directory: Path, gpu: int, kind: str, number: int, *instance: int) -> None:
    """Cause an event of a GPU that NVML reports: ``xid``, ``ecc-single`` or ``ecc-double``.

    ``instance``: ids of the GPU instance and the compute instance. Raises SimulatorError.
    """
    _run_tool("event", directory, str(gpu), kind, str(number), *map(str, instance))


def start_clock(directory: Path) -> None:
    """From now on kernels of the machine take device time, until the machine ends. Raises SimulatorError."""
    _run_tool("clock", directory)


def read_device_time(directory: Path) -> dict[int, int]:
    """Nanoseconds that each process has had a GPU's engine, on a machine with a clock. Raises SimulatorError."""
    found: dict[int, int] = {}
    for line in _run_tool("device-time", directory).splitlines():
        pid, _, ns = map(int, line.split())
        found[pid] = found.get(pid, 0) + ns
    return found


def list_clients(directory: Path) -> list[int]:
    """The processes that compute on the machine. Raises SimulatorError."""
    lines = _run_tool("show", directory).splitlines()
    return sorted({int(words[1]) for line in lines if (words := line.split())[0] == "client"})


def _run_tool(*arguments: str | Path, lines: str = "") -> str:
    """What the tool prints. Raises SimulatorError."""
    command = [_LIB / "bin/vgpumgr-simstate", *arguments]
    try:
        return subprocess.run(
            command, input=lines, text=True, capture_output=True, check=True
        ).stdout
    except FileNotFoundError as err:
        raise SimulatorError(
            "the native part of vgpumgr is not built", cause=str(err), hint="./run setup"
        ) from err
    except (OSError, subprocess.CalledProcessError) as err:
        cause = str(getattr(err, "stderr", "") or err).strip()
        what = "create" if arguments[0] == "create" else "change"
        raise SimulatorError(f"cannot {what} the machine's state", cause=cause) from err


def destroy_machine(name: str) -> None:
    """Stop a machine: its state is gone; processes that still use it keep what they have mapped.

    Its ``/sys`` must be unmounted before. Raises MachineNotFoundError if it does not run.
    """
    directory = _find_running(name)
    if os.path.ismount(directory / _ROOT):
        raise SimulatorError(f"{directory / _ROOT} is still mounted")
    (directory / _STATE).unlink()
    shutil.rmtree(directory)


def list_machines() -> list[str]:
    """The names of the machines that run."""
    root = sim_root()
    if not root.is_dir():
        return []
    return sorted(
        path.name
        for path in root.iterdir()
        if not path.name.startswith(".") and (path / _STATE).is_file()
    )


def running_machine(name: str) -> Machine:
    """The data of a machine that runs. Raises MachineNotFoundError if it does not."""
    return read_machine(_find_running(name) / _DATA, name)


def _find_running(name: str) -> Path:
    """The directory of a machine that runs. Raises MachineNotFoundError if it does not."""
    directory = machine_directory(name)
    if not (directory / _STATE).is_file():
        raise MachineNotFoundError(
            f"no simulated machine {name} runs", hint=f"vgpumgr sim start {name}"
        )
    return directory


def machine_env(name: str) -> dict[str, str]:
    """The variables that let any program use the running machine. Raises MachineNotFoundError.

    ``LD_LIBRARY_PATH`` has the simulated vendor libraries first and keeps what the caller's has. Triton's
    assembler is the machine's own, for the simulated driver runs PTX and no machine code.
    """
    directory = _find_running(name)
    mine = str(_LIB / "sim")
    old = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return {
        "VGPUMGR_SIM": str(directory),
        "VGPUMGR_SYSFS_ROOT": str(directory / _ROOT),
        "LD_LIBRARY_PATH": ":".join([mine, *(part for part in old if part and part != mine)]),
        "TRITON_PTXAS_PATH": f"{mine}/ptxas",
        "TRITON_PTXAS_BLACKWELL_PATH": f"{mine}/ptxas",
    }


_FIRST_BUS = 0x10
_FIRST_GROUP = 10


def machine_text(gpus: int, vfs: int, board: str, vgpu: str) -> str:
    """A vGPU host of so many GPUs of a board, each with so many VFs, as TOML.

    ``vgpu`` is ``mdev`` or ``vendor-vfio``. The machine's model checks what does not go together.
    """
    step = (256 - _FIRST_BUS) // max(gpus, 1)
    head = (
        f'description = "Generated: {gpus} x {board}, {vfs} VFs each, {vgpu}"\n'
        'driver_version = "580.95.02"\ncuda_version = "13.0"\n'
        f'kernel = "{"6.1.0-28-amd64" if vgpu == "mdev" else "6.8.0-51-generic"}"\n'
        f'vgpu = "{vgpu}"\n'
    )
    return head + "".join(
        f'\n[[gpu]]\nboard = "{board}"\naddress = "0000:{_FIRST_BUS + index * step:02x}:00.0"\n'
        f"numa_node = {index * 2 // gpus}\niommu_group = {_FIRST_GROUP + index}\n"
        f'cpus = "{index * 8}-{index * 8 + 7}"\npcie_switch = {index}\n'
        + (f"vfs = {vfs}\n" if vfs else "")
        for index in range(gpus)
    )
