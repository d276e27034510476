/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management. It is of devices, not of contexts. What is reserved and mapped is known here, so a wrong call is
 * refused here; the worker checks it all once more. Under one lock, calls included, so that the worker gets them in the order
 * in which they were decided.
 */
#include <pthread.h>

#include "shareable.h"
#include "space.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { ATTEMPTS = 16 };
#define FAR (UINT64_C(1) << 42)
static _Atomic uint64_t granularities[SHIM_DEVICES_MAX][2]; /* least and recommended; 0: not asked for yet */

static void unlock(int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&lock);
}
#define LOCKED() __attribute__((cleanup(unlock))) int locked_ = (pthread_mutex_lock(&lock), 0); (void)locked_

/* ---- memory */

static CUresult get_granularity(CUdevice device, CUmemAllocationGranularity_flags option, size_t *bytes)
{
	SHIM_TURN(turn, shim_turn_to(device));
	struct vg_virtual_granularity_request in = { .ordinal = turn.ordinal, .option = option };
	struct vg_virtual_granularity_reply out;
	const struct shim_device *d;
	CUresult r = shim_device(device, &d);

	if (r != CUDA_SUCCESS)
		return r;
	*bytes = granularities[device][option];
	if (*bytes)
		return CUDA_SUCCESS;
	r = vg_send_virtual_granularity(&in, &out);
	if (r == CUDA_SUCCESS && !out.bytes)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS)
		granularities[device][option] = *bytes = out.bytes;
	return r;
}

SHIM_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
						CUmemAllocationGranularity_flags option)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_granularity(granularity, prop, option);
	return r == CUDA_SUCCESS ? get_granularity(prop->location.id, option, granularity) : r;
}

/* Ends a handle's making: on failure the worker has nothing under it. */
static CUresult publish(CUresult r, struct shim_object *o, uint64_t id, const struct shim_object *made)
{
	if (o && r != CUDA_SUCCESS)
		shim_object_recycle(SHIM_PHYSICAL, id);
	if (r != CUDA_SUCCESS)
		return r;
	o->physical = made->physical;
	shim_object_publish(o, id);
	return CUDA_SUCCESS;
}

/* Some allocators always ask for memory that they could share. Where there is none, they get what they will hardly share. */
static CUresult create(uint64_t bytes, const CUmemAllocationProp *prop, CUmemGenericAllocationHandle *handle)
{
	const CUdevice device = prop->location.id;
	struct shim_object made = { .physical = { .device = device, .bytes = bytes, .handles = 1,
						  .handle_types = prop->requestedHandleTypes } };
	SHIM_TURN(turn, shim_turn_to(device));
	struct vg_virtual_create_request in = { .bytes = bytes, .ordinal = turn.ordinal };
	struct vg_virtual_create_shareable_request shareable = { .bytes = bytes, .ordinal = turn.ordinal };
	struct shim_object *o = shim_object_new(SHIM_PHYSICAL, 0, &in.created);
	CUresult r = o ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;

	shareable.created = in.created;
	if (o && prop->requestedHandleTypes && shim_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		r = vg_send_virtual_create_shareable(&shareable);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		r = vg_send_virtual_create(&in);
	r = publish(r, o, in.created, &made);
	if (r == CUDA_SUCCESS)
		*handle = in.created;
	return r;
}

SHIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			      unsigned long long flags)
{
	size_t granularity;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = handle && !flags ? cuda_check_physical(prop) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = get_granularity(prop->location.id, CU_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity);
	if (r == CUDA_SUCCESS && (!size || size % granularity))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? create(size, prop, handle) : r;
}

/* The memory of a handle that the program has not released. */
static struct shim_object *find_physical(CUmemGenericAllocationHandle handle)
{
	struct shim_object *o = shim_object_get(SHIM_PHYSICAL, handle);

	return o && o->physical.handles ? o : NULL;
}

/* A handle keeps its number as long as anything is mapped: a program may ask for it again. */
static CUresult end_unused(struct shim_object *o, uint64_t id)
{
	struct vg_virtual_release_request in = { .physical = id };
	CUresult r;

	if (o->physical.handles || o->physical.mappings || !shim_object_retire(o, id))
		return CUDA_SUCCESS;
	r = vg_send_virtual_release(&in);
	shim_object_recycle(SHIM_PHYSICAL, id);
	return r;
}

SHIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	o = find_physical(handle);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	o->physical.handles--;
	return end_unused(o, handle);
}

SHIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	const struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	o = find_physical(handle);
	if (!prop || !o)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = o->physical.handle_types,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	prop->location.id = o->physical.device;
	return CUDA_SUCCESS;
}

/* ---- between processes */

SHIM_API CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					       CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct vg_virtual_export_request in = { .physical = handle };
	struct vg_virtual_export_reply out;
	const struct shim_object *o;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_export(shareableHandle, handleType, flags);
	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	o = find_physical(handle);
	if (!o || !o->physical.handle_types)
		return CUDA_ERROR_INVALID_VALUE;
	if (o->physical.imported) /* it is its maker's to hand on */
		return CUDA_ERROR_NOT_SUPPORTED;
	shim_ipc_begin();
	SHIM_TURN(turn, shim_turn_to_channel(shim_channel_of(handle)));
	r = vg_send_virtual_export(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	return shim_shareable_make(SHIM_SHAREABLE_PHYSICAL, o->physical.device, handle, out.token, out.token_length, shareableHandle);
}

static CUresult import(const struct shim_shareable *from, CUdevice device, CUmemGenericAllocationHandle *handle)
{
	struct shim_object made = { .physical = { .device = device, .handles = 1, .imported = true,
						  .handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } };
	SHIM_TURN(turn, shim_turn_to(device));
	struct vg_virtual_import_request in = { .token = { from->token, sizeof(from->token) } };
	struct vg_virtual_import_reply out = { 0 };
	struct shim_object *o = shim_object_new(SHIM_PHYSICAL, 0, &in.created);
	CUresult r = o ? shim_shareable_result(vg_send_virtual_import(&in, &out)) : CUDA_ERROR_OUT_OF_MEMORY;

	made.physical.bytes = out.bytes;
	r = publish(r, o, in.created, &made);
	if (r == CUDA_SUCCESS)
		*handle = in.created;
	return r;
}

/* What this process has exported is not imported once more: its handle counts one more. */
static CUresult import_own(const struct shim_shareable *from, CUmemGenericAllocationHandle *handle)
{
	struct shim_object *o = shim_object_get(SHIM_PHYSICAL, from->id);

	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	o->physical.handles++;
	*handle = from->id;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
						 CUmemAllocationHandleType shHandleType)
{
	struct shim_shareable from;
	CUdevice device;
	bool own;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_import(handle, osHandle, shHandleType, 0);
	if (r == CUDA_SUCCESS)
		r = shim_shareable_read(osHandle, SHIM_SHAREABLE_PHYSICAL, &from, &device, &own);
	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	shim_ipc_begin();
	return own ? import_own(&from, handle) : import(&from, device, handle);
}

/* ---- addresses: of the device that the thread works on, until something of another one is mapped there */

/*
 * Those that another device or the program has, too, are kept until there are others: behind all of the device's, if it can
 * be. Where there are none, the program's are better than none.
 */
static CUresult reserve(const struct vg_virtual_reserve_request *in, unsigned attempts, uint64_t *address)
{
	struct vg_virtual_free_request undo = { .bytes = in->bytes };
	struct vg_virtual_reserve_request again = *in;
	struct vg_virtual_reserve_reply out;
	bool elsewhere;
	CUresult r = vg_send_virtual_reserve(in, &out);

	if (r != CUDA_SUCCESS)
		return r;
	*address = undo.address = out.address;
	elsewhere = shim_range_elsewhere(0, out.address, in->bytes);
	if (!elsewhere && shim_space_take(out.address, in->bytes))
		return CUDA_SUCCESS;
	again.wish = elsewhere ? shim_range_elsewhere(0, out.address, FAR) : 0;
	r = attempts > 1 ? reserve(&again, attempts - 1, address) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS && !elsewhere) {
		*address = out.address;
		return CUDA_SUCCESS;
	}
	vg_send_virtual_free(&undo);
	return r;
}

/* Reserved addresses go to another device, as long as nothing is mapped there: the same ones, or it is refused. */
static CUresult move_space(struct shim_range *space, unsigned channel)
{
	struct vg_virtual_reserve_request in = { .bytes = space->bytes, .wish = space->start };
	struct vg_virtual_free_request old = { .address = space->start, .bytes = space->bytes }, wrong = old;
	struct vg_virtual_reserve_reply out;
	struct shim_range removed = *space;
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;

	if (shim_range_any(SHIM_RANGE_DEVICE, space->start, space->bytes))
		return r;
	SHIM_TURN(turn, shim_turn_to_channel(channel));
	r = vg_send_virtual_reserve(&in, &out);
	wrong.address = out.address;
	if (r == CUDA_SUCCESS && out.address != space->start) {
		vg_send_virtual_free(&wrong);
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (r != CUDA_SUCCESS)
		return r;
	shim_range_remove(SHIM_RANGE_RESERVED, &removed);
	r = shim_range_add(SHIM_RANGE_RESERVED, space);
	SHIM_TURN(back, shim_turn_to_channel(removed.channel));
	vg_send_virtual_free(&old);
	return r;
}

SHIM_API CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				      unsigned long long flags)
{
	struct vg_virtual_reserve_request in = { .bytes = size, .alignment = alignment, .wish = addr };
	struct vg_virtual_free_request undo = { .bytes = size };
	struct shim_range range = { .bytes = size };
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_reserve(ptr, size, alignment, addr, flags);
	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	r = reserve(&in, ATTEMPTS, &range.start);
	if (r != CUDA_SUCCESS)
		return r;
	undo.address = range.start;
	r = shim_range_add(SHIM_RANGE_RESERVED, &range);
	if (r == CUDA_SUCCESS)
		*ptr = range.start;
	else
		vg_send_virtual_free(&undo);
	return r;
}

/* Whether the range consists of whole mappings, without gaps. */
static bool is_mapped(uint64_t address, uint64_t bytes)
{
	struct shim_range range;

	if (!bytes)
		return false;
	for (; bytes; address += range.bytes, bytes -= range.bytes) {
		if (!shim_range_find(SHIM_RANGE_DEVICE, address, &range) || !range.physical || range.start != address ||
		    range.bytes > bytes)
			return false;
	}
	return true;
}

SHIM_API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct vg_virtual_free_request in = { .address = ptr, .bytes = size };
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	if (!shim_range_find(SHIM_RANGE_RESERVED, ptr, &range) || range.start != ptr || range.bytes != size ||
	    shim_range_any(SHIM_RANGE_DEVICE, ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	shim_range_remove(SHIM_RANGE_RESERVED, &range);
	SHIM_TURN(turn, shim_turn_to_channel(range.channel));
	return vg_send_virtual_free(&in);
}

/* ---- mappings */

static CUresult map(struct shim_object *o, uint64_t address, uint64_t bytes, uint64_t id)
{
	struct shim_range range = { .start = address, .bytes = bytes, .physical = id, .device = o->physical.device };
	struct vg_virtual_map_request in = { .address = address, .bytes = bytes, .physical = id };
	struct vg_virtual_unmap_request undo = { .address = address, .bytes = bytes };
	SHIM_TURN(turn, shim_turn_to_channel(shim_channel_of(id)));
	CUresult r = vg_send_virtual_map(&in);

	if (r != CUDA_SUCCESS)
		return r;
	r = shim_range_add(SHIM_RANGE_DEVICE, &range);
	if (r == CUDA_SUCCESS)
		o->physical.mappings++;
	else
		vg_send_virtual_unmap(&undo);
	return r;
}

SHIM_API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			   unsigned long long flags)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct shim_object *o;
	struct shim_range space;
	size_t granularity;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	o = find_physical(handle);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	r = get_granularity(o->physical.device, CU_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity);
	if (r == CUDA_SUCCESS)
		r = cuda_check_map(ptr, size, offset, granularity, flags);
	if (r != CUDA_SUCCESS)
		return r;
	if (size > o->physical.bytes || !shim_range_find(SHIM_RANGE_RESERVED, ptr, &space) ||
	    size > space.bytes - (ptr - space.start) ||
	    shim_range_any(SHIM_RANGE_DEVICE, ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (space.channel != shim_channel_of(handle)) {
		r = move_space(&space, shim_channel_of(handle));
		if (r == CUDA_ERROR_NOT_SUPPORTED)
			return shim_unsupported("cuMemMap of several devices' memory to one range of addresses", &told);
	}
	return r == CUDA_SUCCESS ? map(o, ptr, size, handle) : r;
}

static CUresult unmap(const struct shim_range *range)
{
	struct vg_virtual_unmap_request in = { .address = range->start, .bytes = range->bytes };
	struct shim_object *o = shim_object_get(SHIM_PHYSICAL, range->physical);
	SHIM_TURN(turn, shim_turn_to_channel(range->channel));
	CUresult r = vg_send_virtual_unmap(&in), end = CUDA_SUCCESS;

	if (o) {
		o->physical.mappings--;
		end = end_unused(o, range->physical);
	}
	return r == CUDA_SUCCESS ? end : r;
}

/* Whether no mapping is cut by the range's ends. */
static bool is_uncut(unsigned channel, uint64_t address, uint64_t bytes)
{
	struct shim_range range;

	return !(shim_range_last(SHIM_RANGE_DEVICE, channel, address, 1, &range) && range.start != address) &&
	       !(shim_range_last(SHIM_RANGE_DEVICE, channel, address + bytes - 1, 1, &range) &&
		 range.start + range.bytes != address + bytes);
}

/* Addresses where nothing is mapped may be among them, as with the driver. */
SHIM_API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct shim_range space, range;
	size_t granularity;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	if (!shim_range_find(SHIM_RANGE_RESERVED, ptr, &space))
		return CUDA_ERROR_INVALID_VALUE;
	/* a channel's first device has its number, and all of a channel map the same units */
	r = get_granularity((CUdevice)space.channel, CU_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity);
	if (r == CUDA_SUCCESS)
		r = cuda_check_mappable(ptr, size, granularity);
	if (r == CUDA_SUCCESS && !is_uncut(space.channel, ptr, size))
		r = CUDA_ERROR_INVALID_VALUE;
	while (r == CUDA_SUCCESS && shim_range_last(SHIM_RANGE_DEVICE, space.channel, ptr, size, &range)) {
		if (!range.physical) /* allocated, behind the reserved addresses */
			size = range.start - ptr;
		else if (shim_range_remove(SHIM_RANGE_DEVICE, &range))
			r = unmap(&range);
		else
			r = CUDA_ERROR_UNKNOWN;
	}
	return r;
}

static CUresult set_access(const struct shim_range *range, bool open)
{
	SHIM_TURN(turn, shim_turn_to(range->device));
	struct vg_virtual_access_request in = { .address = range->start, .bytes = range->bytes,
						.ordinal = turn.ordinal, .open = open };
	CUresult r = open == range->accessible ? CUDA_SUCCESS : vg_send_virtual_access(&in);

	if (r == CUDA_SUCCESS)
		shim_range_open(range, open);
	return r;
}

/* `change` false: only checks. */
static CUresult set_all(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc, size_t count, bool change)
{
	CUresult r = CUDA_SUCCESS;
	struct shim_range range;
	uint32_t devices;

	r = shim_device_count(&devices);
	for (uint64_t end = address + bytes; r == CUDA_SUCCESS && address < end; address += range.bytes) {
		struct cuda_reach reach;

		shim_range_find(SHIM_RANGE_DEVICE, address, &range);
		reach = (struct cuda_reach){ range.device, (int)devices, UINT32_C(1) << range.device,
					     (uint32_t)range.accessible << range.device };
		r = cuda_set_mapped_access(desc, count, &reach);
		if (r == CUDA_SUCCESS && change)
			r = set_access(&range, reach.access);
	}
	return r;
}

SHIM_API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	if (!is_mapped(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	r = set_all(ptr, size, desc, count, false);
	return r == CUDA_SUCCESS ? set_all(ptr, size, desc, count, true) : r;
}

static bool find_mapping(uint64_t address, struct shim_range *range)
{
	return shim_range_find(SHIM_RANGE_DEVICE, address, range) && range->physical;
}

SHIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	struct shim_range range;
	uint32_t devices = 0;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_device_count(&devices);
	if (r == CUDA_SUCCESS)
		r = cuda_check_access_place(flags, location, (int)devices);
	if (r != CUDA_SUCCESS)
		return r;
	if (!find_mapping(ptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.accessible && location->id == range.device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
								     CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct shim_object *o;
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	o = handle && find_mapping((uint64_t)addr, &range) ? shim_object_get(SHIM_PHYSICAL, range.physical) : NULL;
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	o->physical.handles++;
	*handle = range.physical;
	return CUDA_SUCCESS;
}
