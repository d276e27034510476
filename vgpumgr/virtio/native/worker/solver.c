/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuSOLVER: what calls have beside plain arguments (blas.c). Objects are kept, parameters are set to what a call says, and a work
 * area on the host is the session's: the library uses it within the call only.
 */
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "mathematics.h"

/* Looked up once, by the literal. */
#define SOLVER(name) wk_math_function(VG_MATH_SOLVER, name)

/* ---- objects */

struct object {
	void *handle;             /* syevjInfo_t, gesvdjInfo_t */
	bool gesvdj;
	struct solver_settings settings; /* that the library's has */
};

static int create(struct object *o)
{
	int (*function)(void **);

	*(void **)&function = o->gesvdj ? SOLVER("cusolverDnCreateGesvdjInfo") : SOLVER("cusolverDnCreateSyevjInfo");
	o->settings.set = 0;
	return function ? function(&o->handle) : SOLVER_NOT_SUPPORTED;
}

static int destroy(struct object *o)
{
	int (*function)(void *);

	*(void **)&function = o->gesvdj ? SOLVER("cusolverDnDestroyGesvdjInfo") : SOLVER("cusolverDnDestroySyevjInfo");
	return function && o->handle ? function(o->handle) : SOLVER_NOT_SUPPORTED;
}

static int end_object(void *object)
{
	int status = destroy(object);

	free(object);
	return status;
}

static int set_tolerance(const struct object *o, double tolerance)
{
	int (*set)(void *, double);

	*(void **)&set = o->gesvdj ? SOLVER("cusolverDnXgesvdjSetTolerance") : SOLVER("cusolverDnXsyevjSetTolerance");
	return set ? set(o->handle, tolerance) : SOLVER_NOT_SUPPORTED;
}

static int set_number(const struct object *o, void *of_gesvdj, void *of_syevj, int64_t value)
{
	int (*set)(void *, int);

	*(void **)&set = o->gesvdj ? of_gesvdj : of_syevj;
	return set ? set(o->handle, (int)value) : SOLVER_NOT_SUPPORTED;
}

/* One that was set to more than is asked for now is made anew: how to set something back is not documented. */
static int apply(struct object *o, const struct solver_settings *s)
{
	int status = MATH_OK;

	if (!memcmp(&o->settings, s, sizeof(*s)))
		return MATH_OK;
	if (!o->handle || o->settings.set & ~s->set) {
		destroy(o);
		o->handle = NULL;
		status = create(o);
	}
	if (status == MATH_OK && s->set & 1)
		status = set_tolerance(o, s->tolerance);
	if (status == MATH_OK && s->set & 2)
		status = set_number(o, SOLVER("cusolverDnXgesvdjSetMaxSweeps"), SOLVER("cusolverDnXsyevjSetMaxSweeps"), s->sweeps);
	if (status == MATH_OK && s->set & 4)
		status = set_number(o, SOLVER("cusolverDnXgesvdjSetSortEig"), SOLVER("cusolverDnXsyevjSetSortEig"), s->sort);
	/* where one was refused, all are set the next time */
	o->settings = status == MATH_OK ? *s : (struct solver_settings){ .set = s->set, .sweeps = -1 };
	return status;
}

struct wk_math *wk_solver_object(struct math_call *call, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));
	struct object *o = calloc(1, sizeof(*o));

	*status = math && o ? MATH_OK : SOLVER_ALLOC_FAILED;
	if (o)
		o->gesvdj = call->function == SOLVER_GESVDJ;
	if (*status == MATH_OK)
		*status = create(o);
	if (*status == MATH_OK) {
		math->library = o->gesvdj ? MATH_GESVDJ : MATH_SYEVJ;
		math->handle = o;
		math->destroy = end_object;
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(o);
	free(math);
	return NULL;
}

/* The object is held and locked by the call. Where it is used, what it is set to came with the call. */
static int take_object(struct math_call *call, const struct blas_argument *a, uint64_t *word)
{
	uint32_t library = a->kind == BLAS_SYEVJ ? MATH_SYEVJ : MATH_GESVDJ;
	struct solver_settings settings;
	struct object *o;
	int status = MATH_OK;

	if (!call->plan || call->plan->library != library)
		return SOLVER_INVALID_VALUE;
	o = call->plan->handle;
	if (a->size) {
		memcpy(&settings, (const void *)*word, sizeof(settings));
		status = apply(o, &settings);
	}
	*word = (uintptr_t)o->handle;
	return status == MATH_OK && !o->handle ? SOLVER_INVALID_VALUE : status;
}

/* ---- parameters: one for each handle, as calls of a handle are made one after the other */

static int set_params(struct wk_math *math, uint64_t word)
{
	int (*create_params)(void **), (*set)(void *, int, int), status = MATH_OK;

	*(void **)&create_params = SOLVER("cusolverDnCreateParams");
	*(void **)&set = SOLVER("cusolverDnSetAdvOptions");
	*(void **)&math->end_params = SOLVER("cusolverDnDestroyParams");
	if (!create_params || !set || !math->end_params)
		return SOLVER_NOT_SUPPORTED;
	if (!math->params) {
		status = create_params(&math->params);
		math->params_word = SOLVER_PARAMS;
	}
	for (int i = 0; i < SOLVER_TUNED && status == MATH_OK; i++) {
		uint64_t mask = 0xffull << 8 * i;

		if ((math->params_word ^ word) & mask)
			status = set(math->params, i, (int)((word & mask) >> 8 * i));
		if (status == MATH_OK)
			math->params_word = (math->params_word & ~mask) | (word & mask);
	}
	return status;
}

static int take_params(struct wk_math *math, uint64_t *word)
{
	int status = MATH_OK;

	if (!*word)
		return MATH_OK;
	status = *word & SOLVER_PARAMS ? set_params(math, *word) : SOLVER_INVALID_VALUE;
	*word = (uintptr_t)math->params;
	return status;
}

/* ---- calls */

static int lend(uint64_t *word, uint64_t bytes, void **scratch)
{
	*word = 0;
	if (!bytes)
		return MATH_OK;
	*scratch = bytes <= SOLVER_SCRATCH ? malloc(bytes) : NULL;
	*word = (uintptr_t)*scratch;
	return *scratch ? MATH_OK : SOLVER_ALLOC_FAILED;
}

bool wk_solver_lends(const struct math_call *call)
{
	const struct blas_function *f = blas_find(solver_functions, SOLVER_FUNCTIONS, call->function);
	uint64_t bytes = 0;

	for (unsigned int i = 0; f && i < f->count; i++)
		if (f->arguments[i].kind == BLAS_SCRATCH && call->length >= (i + 2) * sizeof(bytes))
			memcpy(&bytes, call->arguments + (i + 1) * sizeof(bytes), sizeof(bytes));
	return bytes;
}

int wk_solver_begin(struct math_call *call, const struct blas_function *f, uint64_t *words, void **scratch)
{
	int status = MATH_OK;

	for (unsigned int i = 0; i < f->count && status == MATH_OK; i++) {
		const struct blas_argument *a = &f->arguments[i];

		if (blas_is_object(a))
			status = take_object(call, a, &words[i]);
		else if (a->kind == BLAS_PARAMS)
			status = take_params(call->math, &words[i]);
		else if (a->kind == BLAS_SCRATCH)
			status = lend(&words[i], words[i + 1], scratch);
		else if (a->kind == BLAS_HOST && (!words[i] || !call->values)) /* the library would write there */
			status = SOLVER_INVALID_VALUE;
	}
	if (status != MATH_OK) {
		free(*scratch);
		*scratch = NULL;
	}
	return status;
}
