/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters, and objects of the Jacobi methods. The host has an object once one is used here; many programs make one for each
 * call, so that those of objects that have ended are kept for the next. What they are set to travels with each call.
 */
#include <stdlib.h>

#include "solver.h"

/* MARK: above an object's kind, so that what is none is noticed. */
enum { SPARES = 16, TOLERANCE = 1, SWEEPS = 2, SORT = 4 };
#define MARK 0x7667736400000000

struct spare {
	uint64_t kind, id, owner, set; /* set: what the host's has been set to, which cannot be taken back */
};

static struct spare spares[SPARES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct solver_object *solver_object(void *object, uint64_t kind)
{
	struct solver_object *o = object;

	return o && o->kind == (MARK | kind) ? o : NULL;
}

/* ---- the host's objects */

static void set_aside(const struct solver_object *o)
{
	struct spare *s = spares;

	if (!o->id || !math_channel()->alive(o->id)) /* it ended with its context */
		return;
	if (!math_channel()->alive(o->owner)) { /* no call with that handle asks for it again */
		math_channel()->destroy(o->id);
		return;
	}
	pthread_mutex_lock(&lock);
	while (s < spares + SPARES && s->id)
		s++;
	if (s < spares + SPARES)
		*s = (struct spare){ o->kind, o->id, o->owner, o->settings.set };
	pthread_mutex_unlock(&lock);
	if (s == spares + SPARES)
		math_channel()->destroy(o->id);
}

static uint64_t take_spare(uint64_t kind, uint64_t owner, uint64_t set)
{
	uint64_t found = 0;

	pthread_mutex_lock(&lock);
	for (struct spare *s = spares; s < spares + SPARES && !found; s++)
		if (s->id && s->kind == kind && s->owner == owner && !(s->set & ~set)) {
			found = s->id;
			s->id = 0;
		}
	pthread_mutex_unlock(&lock);
	return found;
}

void solver_forget_objects(uint64_t owner)
{
	pthread_mutex_lock(&lock);
	for (struct spare *s = spares; s < spares + SPARES; s++) {
		if (!s->id || s->owner != owner)
			continue;
		if (math_channel()->alive(s->id))
			math_channel()->destroy(s->id);
		s->id = 0;
	}
	pthread_mutex_unlock(&lock);
}

static int make(struct solver_handle *h, uint64_t kind, uint64_t *id)
{
	uint64_t nothing = 0;
	struct math_request request = { .handle = h->id, .function = kind & ~MARK, .wait = MATH_ASK, .arguments = &nothing,
					.values = &nothing, .room = sizeof(nothing),
					.name = kind == (MARK | SOLVER_SYEVJ) ? "cusolverDnCreateSyevjInfo" : "cusolverDnCreateGesvdjInfo" };
	int result = math_channel()->make(&request, id);

	return result ? solver_status(result) : request.status;
}

int solver_find_object(struct solver_handle *h, struct solver_object *o)
{
	int status;

	if (o->id && o->owner == h->id)
		return SOLVER_OK;
	set_aside(o);
	o->owner = h->id;
	o->id = take_spare(o->kind, h->id, o->settings.set);
	if (o->id)
		return SOLVER_OK;
	status = make(h, o->kind, &o->id);
	if (status != SOLVER_OK)
		o->id = 0;
	return status;
}

/* ---- what programs call */

static int create(void **object, uint64_t kind)
{
	struct solver_object *o = object ? calloc(1, sizeof(*o)) : NULL;

	if (!object)
		return SOLVER_INVALID_VALUE;
	*object = o;
	if (!o)
		return SOLVER_ALLOC_FAILED;
	o->kind = MARK | kind;
	pthread_mutex_init(&o->lock, NULL);
	return SOLVER_OK;
}

static int destroy(void *object, uint64_t kind)
{
	struct solver_object *o = solver_object(object, kind);

	if (!object)
		return SOLVER_OK;
	if (!o)
		return SOLVER_INVALID_VALUE;
	if (math_channel())
		set_aside(o);
	o->kind = 0;
	pthread_mutex_destroy(&o->lock);
	free(o);
	return SOLVER_OK;
}

static int set_tolerance(struct solver_object *o, double tolerance)
{
	if (!o)
		return SOLVER_INVALID_VALUE;
	o->settings.tolerance = tolerance;
	o->settings.set |= TOLERANCE;
	return SOLVER_OK;
}

static int set_sweeps(struct solver_object *o, int sweeps)
{
	if (!o)
		return SOLVER_INVALID_VALUE;
	o->settings.sweeps = sweeps;
	o->settings.set |= SWEEPS;
	return SOLVER_OK;
}

static int set_sort(struct solver_object *o, int sort)
{
	if (!o)
		return SOLVER_INVALID_VALUE;
	o->settings.sort = sort;
	o->settings.set |= SORT;
	return SOLVER_OK;
}

#define OBJECT(name, prefix, number)                                                  \
	SOLVER_API int cusolverDnCreate##name##Info(void **object);                   \
	int cusolverDnCreate##name##Info(void **object)                               \
	{                                                                             \
		return create(object, number);                                        \
	}                                                                             \
	SOLVER_API int cusolverDnDestroy##name##Info(void *object);                   \
	int cusolverDnDestroy##name##Info(void *object)                               \
	{                                                                             \
		return destroy(object, number);                                       \
	}                                                                             \
	SOLVER_API int cusolverDnX##prefix##SetTolerance(void *object, double value); \
	int cusolverDnX##prefix##SetTolerance(void *object, double value)             \
	{                                                                             \
		return set_tolerance(solver_object(object, number), value);           \
	}                                                                             \
	SOLVER_API int cusolverDnX##prefix##SetMaxSweeps(void *object, int value);    \
	int cusolverDnX##prefix##SetMaxSweeps(void *object, int value)                \
	{                                                                             \
		return set_sweeps(solver_object(object, number), value);              \
	}                                                                             \
	SOLVER_API int cusolverDnX##prefix##SetSortEig(void *object, int value);      \
	int cusolverDnX##prefix##SetSortEig(void *object, int value)                  \
	{                                                                             \
		return set_sort(solver_object(object, number), value);                \
	}

OBJECT(Syevj, syevj, SOLVER_SYEVJ)
OBJECT(Gesvdj, gesvdj, SOLVER_GESVDJ)

/* ---- parameters */

static struct solver_params *find_params(void *params)
{
	struct solver_params *p = params;

	return p && p->magic == SOLVER_PARAMETERS ? p : NULL;
}

bool solver_read_params(const void *params, uint64_t *word)
{
	const struct solver_params *p = params;

	*word = p && p->magic == SOLVER_PARAMETERS ? p->word : 0;
	return !p || *word;
}

SOLVER_API int cusolverDnCreateParams(void **params);
int cusolverDnCreateParams(void **params)
{
	struct solver_params *p = params ? calloc(1, sizeof(*p)) : NULL;

	if (!params)
		return SOLVER_INVALID_VALUE;
	*params = p;
	if (!p)
		return SOLVER_ALLOC_FAILED;
	*p = (struct solver_params){ SOLVER_PARAMETERS, SOLVER_PARAMS };
	return SOLVER_OK;
}

SOLVER_API int cusolverDnDestroyParams(void *params);
int cusolverDnDestroyParams(void *params)
{
	struct solver_params *p = find_params(params);

	if (!p)
		return SOLVER_INVALID_VALUE;
	p->magic = 0;
	free(p);
	return SOLVER_OK;
}

SOLVER_API int cusolverDnSetAdvOptions(void *params, int function, int algorithm);
int cusolverDnSetAdvOptions(void *params, int function, int algorithm)
{
	struct solver_params *p = find_params(params);

	if (!p || function < 0 || function >= SOLVER_TUNED || algorithm < 0 || algorithm >= SOLVER_ALGORITHMS)
		return SOLVER_INVALID_VALUE;
	p->word &= ~(0xffull << 8 * function);
	p->word |= (uint64_t)algorithm << 8 * function;
	return SOLVER_OK;
}
