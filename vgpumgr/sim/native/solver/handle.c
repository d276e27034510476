/* SPDX-License-Identifier: Apache-2.0 */
/* Handles. */
#include <stdlib.h>

#include "solver.h"

enum { MAGIC = 0x5376486e, DETERMINISTIC = 1, NOT_DETERMINISTIC = 2 };

struct sv_handle *sv_handle(void *handle)
{
	struct sv_handle *h = handle;

	return h && h->magic == MAGIC ? h : NULL;
}

int sv_status(int of_blas)
{
	switch (of_blas) {
	case BL_SUCCESS:
		return SV_SUCCESS;
	case BL_NOT_INITIALIZED:
		return SV_NOT_INITIALIZED;
	case BL_ALLOC_FAILED:
		return SV_ALLOC_FAILED;
	default:
		return SV_EXECUTION_FAILED;
	}
}

SV_API(cusolverDnCreate, void **handle)
{
	struct bl_context *context;
	struct sv_handle *h;
	int status = handle ? sv_status(bl_context_current(&context)) : SV_INVALID_VALUE;

	if (status != SV_SUCCESS)
		return status;
	h = calloc(1, sizeof *h);
	if (!h)
		return SV_ALLOC_FAILED;
	h->magic = MAGIC;
	h->mode = DETERMINISTIC;
	*handle = h;
	return SV_SUCCESS;
}

SV_API(cusolverDnDestroy, void *handle)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h)
		return SV_NOT_INITIALIZED;
	h->magic = 0;
	free(h);
	return SV_SUCCESS;
}

SV_API(cusolverDnSetStream, void *handle, CUstream stream)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h)
		return SV_NOT_INITIALIZED;
	h->stream = stream;
	return SV_SUCCESS;
}

SV_API(cusolverDnGetStream, void *handle, CUstream *stream)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h || !stream)
		return h ? SV_INVALID_VALUE : SV_NOT_INITIALIZED;
	*stream = h->stream;
	return SV_SUCCESS;
}

SV_API(cusolverDnSetDeterministicMode, void *handle, int mode)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h || (mode != DETERMINISTIC && mode != NOT_DETERMINISTIC))
		return h ? SV_INVALID_VALUE : SV_NOT_INITIALIZED;
	h->mode = mode;
	return SV_SUCCESS;
}

SV_API(cusolverDnGetDeterministicMode, void *handle, int *mode)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h || !mode)
		return h ? SV_INVALID_VALUE : SV_NOT_INITIALIZED;
	*mode = h->mode;
	return SV_SUCCESS;
}
