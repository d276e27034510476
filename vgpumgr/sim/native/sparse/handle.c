/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, and versions. */
#include <stdlib.h>

#include "sparse_sim.h"

enum { MAGIC = 0x5370486e, VERSION = 12508 };

struct sp_handle *sp_handle(void *handle)
{
	struct sp_handle *h = handle;

	return h && h->magic == MAGIC ? h : NULL;
}

int sp_status(int of_blas)
{
	switch (of_blas) {
	case BL_SUCCESS:
		return SPARSE_OK;
	case BL_NOT_INITIALIZED:
		return SPARSE_NOT_INITIALIZED;
	case BL_ALLOC_FAILED:
		return SPARSE_ALLOC_FAILED;
	default:
		return SPARSE_EXECUTION_FAILED;
	}
}

SP_API(cusparseCreate, void **handle)
{
	struct bl_context *context;
	struct sp_handle *h;
	int status = handle ? sp_status(bl_context_current(&context)) : SPARSE_INVALID_VALUE;

	if (status != SPARSE_OK)
		return status;
	h = calloc(1, sizeof *h);
	if (!h)
		return SPARSE_ALLOC_FAILED;
	h->magic = MAGIC;
	*handle = h;
	return SPARSE_OK;
}

SP_API(cusparseDestroy, void *handle)
{
	struct sp_handle *h = sp_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	h->magic = 0;
	free(h);
	return SPARSE_OK;
}

SP_API(cusparseSetStream, void *handle, CUstream stream)
{
	struct sp_handle *h = sp_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	h->stream = stream;
	return SPARSE_OK;
}

SP_API(cusparseGetStream, void *handle, CUstream *stream)
{
	struct sp_handle *h = sp_handle(handle);

	if (!h || !stream)
		return h ? SPARSE_INVALID_VALUE : SPARSE_NOT_INITIALIZED;
	*stream = h->stream;
	return SPARSE_OK;
}

SP_API(cusparseSetPointerMode, void *handle, int mode)
{
	struct sp_handle *h = sp_handle(handle);

	if (!h || (mode != 0 && mode != 1))
		return h ? SPARSE_INVALID_VALUE : SPARSE_NOT_INITIALIZED;
	h->pointer_mode = mode;
	return SPARSE_OK;
}

SP_API(cusparseGetPointerMode, void *handle, int *mode)
{
	struct sp_handle *h = sp_handle(handle);

	if (!h || !mode)
		return h ? SPARSE_INVALID_VALUE : SPARSE_NOT_INITIALIZED;
	*mode = h->pointer_mode;
	return SPARSE_OK;
}

SP_API(cusparseGetVersion, void *handle, int *version)
{
	if (!sp_handle(handle) || !version)
		return sp_handle(handle) ? SPARSE_INVALID_VALUE : SPARSE_NOT_INITIALIZED;
	*version = VERSION;
	return SPARSE_OK;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
SP_API(cusparseGetProperty, int type, int *value)
{
	if (!value || type < 0 || type > 2)
		return SPARSE_INVALID_VALUE;
	*value = type == 0 ? VERSION / 1000 : type == 1 ? VERSION / 100 % 10 : VERSION % 100;
	return SPARSE_OK;
}
