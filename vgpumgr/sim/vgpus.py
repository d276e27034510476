# SPDX-License-Identifier: Apache-2.0
"""The vGPUs in a running machine's state, for the process behind its ``/sys``.

What fits where is decided in ``native/state/vgpu_rules.c``, so that the simulated NVML and the simulated ``/sys`` never
disagree. Refusals are ``OSError`` with the state's error number.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from vgpumgr.model.frozen import dataclass
from vgpumgr.sim.pcibus import refuse

_LIBRARY = Path(__file__).parent.parent / "_lib/sim/libvgpumgr-simstate.so"
_MAX = 1024
_IN_PROGRESS = -115


class _Record(ctypes.Structure):
    """``struct sim_vgpu`` of ``native/simstate.h``."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("gpu", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("vf", ctypes.c_int32),
        ("gi_id", ctypes.c_int32),
        ("placement", ctypes.c_uint32),
        ("removed", ctypes.c_bool),
        ("uuid", ctypes.c_char * 48),
        ("vm", ctypes.c_char * 48),
        ("params", ctypes.c_char * 256),
    )


@dataclass(frozen=True, slots=True)
class Vgpu:
    """A vGPU as it is now."""

    id: int
    gpu: int
    type: int
    """Index of its type among the machine's, as ``type_ids`` has them."""
    vf: int | None
    gi_id: int | None
    placement: int
    removed: bool
    uuid: str
    vm: str
    params: str


class VgpuState:
    """The machine's state file, opened for its vGPUs."""

    def __init__(self, directory: Path) -> None:
        self._lib = _load()
        self._sim = ctypes.c_void_p()
        self._records = (_Record * _MAX)()
        _check(self._lib.sim_open(os.fsencode(directory), ctypes.byref(self._sim)))

    def changes(self) -> int:
        """A number that rises when vGPUs or VFs come or go."""
        return int(self._lib.sim_vgpu_changes(self._sim))

    def list(self) -> list[Vgpu]:
        """All vGPUs, ghosts included."""
        count = _check(self._lib.sim_vgpu_list(self._sim, self._records, _MAX))
        return [_vgpu(record) for record in self._records[:count]]

    def get(self, number: int) -> Vgpu | None:
        """The vGPU with this id, if it still is there."""
        return next((vgpu for vgpu in self.list() if vgpu.id == number), None)

    def available(self, gpu: int, vf: int | None, type_id: int) -> int:
        """How many more of the type can be made here now."""
        return _check(self._lib.sim_vgpu_read_available(self._sim, gpu, _number(vf), type_id))

    def create(self, gpu: int, vf: int | None, type_id: int, uuid: str = "") -> int:
        """Make one; returns its id. Error numbers: ``sim_vgpu_create`` in ``native/simvgpu.h``."""
        return _check(
            self._lib.sim_vgpu_create(self._sim, gpu, _number(vf), type_id, uuid.encode())
        )

    def remove(self, number: int) -> bool:
        """Remove one. False: it is held, and a ghost until it is released."""
        status = self._lib.sim_vgpu_remove(self._sim, number)
        return status != _IN_PROGRESS and _check(status) == 0

    def hold(self, number: int, vm: str) -> None:
        """A VM opens it. EBUSY if another has it."""
        _check(self._lib.sim_vgpu_hold(self._sim, number, vm.encode()))

    def release(self, number: int) -> None:
        """The VM closes it; a ghost is gone then."""
        _check(self._lib.sim_vgpu_release(self._sim, number))

    def set_params(self, number: int, params: str) -> None:
        """Plugin parameters. EBUSY while a VM holds it."""
        _check(self._lib.sim_vgpu_set_params(self._sim, number, params.encode()))

    def set_placement(self, number: int, placement: int) -> None:
        """Move it, in mixed size. EPERM, EINVAL or EIO where that cannot be."""
        _check(self._lib.sim_vgpu_set_placement(self._sim, number, placement))

    def clients(self, gpu: int) -> int:
        """How many processes compute on the GPU."""
        return _check(self._lib.sim_gpu_clients(self._sim, gpu))

    def detach(self, gpu: int, detached: bool) -> None:
        """The driver lets go of the GPU, or takes it: NVML and CUDA know it or do not."""
        _check(self._lib.sim_gpu_detach(self._sim, gpu, detached))

    def set_vfs(self, gpu: int, count: int) -> None:
        """All VFs of the GPU come or go, and everything on them goes. EBUSY while something is used."""
        _check(self._lib.sim_vgpu_set_vfs(self._sim, gpu, count))


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(_LIBRARY))
    sim, u32, i32 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32
    signatures: dict[str, list[type]] = {
        "sim_open": [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)],
        "sim_vgpu_changes": [sim],
        "sim_vgpu_list": [sim, ctypes.POINTER(_Record), u32],
        "sim_vgpu_read_available": [sim, u32, i32, u32],
        "sim_vgpu_create": [sim, u32, i32, u32, ctypes.c_char_p],
        "sim_vgpu_remove": [sim, u32],
        "sim_vgpu_hold": [sim, u32, ctypes.c_char_p],
        "sim_vgpu_release": [sim, u32],
        "sim_vgpu_set_params": [sim, u32, ctypes.c_char_p],
        "sim_vgpu_set_placement": [sim, u32, u32],
        "sim_vgpu_set_vfs": [sim, u32, u32],
        "sim_gpu_clients": [sim, u32],
        "sim_gpu_detach": [sim, u32, ctypes.c_bool],
    }
    for name, arguments in signatures.items():
        getattr(lib, name).argtypes = arguments
    lib.sim_vgpu_changes.restype = ctypes.c_uint64
    if lib.sim_vgpu_size() != ctypes.sizeof(_Record):
        raise OSError("the native part is of another version: struct sim_vgpu differs")
    return lib


def _check(status: int) -> int:
    if status < 0:
        raise refuse(-status)
    return status


def _number(vf: int | None) -> int:
    return -1 if vf is None else vf


def _vgpu(record: _Record) -> Vgpu:
    values = {name: getattr(record, name) for name, _ in record._fields_}
    texts = {name: value.decode() for name, value in values.items() if isinstance(value, bytes)}
    absent = {name: None for name in ("vf", "gi_id") if values[name] < 0}
    return Vgpu(**values | texts | absent)
