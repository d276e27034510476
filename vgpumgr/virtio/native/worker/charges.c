/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's objects cost the VM: see worker_limits.h. What is charged is given back where the driver's object ends. */
#include <pthread.h>

#include "transport/worker_limits.h"
#include "session.h"
#include "vg_worker.h"

/* Of the kinds that are counted; all others cost memory only. */
static bool is_counted(enum wk_kind kind, enum vg_limit *what)
{
	static const enum vg_limit counts[] = {
		[WK_CONTEXT] = VG_LIMIT_CONTEXTS,
		[WK_STREAM] = VG_LIMIT_STREAMS,
		[WK_EVENT] = VG_LIMIT_EVENTS,
		[WK_MODULE] = VG_LIMIT_MODULES,
	};

	if (kind > WK_MODULE)
		return false;
	*what = counts[kind];
	return true;
}

/* What is on its way back is waited for, before this is a refusal. */
static bool charge(enum vg_limit what, uint64_t amount)
{
	bool granted = vg_charge_quietly(what, amount);

	if (!granted) {
		wk_frees_wait();
		granted = vg_charge_quietly(what, amount); /* also where the last end was between the two */
	}
	while (!granted && what == VG_LIMIT_DEVICE_MEMORY && wk_freed_wait())
		granted = vg_charge_quietly(what, amount);
	return granted || vg_charge(what, amount);
}

CUresult wk_charge(enum wk_kind kind, uint64_t bytes)
{
	enum vg_limit what;

	if (bytes && !charge(VG_LIMIT_DEVICE_MEMORY, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!is_counted(kind, &what) || charge(what, 1))
		return CUDA_SUCCESS;
	if (bytes)
		vg_refund(VG_LIMIT_DEVICE_MEMORY, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void wk_refund(enum wk_kind kind, uint64_t bytes)
{
	enum vg_limit what;

	if (is_counted(kind, &what))
		vg_refund(what, 1);
	if (bytes)
		vg_refund(VG_LIMIT_DEVICE_MEMORY, bytes);
}

void wk_account(struct wk_session *s)
{
	vg_lane_account(s->lane, s->ledger.bytes + s->physical_bytes);
}

/* ---- by hand: what tells of the device's memory, and what takes some of it for a context */

CUresult wk_do_cuMemGetInfo_v2(struct wk_call *c, const struct vg_cuMemGetInfo_v2_request *in,
			       struct vg_cuMemGetInfo_v2_reply *out)
{
	uint64_t limit = vg_limit(VG_LIMIT_DEVICE_MEMORY), used;
	size_t free_bytes = 0, total = 0;
	CUresult r;

	(void)c;
	(void)in;
	wk_frees_wait();
	r = wk_driver.cuMemGetInfo_v2(&free_bytes, &total);
	out->free = free_bytes;
	out->total = total;
	if (limit >= total)
		return r;
	used = vg_limit_used(VG_LIMIT_DEVICE_MEMORY);
	out->total = limit;
	if (used > limit)
		used = limit;
	if (out->free > limit - used)
		out->free = limit - used;
	return r;
}

/* Saturated: a driver has refused so much long before. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
	uint64_t result;

	return __builtin_mul_overflow(a, b, &result) ? VG_UNLIMITED / 2 : result;
}

static uint64_t count_threads(void)
{
	int processors = 0, threads = 0;
	CUdevice device;

	if (wk_driver.cuDeviceGet(&device, 0) != CUDA_SUCCESS)
		return 0;
	wk_driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	wk_driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
	return (uint64_t)processors * (uint64_t)threads;
}

/* What a context takes for a value of that limit: heap and printf's buffer once, a stack for each resident thread. */
static uint64_t cost(uint32_t limit, uint64_t value)
{
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		return value;
	return limit == CU_LIMIT_STACK_SIZE ? multiply(value, count_threads()) : 0;
}

static CUresult set_limit(struct wk_object *context, uint32_t limit, uint64_t value)
{
	uint64_t before, after = cost(limit, value), more;
	size_t old = 0;
	CUresult r = wk_driver.cuCtxGetLimit(&old, limit);

	before = r == CUDA_SUCCESS ? cost(limit, old) : 0;
	more = after > before ? after - before : 0;
	r = more ? wk_charge(WK_MEMORY, more) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MEMORY, more, wk_driver.cuCtxSetLimit(limit, value));
	if (r != CUDA_SUCCESS)
		return r;
	context->bytes += more;
	/* less than what it was made with is not given back: that is in WK_CONTEXT_BYTES */
	if (before > after && before - after <= context->bytes - WK_CONTEXT_BYTES) {
		wk_refund(WK_MEMORY, before - after);
		context->bytes -= before - after;
	}
	return r;
}

/* One at a time: what a limit was is read before it is changed. */
CUresult wk_do_cuCtxSetLimit(struct wk_call *c, const struct vg_cuCtxSetLimit_request *in)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	CUresult r;

	pthread_mutex_lock(&one);
	r = set_limit(c->context, in->limit, in->value);
	pthread_mutex_unlock(&one);
	return r;
}
