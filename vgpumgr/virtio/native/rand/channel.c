/* SPDX-License-Identifier: Apache-2.0 */
/* What the channel answers, types, and generators that are there. */
#include "rand.h"

int rand_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return RAND_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return RAND_ALLOCATION_FAILED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return RAND_NOT_INITIALIZED;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return RAND_INITIALIZATION_FAILED;
	default:  /* of something that was posted before */
		return RAND_PREEXISTING_FAILURE;
	}
}

/* The library has no status for what it does not support: that of a device that cannot be set up is the nearest. */
int rand_unsupported(const char *name, atomic_flag *told)
{
	math_refuse(name, told);
	return RAND_INITIALIZATION_FAILED;
}

bool rand_is_quasi(int type)
{
	return type >= RAND_QUASI_DEFAULT;
}

bool rand_is_wide(int type)
{
	return type == RAND_SOBOL64 || type == RAND_SCRAMBLED_SOBOL64;
}

struct rand_generator *rand_enter(struct rand_generator *g)
{
	if (!g || g->magic != RAND_MAGIC || !math_channel()->alive(g->id))
		return NULL;
	pthread_mutex_lock(&g->lock);
	return g;
}

void rand_leave(struct rand_generator *g)
{
	pthread_mutex_unlock(&g->lock);
}
