/* SPDX-License-Identifier: Apache-2.0 */
/* Generators begin and end, and what is set of them. */
#include <stdlib.h>
#include <string.h>

#include "rand.h"

static struct math_places places = MATH_PLACES;

static int make(struct rand_generator *g)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	uint64_t type = (uint64_t)g->type, nothing;
	struct math_request request = { .function = RAND_GENERATOR, .arguments = &type, .length = sizeof(type), .values = &nothing,
					.name = "curandCreateGenerator" };
	int status = 0, result = math_enter(&places, VG_MATH_RAND, &request.handle, NULL, &status);

	if (result == 801)
		return rand_unsupported("cuRAND, which the host does not have,", &told);
	if (result || status)
		return result ? rand_status(result) : RAND_ALLOCATION_FAILED;
	result = math_channel()->make(&request, &g->id);
	return result ? rand_status(result) : request.status;
}

int curandCreateGenerator(struct rand_generator **generator, int type)
{
	struct rand_generator *g;
	int status;

	if (!generator)
		return RAND_NOT_INITIALIZED;
	if (!math_channel() || !math_channel()->make || !math_channel()->current)
		return RAND_INITIALIZATION_FAILED;
	g = calloc(1, sizeof(*g));
	if (!g)
		return RAND_ALLOCATION_FAILED;
	g->type = type;
	g->dimensions = 1;
	status = make(g);
	if (status != RAND_OK) {
		free(g);
		return status;
	}
	g->magic = RAND_MAGIC;
	pthread_mutex_init(&g->lock, NULL);
	*generator = g;
	return RAND_OK;
}

int curandDestroyGenerator(struct rand_generator *g)
{
	int result;

	if (!g || g->magic != RAND_MAGIC)
		return RAND_NOT_INITIALIZED;
	result = math_channel()->alive(g->id) ? math_channel()->destroy(g->id) : 0;
	g->magic = 0;
	pthread_mutex_destroy(&g->lock);
	free(g);
	return rand_status(result);
}

int curandSetStream(struct rand_generator *generator, void *stream)
{
	struct rand_generator *g = rand_enter(generator);

	if (!g)
		return RAND_NOT_INITIALIZED;
	g->stream = stream;
	rand_leave(g);
	return RAND_OK;
}

/* ---- what is set, in order: what was set before of the same kind is as if it had not been */

static void forget(struct rand_generator *g, enum rand_which which)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < RAND_SETTINGS; i++)
		if (g->settings[i].which != which)
			g->settings[kept++] = g->settings[i];
	memset(&g->settings[kept], 0, (RAND_SETTINGS - kept) * sizeof(g->settings[0]));
}

static void set(struct rand_generator *g, enum rand_which which, uint64_t value)
{
	unsigned int place = 0;

	forget(g, which);
	while (g->settings[place].which)
		place++;
	g->settings[place] = (struct rand_setting){ which, value };
}

int curandSetPseudoRandomGeneratorSeed(struct rand_generator *generator, unsigned long long seed)
{
	struct rand_generator *g = rand_enter(generator);
	int status = g ? rand_is_quasi(g->type) ? RAND_TYPE_ERROR : RAND_OK : RAND_NOT_INITIALIZED;

	if (status == RAND_OK)
		set(g, RAND_SEED, seed);
	if (g)
		rand_leave(g);
	return status;
}

int curandSetGeneratorOffset(struct rand_generator *generator, unsigned long long offset)
{
	struct rand_generator *g = rand_enter(generator);
	int status = g ? RAND_OK : RAND_NOT_INITIALIZED;

	/* as the library says of those on the CPU */
	if (g && (g->type == RAND_MTGP32 || g->type == RAND_MT19937))
		status = RAND_TYPE_ERROR;
	if (status == RAND_OK)
		set(g, RAND_OFFSET, offset);
	if (g)
		rand_leave(g);
	return status;
}

static int set_ordering(struct rand_generator *g, int order)
{
	bool quasi = rand_is_quasi(g->type);
	int status = RAND_OK;

	if (quasi ? order != RAND_QUASI_ORDINARY : order < RAND_PSEUDO_BEST || order > RAND_PSEUDO_DYNAMIC)
		return RAND_OUT_OF_RANGE;
	set(g, RAND_ORDERING, (uint64_t)order);
	g->begun = false;
	/* these are only of some types */
	if (order == RAND_PSEUDO_SEEDED || order == RAND_PSEUDO_DYNAMIC)
		status = rand_settle(g);
	if (status != RAND_OK)
		forget(g, RAND_ORDERING);
	return status;
}

int curandSetGeneratorOrdering(struct rand_generator *generator, int order)
{
	struct rand_generator *g = rand_enter(generator);
	int status = g ? set_ordering(g, order) : RAND_NOT_INITIALIZED;

	if (g)
		rand_leave(g);
	return status;
}

int curandSetQuasiRandomGeneratorDimensions(struct rand_generator *generator, unsigned int dimensions)
{
	struct rand_generator *g = rand_enter(generator);
	int status = g ? rand_is_quasi(g->type) ? RAND_OK : RAND_TYPE_ERROR : RAND_NOT_INITIALIZED;

	if (status == RAND_OK && (!dimensions || dimensions > RAND_MOST_DIMENSIONS))
		status = RAND_OUT_OF_RANGE;
	if (status == RAND_OK) {
		set(g, RAND_DIMENSIONS, dimensions);
		g->dimensions = dimensions;
		g->begun = false;
	}
	if (g)
		rand_leave(g);
	return status;
}
