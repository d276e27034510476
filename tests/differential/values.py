"""Numbers that calls are given: right ones, and wrong or unusual ones; and how often each call is made."""

from __future__ import annotations

from tests.differential.calls import CALLS

SIZES = (1, 2, 4, 60, 256, 1000, 4096, 65536, 300_000)
ODD_SIZES = (0, 1 << 31, 1 << 40, (1 << 64) - 1, (1 << 63) + 1)
NONE = 1_000_000
"""No object has this number."""
ODD_RATE = 0.12
STEPS = 60
IN_CONTEXT = ("stm", "evt", "mod", "fun", "mem", "hst")
#: by form: right ones, and wrong or unusual ones
PLAIN: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "z": (SIZES, ODD_SIZES), "u": ((0,), (1, 2, 77)), "i": ((0, 1), (-1, 77)), "d": ((0,), (99, -1, 100)),
    "b": (tuple(range(256)), (0,)), "h": (tuple(range(256)), (0,)),
}  # fmt: skip
_ATTRIBUTE: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "i": ((0, 1, 2, 3, 4), (7, 77, -1))
}
NUMBERS: dict[str, dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "cuDeviceGetAttribute": {"i": ((1, 2, 10, 13, 16, 75, 76), (0, -1, 9999))},
    "cuCtxSetLimit": {"u": ((0, 1, 2), (99,)), "z": ((1024, 4096, 65536), (0,))},
    "cuCtxGetLimit": {"u": ((0, 1, 2), (99,))},
    "cuCtxSetCacheConfig": {"u": ((0, 1, 2, 3), (4, 77))},
    "cuCtxSetSharedMemConfig": {"u": ((0, 1, 2), (3, 77))},
    "cuFuncSetCacheConfig": {"u": ((0, 1, 2, 3), (4, 77))},
    "cuFuncSetSharedMemConfig": {"u": ((0, 1, 2), (3, 77))},
    "cuStreamCreateWithPriority": {"u": ((0, 1), (2, 77)), "i": ((0, -1, -5, 3), (100,))},
    # what is for the capture of graphs (1) is left to each driver
    "cuEventRecordWithFlags": {"u": ((0,), (2, 77))}, "cuStreamWaitEvent": {"u": ((0,), (2, 77))},
    "cuEventCreate": {"u": ((0, 1, 2, 3), (8, 77))},
    "cuMemHostAlloc": {"u": ((0, 1, 4, 7), (8, 77)), "z": (SIZES, (0,))},
    "cuFuncGetAttribute": _ATTRIBUTE, "cuKernelGetAttribute": _ATTRIBUTE,
    "cuFuncSetAttribute": {"i": ((8, 9), (0, 5, 77, -1)), "u": ((0, 64, 100), (1 << 20, (1 << 32) - 1))},
    "cuKernelSetAttribute": {"i": ((8, 9), (0, 5, 77, -1)), "u": ((0, 64, 100), (1 << 20,))},
    "cuKernelSetCacheConfig": {"u": ((0, 1, 2, 3), (4, 77))},
    "cuKernelGetParamInfo": {"z": ((0, 1, 2), (99,))},
    "cuFuncGetParamInfo": {"z": ((0, 1, 2), (99,))},
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": {
        "i": ((32, 64, 1000), (0, -1, 5000)), "z": ((0, 1000, 40000), (1 << 20,)), "u": ((0, 1), (77,)),
    },
    "cuOccupancyAvailableDynamicSMemPerBlock": {"i": ((1, 2, 32), (0, -1))},
}  # fmt: skip
GOOD = ("all", "empty")
#: programs of their own, of nothing but a seed
OWN = (
    "cuStreamBatchMemOp_v2", "cuTensorMapEncodeTiled", "cuArray3DCreate_v2", "cuGraphLaunch",
    "cuStreamEndCapture",
)  # fmt: skip
WEIGHTS = {
    "cuMemAlloc_v2": 4, "cuLaunchKernel": 8, "cuStreamCreate": 2, "cuEventRecord": 3, "cuModuleLoadData": 2,
    "cuModuleGetFunction": 4, "cuCtxSetCurrent": 2, "cuMemcpyDtoH_v2": 3, "cuMemcpyHtoD_v2": 3,
    "cuDevicePrimaryCtxRelease_v2": 0.5, "cuCtxDestroy_v2": 0.5, "cuCtxPopCurrent_v2": 0.7,
    "cuMemPoolCreate": 2, "cuMemPoolDestroy": 2, "cuMemPoolSetAttribute": 3, "cuMemAllocFromPoolAsync": 2,
    "cuModuleGetFunctionCount": 2,
    "cuModuleUnload": 0.5, "cuStreamDestroy_v2": 0.6, "cuLibraryGetKernel": 3, "cuKernelGetFunction": 3,
    **{name: 2 for name in CALLS if name.startswith(("cuFuncSet", "cuOccupancy", "cuKernel"))},
    "cuMemcpyDtoHAsync_v2": 2, "cuEventElapsedTime_v2": 5, "cuMemMap": 2, "cuArray3DCreate_v2": 2,
    "cuStreamBatchMemOp_v2": 2, "cuMemcpyPeer": 3, "cuStreamWaitEvent": 2,
    "cuEventCreate": 2, "cuEventDestroy_v2": 2, "cuLaunchHostFunc": 2, "cuMemcpy2D_v2": 2, "settle": 0.2,
}  # fmt: skip
