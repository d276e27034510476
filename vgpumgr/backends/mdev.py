"""``mdev``: a vGPU that is a mediated device; the domain knows it by its UUID."""

from __future__ import annotations

from vgpumgr.backends.vgpu import VgpuBackend
from vgpumgr.model.slice import Backend as BackendName


class MdevBackend(VgpuBackend):
    """Mediated devices of ``/sys/class/mdev_bus``: NVIDIA before SR-IOV, GVT-g, mtty."""

    name = BackendName.MDEV
