/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory and pools between processes, by descriptors. A descriptor holds the same as a handle of cuIpc does (ipc.h):
 * whom to ask, and for what.
 */
#include <string.h>
#include <unistd.h>

#include "captures.h"
#include "ipc.h"

static CUresult export(enum ipc_kind kind, uint64_t id, int *out)
{
	struct ipc_handle handle;
	CUresult r = ipc_make(kind, id, &handle);

	if (r != CUDA_SUCCESS)
		return r;
	*out = cuda_descriptor_make("vgpumgr-sim-shared", &handle, sizeof(handle));
	return *out < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static bool read_handle(void *descriptor, enum ipc_kind kind, struct ipc_handle *out)
{
	return cuda_descriptor_read((int)(intptr_t)descriptor, out, sizeof(*out)) && out->kind == kind;
}

/* What it is of: a device that this process has, or none. */
static struct device *device_of(const struct ipc_offer *offer)
{
	for (int i = 0; i < drv.n_devices; i++) {
		struct device *d = &drv.devices[i];

		if (d->gpu == offer->gpu && d->gi_id == offer->gi_id && d->ci_id == offer->ci_id)
			return d;
	}
	return NULL;
}

/* As the calls document it: handles that mean nothing are wrong values. */
static CUresult ask(const struct ipc_handle *handle, struct ipc_offer *offer, struct device **dev, int *file, int *line)
{
	CUresult r = ipc_ask(handle, offer, file, line);

	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
	*dev = device_of(offer);
	if (*dev)
		return CUDA_SUCCESS;
	close(*line);
	if (*file >= 0)
		close(*file);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- physical memory */

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
				      unsigned long long flags)
{
	CUresult r = cuda_check_export(out, type, flags);
	uint64_t id = 0;

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	r = physical_export(handle, &id);
	drv_unlock();
	return r == CUDA_SUCCESS ? export(IPC_PHYSICAL, id, out) : r;
}

static CUresult import_physical(const struct ipc_handle *handle, CUmemGenericAllocationHandle *out)
{
	struct ipc_offer offer;
	struct device *dev;
	int file, line;
	CUresult r = ask(handle, &offer, &dev, &file, &line);

	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	r = physical_import(dev, &offer, file, line, out);
	drv_unlock();
	close(file);
	return r;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *descriptor, CUmemAllocationHandleType type)
{
	CUresult r = cuda_check_import(out, descriptor, type, 0);
	struct ipc_handle handle;

	DRIVER_CHECK();
	if (r == CUDA_SUCCESS && !read_handle(descriptor, IPC_PHYSICAL, &handle))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (!ipc_is_own(&handle))
		return import_physical(&handle, out);
	DRV_LOCKED();
	return physical_again(handle.id, out);
}

/* ---- pools */

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = cuda_check_export(out, type, flags);
	uint64_t id = 0;

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	r = pool_export(handle, &id);
	drv_unlock();
	return r == CUDA_SUCCESS ? export(IPC_POOL, id, out) : r;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *descriptor, CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	CUresult r = cuda_check_import(out, descriptor, type, flags);
	struct ipc_handle handle;
	struct ipc_offer offer;
	struct device *dev;
	int file, line;

	DRIVER_CHECK();
	if (r == CUDA_SUCCESS && (!read_handle(descriptor, IPC_POOL, &handle) || ipc_is_own(&handle)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = ask(&handle, &offer, &dev, &file, &line);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	return pool_import(dev, &handle, line, out);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr addr)
{
	struct ipc_handle handle;
	struct allocation a;
	uint64_t pool = 0;
	CUresult r;

	DRIVER_CHECK();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (vm_find(addr, &a) && a.pool && !a.borrowed)
		pool = pool_exportable(a.pool);
	drv_unlock();
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	r = ipc_make(IPC_POOLED, a.id, &handle);
	handle.of = pool;
	if (r == CUDA_SUCCESS)
		memcpy(out, &handle, sizeof(handle));
	return r;
}

/* The pool that it is imported from must be the one that it is of. */
static CUresult check_origin(const struct context *ctx, CUmemoryPool pool, const struct ipc_handle *handle)
{
	const struct ipc_handle *origin;
	struct device *dev;

	DRV_LOCKED();
	origin = pool_origin(pool, &dev);
	if (!origin || handle->kind != IPC_POOLED || handle->of != origin->id || memcmp(handle->key, origin->key, sizeof(origin->key)))
		return CUDA_ERROR_INVALID_VALUE;
	return dev == ctx->dev ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED; /* here memory belongs to a context of its device */
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	struct ipc_handle handle;
	bool first;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out || !data)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&handle, data, sizeof(handle));
	r = check_origin(ctx, pool, &handle);
	if (r == CUDA_SUCCESS)
		r = ipc_open_memory(ctx, &handle, out, &first);
	if (r != CUDA_SUCCESS)
		return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
	if (first) {
		DRV_LOCKED();
		pool_borrowed(pool, *out);
	}
	return CUDA_SUCCESS;
}
