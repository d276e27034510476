"""The helper process that loads NVML: ``python -m vgpumgr.nvml.helper FD``.

Which library it loads is the dynamic linker's choice: LD_LIBRARY_PATH of a simulated machine, else
the driver's.
"""

from __future__ import annotations

import sys

from vgpumgr.host.helper import serve
from vgpumgr.nvml.adapter import Adapter

if __name__ == "__main__":
    serve(int(sys.argv[1]), Adapter())
