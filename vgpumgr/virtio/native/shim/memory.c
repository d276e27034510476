/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory. Addresses are the worker's own; what is allocated is known on both sides. */
#include <stdlib.h>

#include "captures.h"
#include "managed.h"
#include "space.h"

enum { ATTEMPTS = 16 };

/* Addresses that another session has given out, too, or where the program has something: kept until there are others. */
struct held {
	struct held *next;
	uint64_t address;
};

static CUresult remember(const struct shim_range *range)
{
	struct vg_memory_free_request in = { .context = range->context, .address = range->start };
	CUresult r = shim_range_add(SHIM_RANGE_DEVICE, range);

	if (r != CUDA_SUCCESS)
		vg_send_memory_free(&in);
	return r;
}

static CUresult hold(struct held **held, uint64_t context, uint64_t address)
{
	struct vg_memory_free_request in = { .context = context, .address = address };
	struct held *h = malloc(sizeof(*h));

	if (!h) {
		vg_send_memory_free(&in);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*h = (struct held){ *held, address };
	*held = h;
	return CUDA_SUCCESS;
}

static void free_held(struct held *held, uint64_t context)
{
	struct vg_memory_free_request in = { .context = context };

	for (struct held *next; held; held = next) {
		next = held->next;
		in.address = held->address;
		if (in.address)
			vg_send_memory_free(&in);
		free(held);
	}
}

/* Whether its addresses are nobody else's: not another device's, and nothing of the program's own. */
static bool is_unique(const struct shim_range *range, bool *elsewhere)
{
	*elsewhere = shim_range_elsewhere(range->context, range->start, range->bytes);
	return !*elsewhere && shim_space_take(range->start, range->bytes);
}

/*
 * Of another device it must differ. What the program has there may be without end (a sanitizer's shadow) or there is not
 * enough memory to try more: then such addresses are better than none.
 */
CUresult shim_allocate(struct shim_range *range, shim_allocate_fn *allocate, void *what)
{
	struct held *held = NULL, *spared = NULL;
	unsigned attempts = 0;
	bool elsewhere;
	CUresult r;

	while ((r = allocate(what, range)) == CUDA_SUCCESS && !is_unique(range, &elsewhere)) {
		if (!elsewhere && ++attempts == ATTEMPTS)
			break;
		r = hold(&held, range->context, range->start);
		if (r != CUDA_SUCCESS)
			break;
		if (!elsewhere)
			spared = held;
	}
	if (r == CUDA_ERROR_OUT_OF_MEMORY && spared) {
		range->start = spared->address;
		spared->address = 0;
		r = CUDA_SUCCESS;
	}
	free_held(held, range->context);
	return r == CUDA_SUCCESS ? remember(range) : r;
}

bool shim_take_allocation(uint64_t address, struct shim_range *range)
{
	if (!shim_range_find(SHIM_RANGE_DEVICE, address, range) || range->start != address || range->module || range->host ||
	    range->physical || range->opened)
		return false;
	return shim_range_remove(SHIM_RANGE_DEVICE, range);
}

static CUresult allocate(void *in, struct shim_range *got)
{
	struct vg_memory_allocate_reply out;
	CUresult r = vg_send_memory_allocate(in, &out);

	got->start = out.address;
	return r;
}

SHIM_API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct vg_memory_allocate_request in = { .bytes = bytesize };
	struct shim_range got = { .bytes = bytesize };
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS && (!dptr || !bytesize))
		r = CUDA_ERROR_INVALID_VALUE;
	got.context = in.context;
	if (r == CUDA_SUCCESS)
		r = shim_allocate(&got, allocate, &in);
	if (r == CUDA_SUCCESS)
		*dptr = got.start;
	return r;
}

struct pitched {
	struct vg_memory_allocate_pitch_request in;
	uint64_t pitch;
};

static CUresult allocate_pitch(void *what, struct shim_range *got)
{
	struct vg_memory_allocate_pitch_reply out;
	struct pitched *p = what;
	CUresult r = vg_send_memory_allocate_pitch(&p->in, &out);

	got->start = out.address;
	got->bytes = out.pitch * p->in.height;
	p->pitch = out.pitch;
	return r;
}

SHIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				     unsigned int ElementSizeBytes)
{
	struct pitched p = { .in = { .width = WidthInBytes, .height = Height, .element = ElementSizeBytes } };
	struct shim_range got = { 0 };
	CUresult r = shim_enter(&p.in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = cuda_check_alloc_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	got.context = p.in.context;
	if (r == CUDA_SUCCESS)
		r = shim_allocate(&got, allocate_pitch, &p);
	if (r != CUDA_SUCCESS)
		return r;
	*dptr = got.start;
	*pPitch = p.pitch;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct vg_memory_free_request in = { .address = dptr };
	struct graph_block *ended;
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r != CUDA_SUCCESS || !dptr)
		return r;
	if (graph_block_free(dptr, &r, &ended) && !ended)
		return r;
	free(ended);
	if (shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) && range.opened)
		return shim_ipc_close(dptr, true);
	if (!shim_take_allocation(dptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	in.context = range.context;
	if (range.managed) {
		shim_advice_forget(&range);
		return shim_managed_free(&range);
	}
	return vg_send_memory_free(&in);
}

SHIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = range.start;
	if (psize)
		*psize = range.bytes;
	return CUDA_SUCCESS;
}
