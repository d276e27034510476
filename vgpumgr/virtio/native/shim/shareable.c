/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors by which processes of this guest share physical memory and pools: files that hold a token of the worker's, and
 * which device it is of. Who has no such descriptor cannot guess one, and a changed one is none.
 */
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "shareable.h"

static const char magic[16] = "vgpumgr-shared-1";

/* Tells this process from others, for as long as it lives. */
static bool own_key(uint8_t key[16])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint8_t drawn[16];
	static bool is_drawn;
	bool done;

	pthread_mutex_lock(&lock);
	is_drawn = is_drawn || getrandom(drawn, sizeof(drawn), 0) == sizeof(drawn);
	done = is_drawn;
	memcpy(key, drawn, sizeof(drawn));
	pthread_mutex_unlock(&lock);
	return done;
}

CUresult shim_shareable_make(enum shim_shareable_kind kind, CUdevice device, uint64_t id, const uint8_t *token, size_t length, int *out)
{
	struct shim_shareable s = { .kind = kind, .id = id };
	const struct shim_device *d;
	CUresult r = shim_device(device, &d);

	if (r != CUDA_SUCCESS)
		return r;
	if (length != sizeof(s.token) || !own_key(s.maker))
		return CUDA_ERROR_UNKNOWN;
	memcpy(s.magic, magic, sizeof(s.magic));
	memcpy(s.device, &d->uuid, sizeof(s.device));
	memcpy(s.token, token, sizeof(s.token));
	*out = cuda_descriptor_make("vgpumgr-shared", &s, sizeof(s));
	return *out < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* Devices that were lost are passed over. */
static CUresult find_device(const uint8_t *uuid, CUdevice *device)
{
	const struct shim_device *d;
	uint32_t count;
	CUresult r = shim_device_count(&count);

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		if (shim_device((CUdevice)i, &d) != CUDA_SUCCESS || memcmp(&d->uuid, uuid, sizeof(d->uuid)))
			continue;
		*device = (CUdevice)i;
		return CUDA_SUCCESS;
	}
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

CUresult shim_shareable_read(void *descriptor, enum shim_shareable_kind kind, struct shim_shareable *out, CUdevice *device, bool *own)
{
	uint8_t key[16];

	if (!cuda_descriptor_read((int)(intptr_t)descriptor, out, sizeof(*out)) || memcmp(out->magic, magic, sizeof(magic)) ||
	    out->kind != (uint32_t)kind)
		return CUDA_ERROR_INVALID_VALUE;
	*own = own_key(key) && !memcmp(key, out->maker, sizeof(key));
	return find_device(out->device, device);
}

CUresult shim_shareable_result(CUresult r)
{
	return r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_INVALID_CONTEXT ? CUDA_ERROR_INVALID_VALUE : r;
}
