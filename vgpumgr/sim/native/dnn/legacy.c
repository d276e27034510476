/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms of convolutions before graphs. Those that are simulated stand for the engines of graphs. */
#include <string.h>

#include "legacy.h"

enum { LOOPS = 1, PRODUCTS = 0, BATCH = 2, NONE = -1 };
enum { TILES = 4, MOST_ALGORITHMS = 8 };

/* By direction and number (cudnnConvolutionFwdAlgo_t and its kin): the engine, and in how many tiles it works. */
static const struct {
	int count;
	struct {
		signed char engine, tiles;
	} algorithms[MOST_ALGORITHMS];
} known[] = {
	/* IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM, DIRECT, FFT, FFT_TILING, WINOGRAD, WINOGRAD_NONFUSED */
	[DN_GO_FORWARD] = { 8, { { LOOPS, 1 }, { PRODUCTS, TILES }, { PRODUCTS, 1 }, { NONE, 0 }, { NONE, 0 }, { NONE, 0 },
				 { NONE, 0 }, { NONE, 0 } } },
	/* 0, 1, FFT, FFT_TILING, WINOGRAD, WINOGRAD_NONFUSED */
	[DN_GO_DATA] = { 6, { { LOOPS, 1 }, { PRODUCTS, 1 }, { NONE, 0 }, { NONE, 0 }, { NONE, 0 }, { NONE, 0 } } },
	/* 0, 1, FFT, 3, WINOGRAD, WINOGRAD_NONFUSED, FFT_TILING */
	[DN_GO_FILTER] = { 7, { { LOOPS, 1 }, { PRODUCTS, 1 }, { NONE, 0 }, { BATCH, 1 }, { NONE, 0 }, { NONE, 0 }, { NONE, 0 } } },
};

int dn_legacy_count(enum dn_direction direction)
{
	return known[direction].count;
}

int dn_legacy_find(struct dn_legacy *l, enum dn_direction direction, const void *x, const void *w, const void *convolution,
		   const void *y)
{
	static const int kinds[] = { [DN_GO_FORWARD] = DN_D_FORWARD, [DN_GO_DATA] = DN_D_BACKWARD_DATA,
				     [DN_GO_FILTER] = DN_D_BACKWARD_FILTER };
	static const int outputs[] = { [DN_GO_FORWARD] = 2, [DN_GO_DATA] = 0, [DN_GO_FILTER] = 1 };
	const struct dn_filter_descriptor *filter = dn_object_find(w, DN_FILTER);
	int status;

	memset(l, 0, sizeof *l);
	l->direction = direction;
	l->x = dn_tensor_find(x);
	l->y = dn_tensor_find(y);
	l->w = filter && filter->tensor.nd ? &filter->tensor : NULL;
	l->description = dn_object_find(convolution, DN_CONVOLUTION);
	if (!l->x || !l->y || !l->w || !l->description || !l->description->operator.nd)
		return dn_fail(DN_BAD_PARAM, "a descriptor is missing or not set");
	l->operation.kind = kinds[direction];
	l->operation.output = outputs[direction];
	l->operation.compute = l->description->operator.compute;
	l->operation.wide = l->operation.compute == DN_DOUBLE || l->operation.compute == DN_INT32;
	status = dn_geometry_make(&l->description->operator, l->x, l->w, l->y, &l->operation.geometry);
	if (status == DN_SUCCESS && l->operation.geometry.g != l->description->groups)
		return dn_fail(DN_BAD_PARAM, "the tensors have another number of groups");
	return status;
}

int dn_legacy_setting(const struct dn_legacy *l, int algorithm, struct dn_setting *out, size_t *workspace)
{
	struct dn_operation operation = l->operation;
	struct dn_program program = { .n_operations = 1, .operations = &operation };
	int64_t bytes;

	if (algorithm < 0 || algorithm >= known[l->direction].count)
		return dn_fail(DN_BAD_PARAM, "no such algorithm");
	if (known[l->direction].algorithms[algorithm].engine == NONE)
		return dn_fail(DN_NOT_SUPPORTED, "an algorithm that is not simulated");
	out->engine = known[l->direction].algorithms[algorithm].engine;
	out->tiles = known[l->direction].algorithms[algorithm].tiles;
	bytes = dn_workspace(&program, out);
	if (bytes < 0)
		return dn_fail(DN_NOT_SUPPORTED, "a workspace larger than an address space");
	*workspace = (size_t)bytes;
	return DN_SUCCESS;
}

/* The later ones are faster. */
int dn_legacy_rank(const struct dn_legacy *l, size_t most, int wanted, int *returned, struct dn_performance *results)
{
	struct dn_setting setting;
	size_t workspace;
	int n = 0;

	if (wanted <= 0 || !returned || !results)
		return dn_fail(DN_BAD_PARAM, "no place for results");
	for (int i = known[l->direction].count - 1; i >= 0 && n < wanted; i--) {
		if (known[l->direction].algorithms[i].engine == NONE)
			continue;
		if (dn_legacy_setting(l, i, &setting, &workspace) != DN_SUCCESS || workspace > most)
			continue;
		results[n] = (struct dn_performance){
			.algorithm = i, .time = (float)(n + 1), .memory = workspace, .determinism = setting.engine != BATCH,
			.math = l->description->math,
		};
		n++;
	}
	*returned = n;
	return DN_SUCCESS;
}
