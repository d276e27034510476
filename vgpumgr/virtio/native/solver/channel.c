/* SPDX-License-Identifier: Apache-2.0 */
/* What the channel answers, and handles that are there. */
#include "solver.h"

int solver_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return SOLVER_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return SOLVER_ALLOC_FAILED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED */
		return SOLVER_NOT_SUPPORTED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return SOLVER_INVALID_VALUE;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return SOLVER_NOT_INITIALIZED;
	default:
		return SOLVER_EXECUTION_FAILED;
	}
}

int solver_unsupported(const char *name, atomic_flag *told)
{
	math_refuse(name, told);
	return SOLVER_NOT_SUPPORTED;
}

struct solver_handle *solver_handle(void *handle)
{
	struct solver_handle *h = handle;

	if (!h || h->magic != SOLVER_HANDLE || !math_channel() || !math_channel()->alive(h->id))
		return NULL;
	return h;
}
