/* SPDX-License-Identifier: Apache-2.0 */
/* The documented functions. A GPU's handle is its place in the table, a virtual function's has its GPU above it. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "amdsmi_sim.h"

static struct {
	pthread_mutex_t lock;
	bool ready;
	struct sim_gpus gpus;
} library = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void unlock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

#define HOLD_LIBRARY \
	__attribute__((cleanup(unlock))) pthread_mutex_t *held = &library.lock; \
	pthread_mutex_lock(held)

static int from_errno(int err)
{
	switch (-err) {
	case 0:
		return AMDSMI_STATUS_SUCCESS;
	case ENOENT:
		return AMDSMI_STATUS_DRIVER_NOT_LOADED;
	case EACCES:
	case EPERM:
		return AMDSMI_STATUS_NO_PERM;
	case EBUSY:
		return AMDSMI_STATUS_BUSY;
	case EINVAL:
		return AMDSMI_STATUS_INVAL;
	case ENODEV:
		return AMDSMI_STATUS_NOT_FOUND;
	case EOPNOTSUPP:
		return AMDSMI_STATUS_NOT_SUPPORTED;
	default:
		return AMDSMI_STATUS_API_FAILED;
	}
}

static struct sim_gpu *find_gpu(amdsmi_processor_handle handle)
{
	uintptr_t number = (uintptr_t)handle;

	return number && number <= library.gpus.count ? &library.gpus.gpus[number - 1] : NULL;
}

/* The GPU as the driver has it now. */
static int look(amdsmi_processor_handle handle, struct sim_gpu **gpu)
{
	int err;

	if (!library.ready)
		return AMDSMI_STATUS_NOT_INIT;
	if (!find_gpu(handle))
		return AMDSMI_STATUS_INVAL;
	err = sim_read_gpus(&library.gpus);
	if (err)
		return from_errno(err);
	*gpu = find_gpu(handle);
	return *gpu ? AMDSMI_STATUS_SUCCESS : AMDSMI_STATUS_NOT_FOUND;
}

AMDSMI_API int amdsmi_init(uint64_t flags)
{
	HOLD_LIBRARY;
	int err = sim_read_gpus(&library.gpus);

	(void)flags;
	library.ready = !err;
	return from_errno(err);
}

AMDSMI_API int amdsmi_shut_down(void)
{
	HOLD_LIBRARY;

	if (!library.ready)
		return AMDSMI_STATUS_NOT_INIT;
	library.ready = false;
	return AMDSMI_STATUS_SUCCESS;
}

AMDSMI_API int amdsmi_get_processor_handles(amdsmi_socket_handle socket, uint32_t *count,
					    amdsmi_processor_handle *handles)
{
	HOLD_LIBRARY;

	(void)socket;
	if (!library.ready)
		return AMDSMI_STATUS_NOT_INIT;
	if (!count)
		return AMDSMI_STATUS_INVAL;
	if (!handles || *count > library.gpus.count)
		*count = library.gpus.count;
	for (uintptr_t i = 0; handles && i < *count; i++)
		handles[i] = (amdsmi_processor_handle)(i + 1);
	return AMDSMI_STATUS_SUCCESS;
}

AMDSMI_API int amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, amdsmi_bdf_t *bdf)
{
	HOLD_LIBRARY;
	struct sim_gpu *gpu;
	int status = bdf ? look(handle, &gpu) : AMDSMI_STATUS_INVAL;

	if (!status)
		bdf->as_uint = gpu->bdf;
	return status;
}

AMDSMI_API int amdsmi_get_num_vf(amdsmi_processor_handle handle, uint32_t *enabled, uint32_t *supported)
{
	HOLD_LIBRARY;
	struct sim_gpu *gpu;
	int status = enabled && supported ? look(handle, &gpu) : AMDSMI_STATUS_INVAL;

	if (!status) {
		*enabled = gpu->enabled;
		*supported = gpu->supported;
	}
	return status;
}

AMDSMI_API int amdsmi_get_vf_partition_info(amdsmi_processor_handle handle, unsigned int room,
					    amdsmi_partition_info_t *info)
{
	HOLD_LIBRARY;
	struct sim_gpu *gpu;
	int status = info ? look(handle, &gpu) : AMDSMI_STATUS_INVAL;

	if (status)
		return status;
	memset(info, 0, room * sizeof(*info));
	for (uint32_t i = 0; i < room && i < gpu->enabled; i++) {
		info[i].id.handle = (uint64_t)(uintptr_t)handle << 32 | (i + 1);
		info[i].fb.fb_offset = gpu->vfs[i].fb_offset;
		info[i].fb.fb_size = gpu->vfs[i].fb_size;
	}
	return AMDSMI_STATUS_SUCCESS;
}

AMDSMI_API int amdsmi_get_vf_bdf(amdsmi_vf_handle_t vf, amdsmi_bdf_t *bdf)
{
	HOLD_LIBRARY;
	uint32_t number = (uint32_t)vf.handle;
	struct sim_gpu *gpu;
	int status = bdf ? look((amdsmi_processor_handle)(uintptr_t)(vf.handle >> 32), &gpu) : AMDSMI_STATUS_INVAL;

	if (status)
		return status;
	if (!number || number > gpu->enabled)
		return AMDSMI_STATUS_INVAL;
	bdf->as_uint = gpu->vfs[number - 1].bdf;
	return AMDSMI_STATUS_SUCCESS;
}

AMDSMI_API int amdsmi_set_num_vf(amdsmi_processor_handle handle, uint32_t count)
{
	HOLD_LIBRARY;
	struct sim_gpu *gpu;
	int status = look(handle, &gpu);

	return status ? status : from_errno(sim_set_vfs(gpu->bdf, count));
}
