"""The helper process that touches vGPU files: ``python -m vgpumgr.mdev.helper ROOT FD``."""

from __future__ import annotations

import sys
from pathlib import Path

from vgpumgr.host.helper_server import serve
from vgpumgr.host.vgpu_files import VgpuFiles

if __name__ == "__main__":
    serve(int(sys.argv[2]), VgpuFiles(Path(sys.argv[1])))
