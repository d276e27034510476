/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algorithms. There are two, which compute the same: one without workspace, and one that takes some, so that programs that
 * choose by it have a choice.
 */
#include <string.h>

#include "lt_exports.h"

enum { ALGO_MAGIC = 0x416c676f, ALGORITHMS = 2, SPLIT_WORKSPACE = 1 << 20 };

#define AT(id, member) { id, offsetof(struct lt_algo, member), sizeof(((struct lt_algo *)0)->member) }

static const struct lt_attribute settings[] = {
	AT(0, id),     AT(1, tile),   AT(2, split_k), AT(3, reduction), AT(4, swizzle),
	AT(5, option), AT(6, stages), AT(7, inner),   AT(8, cluster),
};

static struct lt_algo make(int id)
{
	return (struct lt_algo){ .magic = ALGO_MAGIC, .id = id, .split_k = 1 + id, .reduction = id ? 2 : 0 };
}

int64_t lt_algo_workspace(const struct lt_algo *algo)
{
	if (algo->magic != ALGO_MAGIC || algo->id < 0 || algo->id >= ALGORITHMS)
		return -1;
	return algo->split_k > 1 ? SPLIT_WORKSPACE : 0;
}

static int read_problem(struct lt_problem *p, const void *desc, const void *a, const void *b, const void *c, const void *d)
{
	if (!desc || !a || !b || !c || !d)
		return BL_INVALID_VALUE;
	memcpy(&p->desc, desc, sizeof p->desc);
	memcpy(&p->a, a, sizeof p->a);
	memcpy(&p->b, b, sizeof p->b);
	memcpy(&p->c, c, sizeof p->c);
	memcpy(&p->d, d, sizeof p->d);
	return lt_check(p);
}

static struct lt_result describe(const struct lt_algo *algo)
{
	return (struct lt_result){ .algo = *algo, .workspace = (size_t)lt_algo_workspace(algo), .state = BL_SUCCESS, .waves = 1 };
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
				   struct lt_result *results, int *found)
{
	const struct lt_preference *wish = preference;
	struct lt_problem p;
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!wish || !results || !found || wanted < 1)
		return BL_INVALID_VALUE;
	*found = 0;
	status = read_problem(&p, desc, a, b, c, d);
	if (status != BL_SUCCESS)
		return status;
	for (int id = 0; id < ALGORITHMS && *found < wanted; id++) {
		struct lt_algo algo = make(id);

		if ((uint64_t)lt_algo_workspace(&algo) <= wish->workspace)
			results[(*found)++] = describe(&algo);
	}
	return *found ? BL_SUCCESS : BL_NOT_SUPPORTED;
}

int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids, int *found)
{
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (wanted < 1 || !ids || !found)
		return BL_INVALID_VALUE;
	*found = 0;
	status = lt_check_types(compute, scale, a, b, c, d);
	for (int id = 0; status == BL_SUCCESS && id < ALGORITHMS && *found < wanted; id++)
		ids[(*found)++] = id;
	return status;
}

int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id, struct lt_algo *algo)
{
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!algo || id < 0 || id >= ALGORITHMS)
		return BL_INVALID_VALUE;
	status = lt_check_types(compute, scale, a, b, c, d);
	if (status == BL_SUCCESS)
		*algo = make(id);
	return status;
}

int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const struct lt_algo *algo,
			    struct lt_result *result)
{
	struct lt_problem p;
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!algo || !result)
		return BL_INVALID_VALUE;
	status = read_problem(&p, desc, a, b, c, d);
	if (status == BL_SUCCESS && lt_algo_workspace(algo) < 0)
		status = BL_NOT_SUPPORTED;
	if (status == BL_SUCCESS)
		*result = describe(algo);
	return status;
}

int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algo *algo, int id, const void *value, size_t size)
{
	if (!algo || id == 0)
		return BL_INVALID_VALUE;
	return lt_set(settings, sizeof settings / sizeof *settings, algo, id, value, size);
}

int cublasLtMatmulAlgoConfigGetAttribute(const struct lt_algo *algo, int id, void *value, size_t size, size_t *written)
{
	return lt_get(settings, sizeof settings / sizeof *settings, algo, id, value, size, written);
}

/* Capabilities of 32 bits; both algorithms have the same, but for the parts of K. */
static const struct {
	int id;
	uint32_t value;
} capabilities[] = {
	{ 0, 1 },   /* K in parts */
	{ 1, 7 },   /* reductions */
	{ 2, 0 },   /* swizzling */
	{ 3, 1 },   /* batches with strides */
	{ 4, 1 },   /* D apart from C */
	{ 5, 0 },   /* triangles */
	{ 7, 0 },   /* the largest option */
	{ 10, 0 },  /* orders beyond columns and rows */
	{ 11, 3 },  /* scalars on the host and on the device */
	{ 12, LT_DEFAULT | LT_RELU | LT_BIAS | LT_DRELU | LT_BGRAD | LT_GELU | LT_DGELU | LT_BGRADA | LT_BGRADB },
	{ 14, 0 },  /* negative leading dimensions */
	{ 16, 1 },  { 17, 1 }, { 18, 1 }, { 19, 1 }, /* alignments */
	{ 21, 0 },  { 22, 0 }, { 23, 0 }, /* arrays of addresses, emulation, groups */
};

int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algo *algo, int id, void *value, size_t size, size_t *written)
{
	static const uint64_t implementation = UINT64_C(1) << 8 | 1; /* fused multiply-add, single precision */
	static const uint32_t undefined;

	if (!algo || lt_algo_workspace(algo) < 0)
		return BL_INVALID_VALUE;
	if (id == 6 || id == 13) /* tiles and stages: an array of one */
		return lt_give(&undefined, sizeof undefined, value, size, written);
	if (id == 15)
		return lt_give(&implementation, sizeof implementation, value, size, written);
	for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++)
		if (capabilities[i].id == id)
			return lt_give(&capabilities[i].value, sizeof capabilities[i].value, value, size, written);
	return BL_INVALID_VALUE;
}
