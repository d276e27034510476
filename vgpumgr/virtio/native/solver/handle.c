/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, and what is asked of the library beside calculating. */
#include <stdlib.h>

#include "solver.h"

enum { OWN_VERSION = VGPUMGR_SOLVER_MAJOR == 12 ? 120401 : 110702 };

SOLVER_API int cusolverDnCreate(void **handle);
int cusolverDnCreate(void **handle)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct math_channel *c = math_channel();
	struct solver_handle *h;
	int status, result;

	if (!handle)
		return SOLVER_INVALID_VALUE;
	*handle = NULL;
	if (!c || !c->make)
		return SOLVER_NOT_INITIALIZED;
	math_ask_runtime();
	h = calloc(1, sizeof(*h));
	if (!h)
		return SOLVER_ALLOC_FAILED;
	result = c->create(VG_MATH_SOLVER, &h->id, &status);
	if (result || status) {
		free(h);
		if (result == 801)
			return solver_unsupported("cuSOLVER, which the host does not have,", &told);
		return result ? solver_status(result) : status;
	}
	h->magic = SOLVER_HANDLE;
	h->mode = h->sent_mode = SOLVER_DETERMINISTIC;
	pthread_mutex_init(&h->lock, NULL);
	*handle = h;
	return SOLVER_OK;
}

SOLVER_API int cusolverDnDestroy(void *handle);
int cusolverDnDestroy(void *handle)
{
	struct solver_handle *h = handle;
	int result;

	if (!h || h->magic != SOLVER_HANDLE || !math_channel())
		return SOLVER_NOT_INITIALIZED;
	solver_forget_objects(h->id);
	result = math_channel()->alive(h->id) ? math_channel()->destroy(h->id) : 0;
	h->magic = 0;
	pthread_mutex_destroy(&h->lock);
	free(h);
	return solver_status(result);
}

SOLVER_API int cusolverDnSetStream(void *handle, void *stream);
int cusolverDnSetStream(void *handle, void *stream)
{
	struct solver_handle *h = solver_handle(handle);

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	pthread_mutex_lock(&h->lock);
	h->stream = stream;
	pthread_mutex_unlock(&h->lock);
	return SOLVER_OK;
}

SOLVER_API int cusolverDnGetStream(void *handle, void **stream);
int cusolverDnGetStream(void *handle, void **stream)
{
	struct solver_handle *h = solver_handle(handle);

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	if (!stream)
		return SOLVER_INVALID_VALUE;
	*stream = h->stream;
	return SOLVER_OK;
}

SOLVER_API int cusolverDnSetDeterministicMode(void *handle, int mode);
int cusolverDnSetDeterministicMode(void *handle, int mode)
{
	struct solver_handle *h = solver_handle(handle);

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	if (mode != SOLVER_DETERMINISTIC && mode != SOLVER_NOT_DETERMINISTIC)
		return SOLVER_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	h->mode = mode;
	pthread_mutex_unlock(&h->lock);
	return SOLVER_OK;
}

SOLVER_API int cusolverDnGetDeterministicMode(void *handle, int *mode);
int cusolverDnGetDeterministicMode(void *handle, int *mode)
{
	struct solver_handle *h = solver_handle(handle);

	if (!h)
		return SOLVER_NOT_INITIALIZED;
	if (!mode)
		return SOLVER_INVALID_VALUE;
	*mode = h->mode;
	return SOLVER_OK;
}

/* ---- versions: the host's library's, or what this one is here for where there is none */

static int version(void)
{
	uint64_t found = math_version(VG_MATH_SOLVER);

	return found ? (int)found : OWN_VERSION;
}

/* As CUSOLVER_VERSION: the major number times 1000. */
SOLVER_API int cusolverGetVersion(int *out);
int cusolverGetVersion(int *out)
{
	int v = version();

	if (!out)
		return SOLVER_INVALID_VALUE;
	*out = v / 10000 * 1000 + v % 10000 / 100 * 100 + v % 100;
	return SOLVER_OK;
}

SOLVER_API int cusolverGetProperty(int type, int *value);
int cusolverGetProperty(int type, int *value)
{
	int v = version();

	if (!value || type < 0 || type > 2)
		return SOLVER_INVALID_VALUE;
	*value = type == 0 ? v / 10000 : type == 1 ? v / 100 % 100 : v % 100;
	return SOLVER_OK;
}
