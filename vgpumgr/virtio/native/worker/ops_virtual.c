/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: virtual memory management. Physical memory is charged where it is made, and given back with its handle and its last
 * mapping. What other processes get is in ops_shareable.c.
 */
#include <stdatomic.h>

#include "transport/worker_limits.h"
#include "session.h"
#include "vg_worker.h"

/* What the guest's alignment may be: no driver has larger pages. */
#define MOST_ALIGNMENT (1ull << 40)

static CUresult get_properties(uint32_t ordinal, CUmemAllocationProp *properties)
{
	CUdevice device;
	CUresult r = wk_driver.cuDeviceGet(&device, (int)ordinal);

	*properties = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	if (r == CUDA_SUCCESS)
		properties->location.id = device;
	return r;
}

CUresult wk_do_virtual_granularity(struct wk_call *c, const struct vg_virtual_granularity_request *in,
				   struct vg_virtual_granularity_reply *out)
{
	CUmemAllocationProp properties;
	size_t bytes = 0;
	CUresult r = get_properties(in->ordinal, &properties);

	(void)c;
	if (r == CUDA_SUCCESS && in->option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemGetAllocationGranularity(&bytes, &properties, in->option);
	out->bytes = bytes;
	return r;
}

/* ---- addresses */

CUresult wk_do_virtual_reserve(struct wk_call *c, const struct vg_virtual_reserve_request *in,
			       struct vg_virtual_reserve_reply *out)
{
	CUdeviceptr address = 0;
	CUresult r;

	if (!in->bytes || in->alignment & (in->alignment - 1) || in->alignment > MOST_ALIGNMENT)
		return CUDA_ERROR_INVALID_VALUE;
	if (in->bytes > WK_SPACE_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuMemAddressReserve(&address, in->bytes, in->alignment, in->wish, 0);
	if (r == CUDA_SUCCESS)
		r = wk_space_add(c, address, in->bytes);
	out->address = address;
	return r;
}

CUresult wk_do_virtual_free(struct wk_call *c, const struct vg_virtual_free_request *in)
{
	return wk_space_take(c, in->address, in->bytes);
}

/* ---- memory */

static struct wk_object *new_physical(struct wk_session *s, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
	struct wk_object *o = wk_object_new(WK_PHYSICAL, NULL, (void *)handle, 0);

	if (!o) {
		wk_driver.cuMemRelease(handle);
		wk_refund(WK_PHYSICAL, bytes);
		return NULL;
	}
	o->bytes = bytes;
	o->session = s;
	pthread_mutex_lock(&s->lock);
	s->physical_bytes += bytes;
	wk_account(s);
	pthread_mutex_unlock(&s->lock);
	return o;
}

static CUresult create(struct wk_call *c, uint64_t created, uint64_t bytes, uint32_t ordinal, CUmemAllocationHandleType types)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	struct wk_object *o;
	CUresult r = get_properties(ordinal, &properties);

	properties.requestedHandleTypes = types;
	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_PHYSICAL, bytes);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_PHYSICAL, bytes, WK_WITH_ROOM(wk_driver.cuMemCreate(&handle, bytes, &properties, 0)));
	if (r != CUDA_SUCCESS)
		return r;
	o = new_physical(c->session, handle, bytes);
	return o ? wk_put(c, created, o) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_do_virtual_create(struct wk_call *c, const struct vg_virtual_create_request *in)
{
	return create(c, in->created, in->bytes, in->ordinal, CU_MEM_HANDLE_TYPE_NONE);
}

CUresult wk_do_virtual_create_shareable(struct wk_call *c, const struct vg_virtual_create_shareable_request *in)
{
	return create(c, in->created, in->bytes, in->ordinal, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult wk_do_virtual_release(struct wk_call *c, const struct vg_virtual_release_request *in)
{
	return wk_remove(c, WK_PHYSICAL, in->physical);
}

/* ---- mappings */

CUresult wk_do_virtual_map(struct wk_call *c, const struct vg_virtual_map_request *in)
{
	struct wk_object *physical WK_HELD = NULL, *mapping WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_PHYSICAL, in->physical, &physical);

	if (r == CUDA_SUCCESS && (!in->bytes || in->bytes > physical->bytes))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_mapping_add(c, in->address, in->bytes, physical, &mapping);
	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuMemMap(in->address, in->bytes, 0, (CUmemGenericAllocationHandle)physical->driver, 0);
	if (r == CUDA_SUCCESS)
		mapping->driver = mapping; /* the driver's ends with it */
	else
		wk_mapping_take(c, in->address, in->bytes);
	return r;
}

CUresult wk_do_virtual_unmap(struct wk_call *c, const struct vg_virtual_unmap_request *in)
{
	return wk_mapping_take(c, in->address, in->bytes);
}

/* What is closed is refused from then on; a copy that runs meets it open or the driver's refusal. */
CUresult wk_do_virtual_access(struct wk_call *c, const struct vg_virtual_access_request *in)
{
	CUmemAccessDesc access = { .flags = in->open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE };
	CUmemAllocationProp properties;
	CUresult r = get_properties(in->ordinal, &properties);

	access.location = properties.location;
	if (r == CUDA_SUCCESS)
		r = wk_mapping_hold(c, in->address, in->bytes);
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; !in->open && i < c->spans_count; i++)
		atomic_store(&c->spans[i]->accessible, false);
	r = wk_driver.cuMemSetAccess(in->address, in->bytes, &access, 1);
	for (size_t i = 0; r == CUDA_SUCCESS && in->open && i < c->spans_count; i++)
		atomic_store(&c->spans[i]->accessible, true);
	return r;
}
