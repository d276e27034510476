/* SPDX-License-Identifier: Apache-2.0 */
/* What the channel answers, and handles that are there. */
#include "blas.h"

int blas_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return BLAS_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return BLAS_ALLOC_FAILED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED */
		return BLAS_NOT_SUPPORTED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return BLAS_INVALID_VALUE;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return BLAS_NOT_INITIALIZED;
	default:
		return BLAS_EXECUTION_FAILED;
	}
}

int blas_unsupported(const char *name, atomic_flag *told)
{
	math_refuse(name, told);
	return BLAS_NOT_SUPPORTED;
}

struct blas_handle *blas_handle(void *handle)
{
	struct blas_handle *h = handle;

	if (!h || h->magic != BLAS_MAGIC || !math_channel() || !math_channel()->alive(h->id))
		return NULL;
	return h;
}
