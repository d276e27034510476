"""The helper process that loads NVML: ``python -m vgpumgr.nvml.helper FD``.

Which library it loads is the dynamic linker's choice: LD_LIBRARY_PATH of a simulated machine, else
the driver's.
"""

from __future__ import annotations

import sys
from types import ModuleType

from vgpumgr.host.helper_server import serve


def _find_library(name: str) -> str | None:
    del sys.modules["ctypes.util"]
    from ctypes.util import find_library

    return find_library(name)


def defer_ctypes_util() -> None:
    """Spares the helper a third of its start: pynvml imports ``find_library``, which it does not call on
    Linux, and with it subprocess, tempfile and shutil. A call loads the real one.
    """
    stand_in = ModuleType("ctypes.util")
    stand_in.find_library = _find_library  # type: ignore[attr-defined]
    sys.modules["ctypes.util"] = stand_in


if __name__ == "__main__":
    defer_ctypes_util()
    from vgpumgr.nvml.adapter import Adapter

    serve(int(sys.argv[1]), Adapter())
