/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and events between processes of this guest. A handle is a token that the worker has drawn; it means something to
 * processes of this guest only, of the same user where users are kept apart.
 */
#include <pthread.h>
#include <string.h>

#include "captures.h"
#include "space.h"

static _Atomic bool sharing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over opening and closing: ranges are as the worker has them */

void shim_ipc_begin(void)
{
	atomic_store(&sharing, true);
}

CUresult shim_ipc_settle(uint64_t context)
{
	struct vg_capture_check_request in = { .context = context };

	if (!atomic_load_explicit(&sharing, memory_order_relaxed))
		return CUDA_SUCCESS;
	if (!in.context)
		in.context = shim_current();
	return in.context ? vg_send_capture_check(&in) : CUDA_SUCCESS;
}

CUresult shim_ipc_settled(CUresult r, uint64_t from, CUstream stream)
{
	if (r != CUDA_SUCCESS || !atomic_load_explicit(&sharing, memory_order_relaxed))
		return r;
	return from && !shim_is_device(from) ? cuStreamSynchronize(stream) : shim_ipc_settle(0);
}

bool shim_is_exportable(const struct shim_range *range)
{
	return !range->module && !range->managed && !range->host && !range->physical && !range->pooled && !range->opened;
}

/* ---- memory */

SHIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct vg_ipc_memory_export_request in = { .address = dptr };
	struct vg_ipc_memory_export_reply out;
	struct shim_range range;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS && !pHandle)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) || !shim_is_exportable(&range)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in.context = range.context;
	shim_ipc_begin();
	r = vg_send_ipc_memory_export(&in, &out);
	if (r == CUDA_SUCCESS && out.token_length != sizeof(*pHandle))
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS)
		memcpy(pHandle, out.token, sizeof(*pHandle));
	return r;
}

/* Under the lock. An address that another device's session has given out, too, is of no use. */
static CUresult enter(const struct shim_range *range)
{
	struct vg_ipc_memory_close_request undo = { .context = range->context, .address = range->start };
	struct shim_range found;
	CUresult r;

	if (shim_range_find(SHIM_RANGE_DEVICE, range->start, &found) && found.opened && found.context == range->context) {
		shim_range_count(&found, 1);
		return CUDA_SUCCESS;
	}
	if (shim_range_elsewhere(range->context, range->start, range->bytes))
		r = CUDA_ERROR_MAP_FAILED;
	else
		r = shim_range_add(SHIM_RANGE_DEVICE, range);
	if (r == CUDA_SUCCESS)
		shim_space_take(range->start, range->bytes);
	else
		vg_send_ipc_memory_close(&undo);
	return r;
}

SHIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct vg_ipc_memory_open_request in = { .token = { &handle, sizeof(handle) } };
	struct vg_ipc_memory_open_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS && (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	shim_ipc_begin();
	pthread_mutex_lock(&lock);
	r = vg_send_ipc_memory_open(&in, &out);
	if (r == CUDA_SUCCESS)
		r = enter(&(struct shim_range){ .start = out.address, .bytes = out.bytes, .context = in.context, .opened = 1 });
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*pdptr = out.address;
	return r;
}

SHIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult shim_ipc_close(CUdeviceptr dptr, bool pooled)
{
	struct vg_ipc_memory_close_request in = { .address = dptr };
	struct shim_range range;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) || !range.opened || range.start != dptr || range.pooled != pooled) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else {
		in.context = range.context;
		if (!shim_range_count(&range, -1))
			shim_range_remove(SHIM_RANGE_DEVICE, &range);
	}
	pthread_mutex_unlock(&lock);
	/* the driver waits for work that uses it, which may be one that waits for another thread of this process */
	return r == CUDA_SUCCESS ? vg_send_ipc_memory_close(&in) : r;
}

SHIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	uint64_t context;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	return r == CUDA_SUCCESS ? shim_ipc_close(dptr, false) : r;
}

/* ---- memory of pools: shareable.h has the pools' */

static CUresult check_pool(CUmemoryPool handle, uint64_t context)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct shim_object *pool = shim_object_get(SHIM_POOL, (uint64_t)handle);
	CUdevice device;
	CUresult r = pool && pool->pool.imported ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = cuCtxGetDevice_v2(&device, (CUcontext)context);
	if (r == CUDA_SUCCESS && device != pool->pool.device)
		return shim_unsupported("memory of a pool of another device than the context's, from another process,", &told);
	return r;
}

SHIM_API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct vg_pool_memory_export_request in = { .address = ptr };
	struct vg_pool_memory_export_reply out;
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!shareData_out || !shim_range_find(SHIM_RANGE_DEVICE, ptr, &range) || !range.pool || range.opened))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in.context = range.context;
	in.pool = range.pool;
	shim_ipc_begin();
	r = vg_send_pool_memory_export(&in, &out);
	if (r == CUDA_SUCCESS && out.token_length != sizeof(*shareData_out))
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS)
		memcpy(shareData_out, out.token, sizeof(*shareData_out));
	return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
}

SHIM_API CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	struct vg_pool_memory_import_request in = { .pool = (uint64_t)pool, .token = { shareData, sizeof(*shareData) } };
	struct vg_pool_memory_import_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !(ptr_out && shareData))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_pool(pool, in.context);
	if (r != CUDA_SUCCESS)
		return r;
	shim_ipc_begin();
	pthread_mutex_lock(&lock);
	r = vg_send_pool_memory_import(&in, &out);
	if (r == CUDA_SUCCESS)
		r = enter(&(struct shim_range){ .start = out.address, .bytes = out.bytes, .context = in.context, .opened = 1,
						.pooled = true, .pool = in.pool });
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*ptr_out = out.address;
	return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
}

/* ---- events */

SHIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	struct vg_ipc_event_export_request in = { .event = (uint64_t)event };
	struct vg_ipc_event_export_reply out;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !pHandle)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_EVENT, in.event);
	if (!o || !(o->event.flags & CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_HANDLE;
	in.context = o->context;
	r = vg_send_ipc_event_export(&in, &out);
	if (r == CUDA_SUCCESS && out.token_length != sizeof(*pHandle))
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS)
		memcpy(pHandle, out.token, sizeof(*pHandle));
	return r;
}

SHIM_API CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	struct vg_ipc_event_open_request in = { .token = { &handle, sizeof(handle) } };
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !phEvent)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_EVENT, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shim_ipc_begin();
	r = vg_send_ipc_event_open(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_EVENT, in.created);
		return r;
	}
	o->event.flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
	atomic_store(&o->event.records, 0);
	atomic_store(&o->event.done, 0);
	shim_object_publish(o, in.created);
	*phEvent = (CUevent)in.created;
	return CUDA_SUCCESS;
}
