/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, and what is asked of the library beside calculating. */
#include <stdlib.h>

#include "sparse.h"

enum { OWN_VERSION = 120508 };

SPARSE_FUNCTION(int, cusparseCreate, void **handle)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct math_channel *c = math_channel();
	struct sparse_handle *h;
	int status, result;

	if (!handle)
		return SPARSE_INVALID_VALUE;
	*handle = NULL;
	if (!c || !c->make)
		return SPARSE_NOT_INITIALIZED;
	math_ask_runtime();
	h = calloc(1, sizeof(*h));
	if (!h)
		return SPARSE_ALLOC_FAILED;
	result = c->create(VG_MATH_SPARSE, &h->id, &status);
	if (result || status) {
		free(h);
		if (result == 801)
			return sparse_unsupported("cuSPARSE, which the host does not have,", &told);
		return result ? sparse_status(result) : status;
	}
	h->magic = SPARSE_HANDLE;
	pthread_mutex_init(&h->lock, NULL);
	*handle = h;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseDestroy, void *handle)
{
	struct sparse_handle *h = handle;
	int result;

	if (!h || h->magic != SPARSE_HANDLE || !math_channel())
		return SPARSE_NOT_INITIALIZED;
	result = math_channel()->alive(h->id) ? math_channel()->destroy(h->id) : 0;
	h->magic = 0;
	pthread_mutex_destroy(&h->lock);
	free(h);
	return sparse_status(result);
}

SPARSE_FUNCTION(int, cusparseSetStream, void *handle, void *stream)
{
	struct sparse_handle *h = sparse_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	pthread_mutex_lock(&h->lock);
	h->stream = stream;
	pthread_mutex_unlock(&h->lock);
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseGetStream, void *handle, void **stream)
{
	struct sparse_handle *h = sparse_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	if (!stream)
		return SPARSE_INVALID_VALUE;
	*stream = h->stream;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseSetPointerMode, void *handle, int mode)
{
	struct sparse_handle *h = sparse_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	if (mode != 0 && mode != 1)
		return SPARSE_INVALID_VALUE;
	pthread_mutex_lock(&h->lock);
	h->mode = mode;
	pthread_mutex_unlock(&h->lock);
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseGetPointerMode, void *handle, int *mode)
{
	struct sparse_handle *h = sparse_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	if (!mode)
		return SPARSE_INVALID_VALUE;
	*mode = h->mode;
	return SPARSE_OK;
}

/* ---- versions: the host's library's, or what this one is here for where there is none */

static int version(void)
{
	uint64_t found = math_version(VG_MATH_SPARSE);

	return found ? (int)found : OWN_VERSION;
}

/* As CUSPARSE_VERSION: the major number times 1000. */
SPARSE_FUNCTION(int, cusparseGetVersion, void *handle, int *out)
{
	int v = version();

	if (!sparse_handle(handle))
		return SPARSE_NOT_INITIALIZED;
	if (!out)
		return SPARSE_INVALID_VALUE;
	*out = v / 10000 * 1000 + v % 10000 / 100 * 100 + v % 100;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseGetProperty, int type, int *value)
{
	int v = version();

	if (!value || type < 0 || type > 2)
		return SPARSE_INVALID_VALUE;
	*value = type == 0 ? v / 10000 : type == 1 ? v / 100 % 100 : v % 100;
	return SPARSE_OK;
}
