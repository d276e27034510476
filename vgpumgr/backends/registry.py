"""The backends, one row each."""

from __future__ import annotations

from vgpumgr.backends.base import Backend
from vgpumgr.backends.forward import ForwardBackend
from vgpumgr.backends.link import LinkBackend
from vgpumgr.backends.passthrough import PassthroughBackend
from vgpumgr.backends.vf import VfBackend
from vgpumgr.backends.vgpu import MdevBackend
from vgpumgr.model.choices import Backend as BackendName

#: in the order in which ``auto`` takes them: the first that matches the profile plans
BACKENDS: tuple[Backend, ...] = (
    ForwardBackend(),
    PassthroughBackend(),
    MdevBackend(),
    VfBackend(),
    LinkBackend(),
)
_BY_NAME = {backend.name: backend for backend in BACKENDS}


def find_backend(name: BackendName) -> Backend:
    """The backend of a request or of an attachment's record."""
    return _BY_NAME[name]
