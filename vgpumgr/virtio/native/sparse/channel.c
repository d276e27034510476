/* SPDX-License-Identifier: Apache-2.0 */
/* What the channel answers, and handles that are there. */
#include "sparse.h"

int sparse_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return SPARSE_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return SPARSE_ALLOC_FAILED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED */
		return SPARSE_NOT_SUPPORTED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return SPARSE_INVALID_VALUE;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return SPARSE_NOT_INITIALIZED;
	default:
		return SPARSE_EXECUTION_FAILED;
	}
}

int sparse_unsupported(const char *name, atomic_flag *told)
{
	math_refuse(name, told);
	return SPARSE_NOT_SUPPORTED;
}

struct sparse_handle *sparse_handle(void *handle)
{
	struct sparse_handle *h = handle;

	if (!h || h->magic != SPARSE_HANDLE || !math_channel() || !math_channel()->alive(h->id))
		return NULL;
	return h;
}
