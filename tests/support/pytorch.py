"""Programs of PyTorch's on a simulated machine: what they need to find, for tests, benchmarks and the demo."""

from __future__ import annotations

import os
from pathlib import Path

from vgpumgr.host.machine import LIB_DIR

ROOT = Path(__file__).resolve().parents[2]
#: trains a network beside the CPU, see its head
TRAIN = "bench/gpu/torch_compiled.py"


def find_pytorch() -> str | None:
    """Where set-up has unpacked it."""
    return os.environ.get("VGPUMGR_PYTORCH")


def torch_env(kept: Path) -> dict[str, str]:
    """Variables of such a program, which keeps what it compiles in ``kept``. Raises KeyError without PyTorch."""
    return {
        "PYTHONPATH": f"{os.environ['VGPUMGR_PYTORCH']}:{ROOT}",
        # Triton compiles for the GPU itself; this assembler leaves it the PTX that the simulated GPU runs
        "TRITON_PTXAS_PATH": str(LIB_DIR / "sim/ptxas"),
        "TRITON_CACHE_DIR": str(kept / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"),
        # others run beside it
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
