/* SPDX-License-Identifier: Apache-2.0 */
/* Generators begin and end, and what is set of them. */
#include <stdlib.h>

#include "rand.h"

int rd_status(int status)
{
	switch (status) {
	case BL_SUCCESS:
		return RD_SUCCESS;
	case BL_ALLOC_FAILED:
		return RD_ALLOCATION_FAILED;
	case BL_NOT_INITIALIZED:
		return RD_INITIALIZATION_FAILED;
	case BL_EXECUTION_FAILED:
		return RD_LAUNCH_FAILURE;
	default:
		return RD_INTERNAL_ERROR;
	}
}

struct rand_generator *rd_generator(struct rand_generator *g)
{
	return g && g->magic == RD_MAGIC ? g : NULL;
}

/* MTGP32 needs tables of parameters, quasirandom generators tables of direction numbers: a simulated machine has neither. */
static int check_type(int *type)
{
	switch (*type) {
	case RD_DEFAULT:
		*type = RD_XORWOW;
		return RD_SUCCESS;
	case RD_XORWOW:
	case RD_MRG32K3A:
	case RD_MT19937:
	case RD_PHILOX:
		return RD_SUCCESS;
	case RD_MTGP32:
		return RD_ARCH_MISMATCH;
	default:
		return *type >= RD_QUASI && *type <= RD_LAST_QUASI ? RD_ARCH_MISMATCH : RD_TYPE_ERROR;
	}
}

int curandCreateGenerator(struct rand_generator **generator, int type)
{
	struct bl_context *context;
	struct rand_generator *g;
	int status = generator ? check_type(&type) : RD_NOT_INITIALIZED;

	if (status == RD_SUCCESS)
		status = rd_status(bl_context_current(&context));
	if (status != RD_SUCCESS)
		return status;
	g = calloc(1, sizeof *g);
	if (!g)
		return RD_ALLOCATION_FAILED;
	g->state = rd_state_new(type);
	if (!g->state || bl_driver.cuMemAlloc_v2(&g->own, RD_OWN_BYTES) != CUDA_SUCCESS) {
		free(g->state);
		free(g);
		return RD_ALLOCATION_FAILED;
	}
	g->magic = RD_MAGIC;
	g->settings.ordering = RD_ORDINARY;
	*generator = g;
	return RD_SUCCESS;
}

int curandDestroyGenerator(struct rand_generator *generator)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	bl_driver.cuMemFree_v2(g->own);
	rd_state_leave(g->state);
	g->magic = 0;
	free(g);
	return RD_SUCCESS;
}

int curandSetStream(struct rand_generator *generator, void *stream)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	g->stream = stream;
	return RD_SUCCESS;
}

int curandSetPseudoRandomGeneratorSeed(struct rand_generator *generator, unsigned long long seed)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	g->settings.seed = seed;
	g->settings.seeded++;
	return RD_SUCCESS;
}

int curandSetGeneratorOffset(struct rand_generator *generator, unsigned long long offset)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	if (g->state->type == RD_MT19937)
		return RD_TYPE_ERROR;
	g->settings.offset = offset;
	g->settings.moved++;
	return RD_SUCCESS;
}

/* From the beginning: one's numbers have another order. */
int curandSetGeneratorOrdering(struct rand_generator *generator, int order)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	if ((order < RD_BEST || order > RD_LEGACY) || (order == RD_SEEDED && g->state->type != RD_XORWOW))
		return RD_OUT_OF_RANGE;
	g->settings.ordering = order;
	g->settings.seeded++;
	g->settings.moved++;
	return RD_SUCCESS;
}

/* There are no quasirandom ones. */
int curandSetQuasiRandomGeneratorDimensions(struct rand_generator *generator, unsigned int dimensions)
{
	(void)dimensions;
	return rd_generator(generator) ? RD_TYPE_ERROR : RD_NOT_INITIALIZED;
}

/* ---- versions */

int curandGetVersion(int *version)
{
	if (!version)
		return RD_OUT_OF_RANGE;
	*version = VERSION / 10000 * 1000 + VERSION % 10000 / 100 * 100 + VERSION % 100;
	return RD_SUCCESS;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
int curandGetProperty(int type, int *value)
{
	if (!value || type < 0 || type > 2)
		return RD_OUT_OF_RANGE;
	*value = type == 0 ? VERSION / 10000 : type == 1 ? VERSION / 100 % 100 : VERSION % 100;
	return RD_SUCCESS;
}
