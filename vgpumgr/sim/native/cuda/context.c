/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: life, the calling thread's stack of them, settings. Primary contexts are in primary.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

enum { API_VERSION = 13000, STACK_LIMIT = 1024, FIXED_BASELINE = 64 << 20 };

struct stack {
	struct context **items;
	size_t used, size;
};
static _Thread_local struct stack stack;
static pthread_key_t stack_key;
static pthread_once_t stack_once = PTHREAD_ONCE_INIT;

static void thread_end(void *unused)
{
	(void)unused;
	if (drv.forked)
		return; /* the lock may have been held by a thread that is not here */
	stream_forget_thread();
	drv_lock();
	while (stack.used)
		context_unref(stack.items[--stack.used]);
	drv_unlock();
	free(stack.items);
	stack = (struct stack){ 0 };
}

static void make_key(void)
{
	pthread_key_create(&stack_key, thread_end);
}

int context_push(struct context *ctx)
{
	pthread_once(&stack_once, make_key);
	if (stack.used == stack.size) {
		size_t size = stack.size ? stack.size * 2 : 8;
		struct context **items = realloc(stack.items, size * sizeof(struct context *));

		if (!items)
			return -ENOMEM;
		stack = (struct stack){ items, stack.used, size };
	}
	pthread_setspecific(stack_key, &stack);
	stack.items[stack.used++] = ctx;
	ctx->refs++;
	return 0;
}

struct context *context_current(void)
{
	return stack.used ? stack.items[stack.used - 1] : NULL;
}

static CUresult usable(const struct context *ctx)
{
	if (__atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return __atomic_load_n(&ctx->error, __ATOMIC_RELAXED);
}

CUresult context_enter(struct context **out)
{
	CUresult r = driver_check();

	*out = context_current();
	if (r != CUDA_SUCCESS)
		return r;
	return *out ? usable(*out) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_of(CUcontext handle, struct context **out)
{
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS || !handle)
		return r == CUDA_SUCCESS ? context_enter(out) : r;
	DRV_LOCKED();
	*out = (struct context *)handle;
	if (!handle_is(handle, HANDLE_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return usable(*out);
}

void context_poison(struct context *ctx, CUresult error)
{
	if (ctx->error == CUDA_SUCCESS)
		__atomic_store_n(&ctx->error, error, __ATOMIC_RELAXED);
}

void context_print(struct context *ctx, const char *text, size_t length)
{
	struct print_buffer *p = &ctx->print;
	size_t limit = ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE];

	pthread_mutex_lock(&ctx->print_lock);
	if (p->used + length > limit) {
		/* the documented behaviour of a full buffer: the oldest output is lost */
		size_t lost = p->used + length - limit;

		lost = lost < p->used ? lost : p->used;
		memmove(p->text, p->text + lost, p->used - lost);
		p->used -= lost;
	}
	if (p->used + length > p->size) {
		size_t size = (p->used + length) * 2;
		char *grown = realloc(p->text, size);

		p->text = grown ? grown : p->text;
		p->size = grown ? size : p->size;
	}
	if (p->used + length <= p->size) {
		memcpy(p->text + p->used, text, length);
		p->used += length;
	}
	pthread_mutex_unlock(&ctx->print_lock);
}

void context_flush_print(struct context *ctx)
{
	struct print_buffer taken;

	pthread_mutex_lock(&ctx->print_lock);
	taken = ctx->print;
	ctx->print = (struct print_buffer){ 0 };
	pthread_mutex_unlock(&ctx->print_lock);
	if (taken.used) {
		fwrite(taken.text, 1, taken.used, stdout);
		fflush(stdout);
	}
	free(taken.text);
}

static void free_streams(struct dependency **points)
{
	free(*points);
}

CUresult context_drain(struct context *ctx)
{
	CLEANUP(free_streams) struct dependency *points = NULL;
	size_t n = 0, i = 0;

	DRV_LOCKED();
	for (struct stream *s = ctx->streams; s; s = s->next)
		n++;
	points = calloc(n + 1, sizeof(*points));
	if (!points)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct stream *s = ctx->streams; s; s = s->next) {
		s->refs++;
		points[i++] = (struct dependency){ s, s->submitted };
	}
	for (i = 0; i < n; i++) {
		queue_wait(points[i].stream, points[i].seq);
		stream_unref(points[i].stream);
	}
	return ctx->error;
}

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

void context_unref(struct context *ctx)
{
	if (--ctx->refs)
		return;
	pthread_mutex_destroy(&ctx->print_lock);
	free(ctx->print.text);
	free(ctx);
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

CUresult context_create(struct device *dev, unsigned flags, bool primary, struct context **out)
{
	struct context *ctx = calloc(1, sizeof(*ctx));
	CUresult r;

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
	while (ctx->streams)
		queue_close(ctx->streams);
	drv_unlock();
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
	if (!out || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
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
	if (n < 0 || (n && !params))
		return CUDA_ERROR_INVALID_VALUE;
	return n ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create_current(out, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return params ? cuCtxCreate_v3(out, params->execAffinityParams, params->numExecAffinityParams, flags, dev) :
			create_current(out, flags, dev);
}

/* The caller holds a reference of its own. */
static void pop_if_current(struct context *ctx)
{
	if (context_current() == ctx) {
		stack.used--;
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
	stack.used--;
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
	if (stack.used)
		context_unref(stack.items[--stack.used]);
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
	r = context_drain(ctx);
	context_flush_print(ctx);
	return r;
}

CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}
