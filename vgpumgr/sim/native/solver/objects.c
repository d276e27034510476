/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the Jacobi methods, and parameters. */
#include <stdlib.h>

#include "solver.h"

enum { SWEEPS = 100, FUNCTIONS = 7, ALGORITHMS = 3 };

struct params {
	uint32_t magic;
	int algorithms[FUNCTIONS]; /* nothing is another by them */
};

struct sv_object *sv_object(void *object, uint32_t magic)
{
	struct sv_object *o = object;

	return o && o->magic == magic ? o : NULL;
}

void sv_use_object(struct sv_object *o)
{
	o->done = o->sweeps < 1 ? 0 : 1;
	o->residual = o->tolerance;
}

static int create(void **object, uint32_t magic)
{
	struct sv_object *o = object ? calloc(1, sizeof *o) : NULL;

	if (!o)
		return object ? SV_ALLOC_FAILED : SV_INVALID_VALUE;
	*o = (struct sv_object){ .magic = magic, .sweeps = SWEEPS, .sort = 1 };
	*object = o;
	return SV_SUCCESS;
}

static int destroy(struct sv_object *o)
{
	if (!o)
		return SV_INVALID_VALUE;
	o->magic = 0;
	free(o);
	return SV_SUCCESS;
}

/* What was done with it is there when the stream is. */
static int wait_for(void *handle, const struct sv_object *o, const void *value)
{
	struct sv_handle *h = sv_handle(handle);

	if (!h)
		return SV_NOT_INITIALIZED;
	if (!o || !value)
		return SV_INVALID_VALUE;
	return bl_driver.cuStreamSynchronize(h->stream) == CUDA_SUCCESS ? SV_SUCCESS : SV_EXECUTION_FAILED;
}

static int give_sweeps(void *handle, const struct sv_object *o, int *sweeps)
{
	int status = wait_for(handle, o, sweeps);

	if (status == SV_SUCCESS)
		*sweeps = o->done;
	return status;
}

static int give_residual(void *handle, const struct sv_object *o, double *residual)
{
	int status = wait_for(handle, o, residual);

	if (status == SV_SUCCESS)
		*residual = o->residual;
	return status;
}

#define OBJECT(name, lower, magic)                                                             \
	SV_API(cusolverDnCreate##name##Info, void **object)                                    \
	{                                                                                      \
		return create(object, magic);                                                  \
	}                                                                                      \
	SV_API(cusolverDnDestroy##name##Info, void *object)                                    \
	{                                                                                      \
		return destroy(sv_object(object, magic));                                      \
	}                                                                                      \
	SV_API(cusolverDnX##lower##SetTolerance, void *object, double tolerance)               \
	{                                                                                      \
		struct sv_object *o = sv_object(object, magic);                                \
		if (!o)                                                                        \
			return SV_INVALID_VALUE;                                               \
		o->tolerance = tolerance;                                                      \
		return SV_SUCCESS;                                                             \
	}                                                                                      \
	SV_API(cusolverDnX##lower##SetMaxSweeps, void *object, int sweeps)                     \
	{                                                                                      \
		struct sv_object *o = sv_object(object, magic);                                \
		if (!o || sweeps < 0)                                                          \
			return SV_INVALID_VALUE;                                               \
		o->sweeps = sweeps;                                                            \
		return SV_SUCCESS;                                                             \
	}                                                                                      \
	SV_API(cusolverDnX##lower##SetSortEig, void *object, int sort)                         \
	{                                                                                      \
		struct sv_object *o = sv_object(object, magic);                                \
		if (!o)                                                                        \
			return SV_INVALID_VALUE;                                               \
		o->sort = sort;                                                                \
		return SV_SUCCESS;                                                             \
	}                                                                                      \
	SV_API(cusolverDnX##lower##GetSweeps, void *handle, void *object, int *sweeps)         \
	{                                                                                      \
		return give_sweeps(handle, sv_object(object, magic), sweeps);                  \
	}                                                                                      \
	SV_API(cusolverDnX##lower##GetResidual, void *handle, void *object, double *residual)  \
	{                                                                                      \
		return give_residual(handle, sv_object(object, magic), residual);              \
	}

OBJECT(Syevj, syevj, SV_SYEVJ)
OBJECT(Gesvdj, gesvdj, SV_GESVDJ)

/* ---- parameters */

bool sv_is_params(const void *params)
{
	const struct params *p = params;

	return p && p->magic == SV_PARAMS;
}

SV_API(cusolverDnCreateParams, void **params)
{
	struct params *p = params ? calloc(1, sizeof *p) : NULL;

	if (!p)
		return params ? SV_ALLOC_FAILED : SV_INVALID_VALUE;
	p->magic = SV_PARAMS;
	*params = p;
	return SV_SUCCESS;
}

SV_API(cusolverDnDestroyParams, void *params)
{
	struct params *p = params;

	if (!sv_is_params(params))
		return SV_INVALID_VALUE;
	p->magic = 0;
	free(p);
	return SV_SUCCESS;
}

SV_API(cusolverDnSetAdvOptions, void *params, int function, int algorithm)
{
	struct params *p = params;

	if (!sv_is_params(params) || function < 0 || function >= FUNCTIONS || algorithm < 0 || algorithm >= ALGORITHMS)
		return SV_INVALID_VALUE;
	p->algorithms[function] = algorithm;
	return SV_SUCCESS;
}
