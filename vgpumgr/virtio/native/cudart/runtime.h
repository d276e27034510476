/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA runtime on a public driver API: what the parts share.
 *
 * Every public function ends in rt_done(), which keeps the thread's last error; internal functions only return codes.
 * Built once for each major version of the runtime against that version's headers: from 13 on, plain names carry what
 * 12 called _v2, and structures differ.
 */
#ifndef VGPUMGR_CUDART_RUNTIME_H
#define VGPUMGR_CUDART_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define API __attribute__((visibility("default")))
#define MUST_CHECK __attribute__((warn_unused_result))

/* error.c */

/* The runtime's code for a driver's: they agree in number wherever both define one. */
cudaError_t rt_error(CUresult result) MUST_CHECK;
/* Records a failure as this thread's last error and hands it on. */
cudaError_t rt_done(cudaError_t error);
/* Forgets the last error even if it is of the kind that cudaGetLastError() keeps: the context is gone. */
void rt_forget_error(void);

/* context.c */

/* Loads and initialises the driver. */
cudaError_t rt_init(void) MUST_CHECK;
/* As rt_init(), and afterwards some context is current: the caller's own, else its device's primary one. */
cudaError_t rt_enter(void) MUST_CHECK;
/* The driver's handle of a device ordinal, after rt_init(). cudaErrorInvalidDevice: no such device. */
cudaError_t rt_device(int ordinal, CUdevice *out) MUST_CHECK;
/* The ordinal of a driver's device handle, -1 if none. */
int rt_ordinal(CUdevice device);
/* The device that the calling thread works on. */
cudaError_t rt_current_device(CUdevice *out) MUST_CHECK;
/* A device's primary context, activated if need be. */
cudaError_t rt_primary(int ordinal, CUcontext *out) MUST_CHECK;
/* Names the current context for as long as the process lives, as far as the driver can. */
cudaError_t rt_context_key(uint64_t *key) MUST_CHECK;
/* Ends the current device's primary context; `forget` is called with its key before. */
cudaError_t rt_reset(void (*forget)(uint64_t key)) MUST_CHECK;

/* One driver call in a context. */
#define RT_CALL(name, ...)                                                                \
	({                                                                                \
		cudaError_t entered_ = rt_enter();                                        \
		entered_ != cudaSuccess ? entered_ : rt_error(CU(name, ##__VA_ARGS__));   \
	})

/* Streams: `_ptsz` and `_ptds` names mean the calling thread's own default stream where the plain ones mean the legacy one. */
static inline cudaStream_t rt_thread_stream(cudaStream_t stream)
{
	return stream ? stream : cudaStreamPerThread;
}

/* A function with a parameter `stream`, under its two names; `body` is its value. */
#define STREAM_API(name, params, body)            \
	API cudaError_t name params               \
	{                                         \
		return rt_done(body);             \
	}                                         \
	API cudaError_t name##_ptsz params        \
	{                                         \
		stream = rt_thread_stream(stream);\
		return rt_done(body);             \
	}

/* Where an operation on memory goes and whether the caller waits for it. */
struct lane {
	CUstream stream;
	enum { LANE_ASYNC, LANE_LEGACY, LANE_THREAD } wait;
};

static inline struct lane lane_async(cudaStream_t stream)
{
	return (struct lane){ stream, LANE_ASYNC };
}

/* A blocking function, under its two names; `body` uses `lane`. */
#define BLOCKING_API(name, params, body)                                               \
	API cudaError_t name params                                                    \
	{                                                                              \
		const struct lane lane = { NULL, LANE_LEGACY };                        \
		return rt_done(body);                                                  \
	}                                                                              \
	API cudaError_t name##_ptds params                                             \
	{                                                                              \
		const struct lane lane = { CU_STREAM_PER_THREAD, LANE_THREAD };        \
		return rt_done(body);                                                  \
	}

/* A non-blocking function with a parameter `stream`, under its two names; `body` uses `lane`. */
#define ASYNC_API(name, params, body)                                                  \
	API cudaError_t name params                                                    \
	{                                                                              \
		const struct lane lane = lane_async(stream);                           \
		return rt_done(body);                                                  \
	}                                                                              \
	API cudaError_t name##_ptsz params                                             \
	{                                                                              \
		const struct lane lane = lane_async(rt_thread_stream(stream));         \
		return rt_done(body);                                                  \
	}

/* copy.c */
cudaError_t rt_copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, struct lane lane) MUST_CHECK;

/* The driver's form of a copy of several rows. */
cudaError_t rt_lower_copy(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *out) MUST_CHECK;

/* graph.c: a kernel of a graph in the driver's words. */
cudaError_t rt_lower_kernel(const struct cudaKernelNodeParams *params, CUDA_KERNEL_NODE_PARAMS *out) MUST_CHECK;

/* symbol.c: where [offset, offset + count) of a variable is that is copied to, or from. */
cudaError_t rt_to_symbol(const void *symbol, size_t offset, size_t count, enum cudaMemcpyKind kind, void **out) MUST_CHECK;
cudaError_t rt_from_symbol(const void *symbol, size_t offset, size_t count, enum cudaMemcpyKind kind, void **out) MUST_CHECK;

/* registry.c: what nvcc's start-up code registered. Modules are loaded on first use, once for each context. */

/* The function behind a kernel's host stub (or the handle of __cudaGetKernel) in the current context. */
cudaError_t registry_function(const void *host, CUfunction *out) MUST_CHECK;
/* The host stub of a kernel that has been looked up in the current context; the function itself if it is none's. */
const void *registry_host_of(CUfunction function);
/* The kernel's name in the device code. */
cudaError_t registry_function_name(const void *host, const char **out) MUST_CHECK;
bool registry_has_function(const void *host);
/* Address and size of a __device__ or __constant__ variable in the current context. */
cudaError_t registry_variable(const void *host, CUdeviceptr *address, size_t *size) MUST_CHECK;

#endif
