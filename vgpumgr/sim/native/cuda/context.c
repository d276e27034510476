/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: their life, and which is current. Primary contexts are in primary.c. */
#include <stdlib.h>

#include "captures.h"
#include "ipc.h"

enum { API_VERSION = 13000, STACK_LIMIT = 1024, FIXED_BASELINE = 64 << 20 };

/*
 * What an empty context takes of the device: a fixed part, and the local memory (stack) of every thread that the device
 * can hold at once, which is what a CUDA context reserves at its default stack limit. A model, not a measurement: on
 * hardware the figure also depends on the driver's version.
 */
static uint64_t baseline(const struct device *dev)
{
	uint64_t stacks = (uint64_t)STACK_LIMIT * (uint64_t)arch_limits(dev)->threads_per_sm * dev->sm_count;

	return (FIXED_BASELINE + stacks + GRANULE - 1) / GRANULE * GRANULE;
}

static void default_limits(struct context *ctx)
{
	ctx->limits[CU_LIMIT_STACK_SIZE] = STACK_LIMIT;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static CUresult occupy(struct context *ctx)
{
	CUresult r = client_attach(ctx->dev);

	if (r != CUDA_SUCCESS)
		return r;
	r = vm_reserve(ctx->dev);
	if (r == CUDA_SUCCESS)
		r = client_charge(ctx->dev, ctx->baseline_bytes);
	if (r != CUDA_SUCCESS)
		client_detach(ctx->dev);
	return r;
}

/* cuda.h of CUDA_ERROR_ILLEGAL_ADDRESS: after such an error the process has to be ended and started again. */
CUresult context_create(struct device *dev, unsigned flags, bool primary, struct context **out)
{
	CUresult r = __atomic_load_n(&dev->lost, __ATOMIC_RELAXED);
	struct context *ctx;

	if (r != CUDA_SUCCESS)
		return r;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ctx = (struct context){ .refs = 1, .dev = dev, .primary = primary, .flags = flags, .api_version = API_VERSION };
	ctx->id = next_id();
	ctx->baseline_bytes = baseline(dev);
	pthread_mutex_init(&ctx->print_lock, NULL);
	default_limits(ctx);
	r = occupy(ctx);
	if (r != CUDA_SUCCESS) {
		context_unref(ctx);
		return r;
	}
	ctx->legacy = queue_create(ctx, CU_STREAM_DEFAULT, 0, true);
	if (!ctx->legacy || handle_add(ctx, HANDLE_CONTEXT)) {
		client_uncharge(dev, ctx->baseline_bytes);
		client_detach(dev);
		context_unref(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ctx->next = drv.contexts;
	drv.contexts = ctx;
	*out = ctx;
	return CUDA_SUCCESS;
}

static void unlink_context(struct context *ctx)
{
	for (struct context **p = &drv.contexts; *p; p = &(*p)->next) {
		if (*p == ctx) {
			*p = ctx->next;
			return;
		}
	}
}

void context_destroy(struct context *ctx)
{
	drv_lock();
	__atomic_store_n(&ctx->destroyed, true, __ATOMIC_RELAXED);
	handle_remove(ctx);
	unlink_context(ctx);
	drv_unlock();
	context_drain(ctx);
	context_flush_print(ctx);
	drv_lock();
	while (ctx->modules)
		module_destroy(ctx->modules);
	event_free_context(ctx);
	array_free_context(ctx);
	texture_free_context(ctx);
	ipc_free_context(ctx);
	while (ctx->streams)
		queue_close(ctx->streams);
	drv_unlock();
	check_context_end(ctx);
	graph_blocks_forget(ctx->id);
	vm_remove_context(ctx);
	client_uncharge(ctx->dev, ctx->baseline_bytes);
	client_detach(ctx->dev);
	drv_lock();
	context_unref(ctx);
	drv_unlock();
}

static CUresult create_current(CUcontext *out, unsigned flags, CUdevice dev)
{
	struct device *d;
	struct context *ctx;
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS)
		return r;
	r = out ? cuda_check_context_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	d = device_find(dev);
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	DRV_LOCKED();
	r = context_create(d, flags, false, &ctx);
	if (r != CUDA_SUCCESS)
		return r;
	*out = (CUcontext)ctx;
	return context_push(ctx) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice dev)
{
	return create_current(out, flags, dev);
}

/* Limits on SMs need MPS, which is not simulated. */
CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int n, unsigned int flags, CUdevice dev)
{
	CUresult r = cuda_check_exec_affinity(params, n);

	return r == CUDA_SUCCESS ? create_current(out, flags, dev) : r;
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	CUresult r = cuda_check_context_params(params);

	return r == CUDA_SUCCESS ? create_current(out, flags, dev) : r;
}

/* The caller holds a reference of its own. */
static void pop_if_current(struct context *ctx)
{
	if (context_current() == ctx) {
		context_pop();
		ctx->refs--;
	}
}

/* A poisoned context can be destroyed; a primary one only reset or released. */
CUresult cuCtxDestroy_v2(CUcontext handle)
{
	struct context *ctx = (struct context *)handle;

	DRIVER_CHECK();
	drv_lock();
	if (!handle_is(ctx, HANDLE_CONTEXT) || ctx->primary) {
		drv_unlock();
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	ctx->refs++;
	handle_remove(ctx);
	drv_unlock();
	context_destroy(ctx);
	drv_lock();
	pop_if_current(ctx);
	context_unref(ctx);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return context_push((struct context *)handle) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	struct context *ctx = context_current();

	DRIVER_CHECK();
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	DRV_LOCKED();
	context_pop();
	if (out)
		*out = (CUcontext)ctx;
	context_unref(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (handle && !handle_is(handle, HANDLE_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (handle && context_current() == (struct context *)handle)
		return CUDA_SUCCESS;
	if (context_current())
		context_unref(context_pop());
	return handle && context_push((struct context *)handle) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	DRIVER_CHECK();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUcontext)context_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	struct context *ctx;
	CUresult r = context_of(handle, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	CAPTURE_SAFE();
	drv_lock();
	r = capture_refuse_context(ctx);
	drv_unlock();
	if (r != CUDA_SUCCESS)
		return r;
	r = context_drain(ctx);
	context_flush_print(ctx);
	return r;
}

CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}
