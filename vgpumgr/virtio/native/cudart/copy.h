/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of copies. */
#ifndef VGPUMGR_CUDART_COPY_H
#define VGPUMGR_CUDART_COPY_H

#include "runtime.h"

/* One end of a copy, as cuda.h's structures describe it: by address space, or an array. */
struct rt_end {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, pitch;
};

struct rt_end rt_source(const void *ptr, enum cudaMemcpyKind kind);
struct rt_end rt_target(void *ptr, enum cudaMemcpyKind kind);
/* A blocking call under its _ptds name is its non-blocking form on the thread's stream, and a wait. */
cudaError_t rt_settle(CUresult result, struct lane lane) MUST_CHECK;

#endif
