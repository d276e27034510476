/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: which is current is known here alone; every frame names the context that it runs in. */
#include <pthread.h>

#include "arrays.h"
#include "captures.h"
#include "hosts.h"
#include "textures.h"

static __thread struct {
	uint64_t current;           /* the top of the stack, or 0 */
	struct shim_object *object; /* its object, in memory that is never freed: alive while its id is this one */
	uint64_t stack[SHIM_CONTEXT_STACK];
	int depth;
} mine;

static struct primary {
	uint64_t id;
	unsigned int references, flags;
} primaries[SHIM_DEVICES_MAX];
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t last_number;

uint64_t shim_current(void)
{
	return mine.current;
}

struct shim_object *shim_current_object(void)
{
	return mine.current ? shim_object_get(SHIM_CONTEXT, mine.current) : NULL;
}

bool shim_uses_contexts(void)
{
	return atomic_load_explicit(&last_number, memory_order_relaxed) > 1;
}

uint64_t shim_context_on(const struct shim_range *mapping)
{
	const struct shim_object *o = shim_current_object();
	uint32_t at = 0;

	while (!o || o->ctx.device != mapping->device) {
		o = shim_object_next(SHIM_CONTEXT, mapping->physical, &at);
		if (!o)
			return 0;
	}
	return o->context;
}

/* After each change of the stack. */
static void note_current(void)
{
	mine.current = mine.depth ? mine.stack[mine.depth - 1] : 0;
	mine.object = shim_current_object();
	shim_channel_note(mine.current);
}

CUresult shim_enter_current(uint64_t *context)
{
	struct shim_object *o = mine.object;

	*context = mine.current;
	if (!*context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!o || atomic_load_explicit(&o->id, memory_order_acquire) != *context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return (CUresult)atomic_load_explicit(&o->ctx.broken, memory_order_relaxed);
}

CUresult shim_enter(uint64_t *context)
{
	CUresult r = shim_ready();

	return r == CUDA_SUCCESS && context ? shim_enter_current(context) : r;
}

/* The codes that the driver API documents as leaving the process in an inconsistent state. */
static bool sticky(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
		return true;
	default:
		return false;
	}
}

void shim_note(unsigned channel, CUresult result)
{
	struct shim_object *o;
	int none = CUDA_SUCCESS;

	if (!sticky(result))
		return;
	o = shim_current_object();
	if (o && shim_channel_of(o->context) == channel)
		atomic_compare_exchange_strong(&o->ctx.broken, &none, result);
}

CUresult shim_lost(uint64_t context)
{
	const struct shim_object *o = shim_object_get(SHIM_CONTEXT, context);

	return o ? (CUresult)atomic_load_explicit(&o->ctx.broken, memory_order_relaxed) : CUDA_SUCCESS;
}

static CUresult live(CUcontext ctx, struct shim_object **object)
{
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	*object = ctx ? shim_object_get(SHIM_CONTEXT, (uint64_t)ctx) : shim_current_object();
	return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult create(CUdevice dev, unsigned int flags, bool primary, uint64_t *id)
{
	SHIM_TURN(turn, shim_turn_to(dev));
	struct vg_context_create_request in = { .ordinal = turn.ordinal, .flags = flags, .primary = primary };
	struct vg_context_create_reply out;
	const struct shim_device *d;
	struct shim_object *o;
	CUresult r = shim_device(dev, &d);

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_CONTEXT, 0, id);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	in.created = *id;
	r = vg_send_context_create(&in, &out);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_CONTEXT, *id);
		return r;
	}
	o->context = *id;
	o->ctx.device = dev;
	o->ctx.flags = flags;
	o->ctx.primary = primary;
	o->ctx.api_version = out.api_version;
	o->ctx.least_priority = out.least_priority;
	o->ctx.greatest_priority = out.greatest_priority;
	cuda_stream_attributes_init(&o->ctx.default_stream, 0);
	o->ctx.number = atomic_fetch_add(&last_number, 1) + 1;
	atomic_store(&o->ctx.broken, CUDA_SUCCESS);
	shim_object_publish(o, *id);
	return CUDA_SUCCESS;
}

static CUresult destroy(uint64_t id)
{
	struct vg_context_destroy_request in = { .target = id };
	struct shim_object *o = shim_object_get(SHIM_CONTEXT, id);
	CUresult r;

	if (!o || !shim_object_retire(o, id))
		return CUDA_ERROR_INVALID_CONTEXT;
	r = vg_send_context_destroy(&in);
	graph_blocks_forget(id);
	shim_range_forget(SHIM_RANGE_DEVICE, id);
	shim_object_forget(SHIM_FUNCTION, id, shim_function_free);
	shim_object_forget(SHIM_MODULE, id, NULL);
	shim_object_forget(SHIM_MATH, id, NULL);
	shim_object_forget(SHIM_GRAPH_EXEC, id, shim_hosts_drop);
	shim_object_forget(SHIM_GRAPH, id, shim_hosts_drop);
	shim_texture_forget(id);
	shim_object_forget(SHIM_MIPMAP, id, shim_array_free);
	shim_object_forget(SHIM_ARRAY, id, shim_array_free);
	shim_capture_forget(id, 0);
	shim_capture_next_forget(id, 0);
	shim_object_forget(SHIM_EVENT, id, NULL);
	shim_object_forget(SHIM_STREAM, id, NULL);
	shim_object_recycle(SHIM_CONTEXT, id);
	return r;
}

static CUresult push(uint64_t id)
{
	if (mine.depth == SHIM_CONTEXT_STACK)
		return CUDA_ERROR_INVALID_CONTEXT;
	mine.stack[mine.depth++] = id;
	note_current();
	return CUDA_SUCCESS;
}

static void drop_current(void)
{
	mine.depth--;
	note_current();
}

/* ---- primary contexts */

SHIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = pctx ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;
	struct primary *p;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&primary_lock);
	p = &primaries[dev];
	if (!p->id)
		r = create(dev, p->flags, true, &p->id);
	if (r == CUDA_SUCCESS) {
		p->references++;
		*pctx = (CUcontext)p->id;
	} else {
		p->id = 0;
	}
	pthread_mutex_unlock(&primary_lock);
	return r;
}

static CUresult end_primary(CUdevice dev, bool all)
{
	const struct shim_device *d;
	CUresult r = shim_device(dev, &d);
	struct primary *p;
	uint64_t id = 0;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&primary_lock);
	p = &primaries[dev];
	if (!p->references && !all)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (all)
		p->references = 0;
	else
		p->references--;
	if (r == CUDA_SUCCESS && !p->references) {
		id = p->id;
		p->id = 0;
	}
	pthread_mutex_unlock(&primary_lock);
	return id ? destroy(id) : r;
}

SHIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return end_primary(dev, false);
}

SHIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return end_primary(dev, false);
}

SHIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return end_primary(dev, true);
}

SHIM_API CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return end_primary(dev, true);
}

SHIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	const struct shim_device *d;
	CUresult r = cuda_check_context_flags(flags);
	struct shim_object *o;

	if (r == CUDA_SUCCESS)
		r = shim_device(dev, &d);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&primary_lock);
	primaries[dev].flags = flags;
	o = shim_object_get(SHIM_CONTEXT, primaries[dev].id);
	if (o)
		o->ctx.flags = flags;
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

SHIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	const struct shim_device *d;
	CUresult r = flags && active ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&primary_lock);
	*flags = primaries[dev].flags;
	*active = primaries[dev].id != 0;
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

/* ---- contexts of the program's own */

SHIM_API CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	uint64_t id;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = pctx ? cuda_check_context_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = create(dev, flags, false, &id);
	if (r != CUDA_SUCCESS)
		return r;
	*pctx = (CUcontext)id;
	return push(id);
}

SHIM_API CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
				 unsigned int flags, CUdevice dev)
{
	CUresult r = cuda_check_exec_affinity(paramsArray, numParams);

	return r == CUDA_SUCCESS ? cuCtxCreate_v2(pctx, flags, dev) : r;
}

SHIM_API CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
				 CUdevice dev)
{
	CUresult r = cuda_check_context_params(ctxCreateParams);

	return r == CUDA_SUCCESS ? cuCtxCreate_v2(pctx, flags, dev) : r;
}

SHIM_API CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct shim_object *o;
	CUresult r = ctx ? live(ctx, &o) : CUDA_ERROR_INVALID_CONTEXT;

	if (r != CUDA_SUCCESS)
		return r;
	if (o->ctx.primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (shim_current() == (uint64_t)ctx)
		drop_current();
	return destroy((uint64_t)ctx);
}

SHIM_API CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

SHIM_API CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	if (!pctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)shim_current();
	return *pctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

SHIM_API CUresult cuCtxDetach(CUcontext ctx)
{
	struct shim_object *o;

	return ctx ? live(ctx, &o) : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- which context is current */

SHIM_API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	struct shim_object *o;
	CUresult r = ctx ? live(ctx, &o) : CUDA_ERROR_INVALID_CONTEXT;

	return r == CUDA_SUCCESS ? push((uint64_t)ctx) : r;
}

SHIM_API CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

SHIM_API CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!mine.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (pctx)
		*pctx = (CUcontext)mine.current;
	drop_current();
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

SHIM_API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	struct shim_object *o;
	CUresult r = ctx ? live(ctx, &o) : shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx) {
		if (mine.depth)
			drop_current();
		return CUDA_SUCCESS;
	}
	if (!mine.depth)
		return push((uint64_t)ctx);
	mine.stack[mine.depth - 1] = (uint64_t)ctx;
	note_current();
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && !pctx)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pctx = (CUcontext)shim_current();
	return r;
}

/* ---- what is known of a context */

SHIM_API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	struct shim_object *o;
	CUresult r = live(ctx, &o);

	if (r == CUDA_SUCCESS && !device)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*device = o->ctx.device;
	return r;
}

SHIM_API CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

SHIM_API CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct shim_object *o;
	CUresult r = live(NULL, &o);

	if (r == CUDA_SUCCESS && !flags)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*flags = o->ctx.flags;
	return r;
}

SHIM_API CUresult cuCtxSetFlags(unsigned int flags)
{
	struct shim_object *o;
	CUresult r = live(NULL, &o);

	if (r == CUDA_SUCCESS)
		r = cuda_check_context_flags(flags);
	if (r == CUDA_SUCCESS)
		o->ctx.flags = flags;
	return r;
}

SHIM_API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	struct shim_object *o;
	CUresult r = live(ctx, &o);

	if (r == CUDA_SUCCESS && !ctxId)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*ctxId = o->ctx.number;
	return r;
}

SHIM_API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	struct shim_object *o;
	CUresult r = live(ctx, &o);

	if (r == CUDA_SUCCESS && !version)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*version = o->ctx.api_version;
	return r;
}

SHIM_API CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	struct shim_object *o;
	CUresult r = live(NULL, &o);

	if (r != CUDA_SUCCESS)
		return r;
	if (leastPriority)
		*leastPriority = o->ctx.least_priority;
	if (greatestPriority)
		*greatestPriority = o->ctx.greatest_priority;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuCtxSynchronize(void)
{
	struct vg_cuCtxSynchronize_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = vg_send_cuCtxSynchronize(&in);
	return r == CUDA_SUCCESS ? shim_lost(in.context) : r;
}

SHIM_API CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	struct vg_cuCtxSynchronize_request in;
	struct shim_object *o;
	CUresult r = live(ctx, &o);

	if (r != CUDA_SUCCESS)
		return r;
	in.context = o->context;
	r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = vg_send_cuCtxSynchronize(&in);
	return r == CUDA_SUCCESS ? shim_lost(in.context) : r;
}

SHIM_API CUresult cuCtxResetPersistingL2Cache(void)
{
	struct shim_object *o;

	return live(NULL, &o); /* no access policy is forwarded, so no line persists */
}

SHIM_API CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int flags)
{
	struct shim_object *o;
	CUcontext current = NULL;
	CUresult r = cuda_check_peer_access(peerContext, flags);

	if (r == CUDA_SUCCESS)
		r = live(peerContext, &o);
	if (r == CUDA_SUCCESS)
		r = cuCtxGetCurrent(&current);
	if (r == CUDA_SUCCESS && current == peerContext)
		r = CUDA_ERROR_INVALID_CONTEXT;
	return r == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : r;
}

SHIM_API CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	struct shim_object *o;
	CUresult r = peerContext ? live(peerContext, &o) : CUDA_ERROR_INVALID_CONTEXT;

	return r == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : r;
}
