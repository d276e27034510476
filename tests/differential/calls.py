"""What sequences are made of: calls of the driver API and the forms of their arguments.

A form is a letter for a number (z size_t, u unsigned, i int, d device, b byte, h short), the kind of an object
(``mem`` is an address in one), ``+kind`` for one that is made, ``-kind`` for one that ends, ``o`` and a form for a
result that is compared, ``x`` for one that is not (free memory, times), ``in`` and ``out`` for memory of the host.
What has no form is a method of ``program.Run``.
"""

from __future__ import annotations

KINDS = ("ctx", "stm", "evt", "mod", "fun", "lib", "ker", "mem", "hst", "pol")

CALLS = {
    # device
    "cuDriverGetVersion": "oi",
    "cuDeviceGet": "oi d",
    "cuDeviceGetCount": "oi",
    "cuDeviceTotalMem_v2": "oz d",
    "cuDeviceGetAttribute": "oi i d",
    "cuDeviceComputeCapability": "oi oi d",
    # contexts
    "cuDevicePrimaryCtxRetain": "+ctx d",
    "cuDevicePrimaryCtxRelease_v2": "d",
    "cuDevicePrimaryCtxGetState": "d ou oi",
    "cuDevicePrimaryCtxSetFlags_v2": "d u",
    "cuCtxCreate_v2": "+ctx u d",
    "cuCtxDestroy_v2": "-ctx",
    "cuCtxPushCurrent_v2": "ctx",
    "cuCtxPopCurrent_v2": "octx",
    "cuCtxSetCurrent": "ctx",
    "cuCtxGetCurrent": "octx",
    "cuCtxGetDevice": "oi",
    "cuCtxSynchronize": "",
    "cuCtxGetFlags": "ou",
    "cuCtxSetFlags": "u",
    "cuCtxGetApiVersion": "ctx ou",
    "cuCtxGetStreamPriorityRange": "oi oi",
    "cuCtxSetLimit": "u z",
    "cuCtxGetLimit": "oz u",
    "cuCtxSetCacheConfig": "u",
    "cuCtxGetCacheConfig": "ou",
    "cuCtxSetSharedMemConfig": "u",
    "cuCtxGetSharedMemConfig": "ou",
    # devices
    "cuMemcpyPeer": "mem ctx mem ctx z",
    # memory
    "cuMemAlloc_v2": "+mem z",
    "cuMemAllocPitch_v2": "+mem oz z z u",
    "cuMemAllocAsync": "+mem z stm",
    "cuMemFree_v2": "-mem",
    "cuMemFreeAsync": "-mem stm",
    "cuMemGetInfo_v2": "xz oz",
    "cuMemsetD8_v2": "mem b z",
    "cuMemsetD16_v2": "mem h z",
    "cuMemsetD32_v2": "mem u z",
    "cuMemsetD8Async": "mem b z stm",
    "cuMemsetD16Async": "mem h z stm",
    "cuMemsetD32Async": "mem u z stm",
    "cuMemsetD2D8_v2": "mem z b z z",
    "cuMemsetD2D16_v2": "mem z h z z",
    "cuMemsetD2D32_v2": "mem z u z z",
    "cuMemsetD2D8Async": "mem z b z z stm",
    "cuMemsetD2D16Async": "mem z h z z stm",
    "cuMemsetD2D32Async": "mem z u z z stm",
    "cuMemHostAlloc": "+hst z u",
    "cuMemFreeHost": "-hst",
    "cuMemHostGetFlags": "xu hst",
    # pools
    "cuDeviceGetDefaultMemPool": "+pol d",
    "cuDeviceGetMemPool": "+pol d",
    "cuDeviceSetMemPool": "d pol",
    "cuMemPoolDestroy": "-pol",
    "cuMemPoolTrimTo": "pol z",
    "cuMemAllocFromPoolAsync": "+mem z pol stm",
    # copies
    "cuMemcpyHtoD_v2": "mem in z",
    "cuMemcpyHtoDAsync_v2": "mem in z stm",
    "cuMemcpyDtoH_v2": "out mem z",
    "cuMemcpyDtoD_v2": "mem mem z",
    "cuMemcpyDtoDAsync_v2": "mem mem z stm",
    # streams and events
    "cuStreamCreate": "+stm u",
    "cuStreamCreateWithPriority": "+stm u i",
    "cuStreamDestroy_v2": "-stm",
    "cuStreamQuery": "stm",
    "cuStreamSynchronize": "stm",
    "cuStreamWaitEvent": "stm evt u",
    "cuStreamGetPriority": "stm oi",
    "cuStreamGetFlags": "stm ou",
    "cuStreamCopyAttributes": "stm stm",
    "cuStreamGetCtx": "stm octx",
    "cuStreamIsCapturing": "stm oi",
    "cuEventCreate": "+evt u",
    "cuEventDestroy_v2": "-evt",
    "cuEventRecord": "evt stm",
    "cuEventRecordWithFlags": "evt stm u",
    "cuEventQuery": "evt",
    "cuEventSynchronize": "evt",
    "cuEventElapsedTime_v2": "xf evt evt",
    # modules and functions
    "cuModuleUnload": "-mod",
    "cuModuleGetFunctionCount": "ou mod",
    "cuModuleGetFunction": "+fun mod str",
    "cuModuleGetGlobal_v2": "+mem oz mod str",
    "cuFuncGetAttribute": "oi i fun",
    "cuFuncSetAttribute": "fun i u",
    "cuFuncSetCacheConfig": "fun u",
    "cuFuncSetSharedMemConfig": "fun u",
    "cuFuncGetParamCount": "fun oz",
    "cuFuncGetParamInfo": "fun z oz oz",
    "cuFuncGetModule": "omod fun",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "oi fun i z u",
    "cuOccupancyAvailableDynamicSMemPerBlock": "oz fun i i",
    "cuLibraryUnload": "-lib",
    "cuLibraryGetKernel": "+ker lib str",
    "cuKernelGetFunction": "+fun ker",
    "cuKernelGetParamCount": "ker oz",
    "cuKernelGetAttribute": "oi i ker d",
    "cuKernelSetAttribute": "i u ker d",
    "cuKernelSetCacheConfig": "ker u d",
    "cuKernelGetParamInfo": "ker z oz oz",
    "cuFuncLoad": "fun",
    "cuFuncIsLoaded": "ou fun",
}

#: by hand: what is made, and what they need
BY_HAND = {
    "cuModuleLoadData": "mod",
    "cuModuleLoadDataEx": "mod",
    "cuLinkComplete": "mod",
    "cuLibraryLoadData": "lib",
    "cuLaunchKernel": "",
    "cuLaunchKernelEx": "",
    "cuOccupancyMaxActiveClusters": "",
    "cuOccupancyMaxPotentialClusterSize": "",
    "cuStreamSetAttribute": "",
    "cuLaunchHostFunc": "",
    "cuMemcpyDtoHAsync_v2": "",
    "cuMemcpy2D_v2": "",
    "cuMemGetAddressRange_v2": "",
    "cuPointerGetAttribute": "",
    "cuMemPoolCreate": "",
    "cuMemPoolGetAttribute": "",
    "cuMemPoolSetAttribute": "",
    "cuMemMap": "",
    "cuStreamBatchMemOp_v2": "",
    "cuTensorMapEncodeTiled": "",
    "cuArray3DCreate_v2": "",
    "cuGraphLaunch": "",
    "cuStreamEndCapture": "",
    "settle": "",
}

#: each with its parameters: p a pointer, u an unsigned number, and bytes of padding by their count
KERNELS = {"fill": "puu", "copy": "ppu", "wide": "p", "huge": "p", "nothing": "", "say": "u"}
PADDING = {"wide": 4000, "huge": 20000}

_FILL = """
.visible .entry fill(.param .u64 a, .param .u32 n, .param .u32 v) {
 .reg .u64 %p<3>; .reg .u32 %r<6>; .reg .pred %q;
 ld.param.u64 %p0, [a]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [v];
 mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
 setp.ge.u32 %q, %r5, %r0; @%q bra end;
 mul.wide.u32 %p1, %r5, 4; add.u64 %p2, %p0, %p1; add.u32 %r1, %r1, %r5; st.global.u32 [%p2], %r1;
end: ret; }
.visible .entry copy(.param .u64 a, .param .u64 b, .param .u32 n) {
 .reg .u64 %p<5>; .reg .u32 %r<6>; .reg .pred %q;
 ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u32 %r0, [n];
 mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
 setp.ge.u32 %q, %r5, %r0; @%q bra end;
 mul.wide.u32 %p2, %r5, 4; add.u64 %p3, %p0, %p2; add.u64 %p4, %p1, %p2;
 ld.global.u32 %r1, [%p4]; st.global.u32 [%p3], %r1;
end: ret; }
.visible .entry nothing() { ret; }
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[9] = {115, 97, 105, 100, 32, 37, 117, 10, 0};
.visible .entry say(.param .u32 a) {
 .local .align 8 .b8 given[8]; .reg .b64 %a, %t; .reg .b32 %n, %r; .reg .u32 %i<2>; .reg .pred %q;
 mov.u32 %i0, %tid.x; mov.u32 %i1, %ctaid.x; or.b32 %i0, %i0, %i1; setp.ne.u32 %q, %i0, 0; @%q bra end;
 ld.param.u32 %n, [a]; mov.u64 %a, given; st.local.u32 [%a], %n; cvta.local.u64 %a, %a;
 mov.u64 %t, text; cvta.global.u64 %t, %t;
 { .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %t; st.param.b64 [v], %a;
   call.uni (r), vprintf, (f, v); }
end: ret; }
"""
_PADDED = """
.visible .entry {name}(.param .u64 a, .param .b8 more[{size}]) {{
 .reg .u64 %p; .reg .u32 %r<2>; ld.param.u64 %p, [a]; ld.param.u32 %r0, [more+{last}];
 st.global.u32 [%p], %r0; ret; }}
"""
_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
IMAGES = {
    "all": _HEAD
    + ".visible .global .align 4 .u32 counter[16];\n"
    + _FILL
    + "".join(_PADDED.format(name=n, size=s, last=s - 4) for n, s in PADDING.items()),
    "empty": _HEAD,
    "damaged": _HEAD + ".visible .entry fill( {",
    "unknown": _HEAD + ".visible .entry odd() { nosuch.u32 %r0, %r1; ret; }",
    "newer": ".version 99.0\n.target sm_80\n.address_size 64\n",
    "nonsense": "this is no program",
}
