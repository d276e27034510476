/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: by products of the filter with patches of the image that are spread out in memory, or by plain loops. */
#include <stdlib.h>

#include "convolution.h"
#include "gemm.h"

/* One of an image's elements under one tap of the filter, seen from one output. */
static bool find_input(const struct dn_geometry *g, int64_t output, int64_t tap, int64_t *input)
{
	int64_t at = 0, part = 1;

	for (int i = DN_MAX_SPATIAL - 1; i >= 0; i--) {
		int64_t o = output % g->out[i], t = tap % g->filter[i];
		int64_t in = o * g->stride[i] - g->pre[i] + t * g->dilation[i];

		if (in < 0 || in >= g->in[i])
			return false;
		at += in * part;
		part *= g->in[i];
		output /= g->out[i];
		tap /= g->filter[i];
	}
	*input = at;
	return true;
}

/* Where a tap's weight is: mathematics' convolution has the filter back to front. */
static int64_t weight_of(const struct dn_geometry *g, int64_t tap)
{
	return g->flip ? g->taps - 1 - tap : tap;
}

static double get(const void *data, bool wide, int64_t i)
{
	return wide ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void add(void *data, bool wide, int64_t i, double value)
{
	if (wide)
		((double *)data)[i] += value;
	else
		((float *)data)[i] += (float)value;
}

static int64_t tile_size(const struct dn_geometry *g, int64_t tiles)
{
	return (g->outputs + tiles - 1) / tiles;
}

int64_t dn_patches_bytes(const struct dn_geometry *g, bool wide, int64_t images, int64_t tiles)
{
	int64_t bytes;

	if (__builtin_mul_overflow(g->c * g->taps, tile_size(g, tiles), &bytes) || __builtin_mul_overflow(bytes, images, &bytes) ||
	    __builtin_mul_overflow(bytes, wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float), &bytes))
		return -1;
	return bytes;
}

/* For each tap a row with each output's element of the image; OUTSIDE: padding. To be freed. */
enum { OUTSIDE = -1 };
static int32_t *find_inputs(const struct dn_geometry *g)
{
	size_t bytes = sizeof(int32_t);
	int32_t *inputs;
	int64_t input = 0;

	if (__builtin_mul_overflow(bytes, (size_t)g->taps, &bytes) || __builtin_mul_overflow(bytes, (size_t)g->outputs, &bytes))
		return NULL;
	inputs = malloc(bytes + 1);
	for (int64_t tap = 0; inputs && tap < g->taps; tap++)
		for (int64_t o = 0; o < g->outputs; o++)
			inputs[tap * g->outputs + o] = find_input(g, o, tap, &input) ? (int32_t)input : OUTSIDE;
	return inputs;
}

/* A piece of work with one image and one group: some of its outputs, with the patches that they see. */
struct piece {
	const struct dn_geometry *g;
	const int32_t *inputs;
	bool wide;
	char *x, *w, *y, *patches;
	int64_t from, n;
};

/* The inputs of the piece's outputs under a tap. */
static const int32_t *row_of(const struct piece *p, int64_t tap)
{
	return p->inputs + tap * p->g->outputs + p->from;
}

/* Patches have a row for each channel and tap, a column for each output. */
static void spread(const struct piece *p)
{
	for (int64_t i = 0; i < p->g->c * p->g->taps; i++) {
		int64_t c = i / p->g->taps, tap = i % p->g->taps, plane = c * p->g->inputs;
		int64_t row = (c * p->g->taps + weight_of(p->g, tap)) * p->n;
		const int32_t *inputs = row_of(p, tap);

		for (int64_t o = 0; o < p->n && p->wide; o++)
			((double *)p->patches)[row + o] = inputs[o] < 0 ? 0 : ((const double *)p->x)[plane + inputs[o]];
		for (int64_t o = 0; o < p->n && !p->wide; o++)
			((float *)p->patches)[row + o] = inputs[o] < 0 ? 0 : ((const float *)p->x)[plane + inputs[o]];
	}
}

/* The other way: each element of the image gets the sum of what the patches have of it. */
static void gather(const struct piece *p)
{
	for (int64_t i = 0; i < p->g->c * p->g->taps; i++) {
		int64_t c = i / p->g->taps, tap = i % p->g->taps, plane = c * p->g->inputs;
		int64_t row = (c * p->g->taps + weight_of(p->g, tap)) * p->n;
		const int32_t *inputs = row_of(p, tap);

		for (int64_t o = 0; o < p->n; o++)
			if (inputs[o] >= 0)
				add(p->x, p->wide, plane + inputs[o], get(p->patches, p->wide, row + o));
	}
}

static void multiply_piece(const struct piece *p, enum dn_direction direction)
{
	size_t size = p->wide ? sizeof(double) : sizeof(float);
	char *y = p->y + (size_t)p->from * size;
	int64_t depth = p->g->c * p->g->taps;
	struct dn_matrix w = { p->w, depth, false }, response = { y, p->g->outputs, false }, patches = { p->patches, p->n, false };

	if (direction == DN_GO_DATA) {
		w.transposed = true;
		dn_gemm(p->wide, depth, p->n, p->g->k, w, response, p->patches, p->n, false);
		gather(p);
		return;
	}
	spread(p);
	if (direction == DN_GO_FORWARD) {
		dn_gemm(p->wide, p->g->k, p->n, depth, w, patches, y, p->g->outputs, false);
		return;
	}
	patches.transposed = true;
	dn_gemm(p->wide, p->g->k, depth, p->n, response, patches, p->w, depth, true);
}

/* One weight with all outputs: rows of the image and the response. */
static void loop_weight(const struct piece *p, enum dn_direction direction, int64_t weight, int64_t plane, int64_t response,
			const int32_t *inputs)
{
	double w = get(p->w, p->wide, weight), sum = 0;

	for (int64_t o = 0; o < p->n; o++) {
		int64_t in = plane + inputs[o], out = response + o;

		if (inputs[o] < 0)
			continue;
		if (direction == DN_GO_FORWARD)
			add(p->y, p->wide, out, w * get(p->x, p->wide, in));
		else if (direction == DN_GO_DATA)
			add(p->x, p->wide, in, w * get(p->y, p->wide, out));
		else
			sum += get(p->x, p->wide, in) * get(p->y, p->wide, out);
	}
	if (direction == DN_GO_FILTER)
		add(p->w, p->wide, weight, sum);
}

static void loop_piece(const struct piece *p, enum dn_direction direction)
{
	for (int64_t k = 0; k < p->g->k; k++) {
		for (int64_t i = 0; i < p->g->c * p->g->taps; i++) {
			int64_t c = i / p->g->taps, tap = i % p->g->taps;

			loop_weight(p, direction, (k * p->g->c + c) * p->g->taps + weight_of(p->g, tap), c * p->g->inputs,
				    k * p->g->outputs, row_of(p, tap));
		}
	}
}

static void convolve_image(struct piece *p, enum dn_direction direction, const struct dn_patches *patches)
{
	int64_t tile = tile_size(p->g, patches->memory ? patches->tiles : 1);

	for (p->from = 0; p->from < p->g->outputs; p->from += tile) {
		p->n = p->g->outputs - p->from < tile ? p->g->outputs - p->from : tile;
		if (patches->memory)
			multiply_piece(p, direction);
		else
			loop_piece(p, direction);
	}
}

bool dn_convolve(const struct dn_geometry *g, enum dn_direction direction, bool wide, void *x, void *w, void *y,
		 const struct dn_patches *patches)
{
	size_t size = wide ? sizeof(double) : sizeof(float);
	size_t image = (size_t)(g->c * g->inputs) * size, filter = (size_t)(g->k * g->c * g->taps) * size;
	size_t response = (size_t)(g->k * g->outputs) * size;
	int64_t spread_bytes = patches->memory ? dn_patches_bytes(g, wide, 1, patches->tiles) : 0;
	int32_t *inputs = find_inputs(g);

	if (!inputs)
		return false;
	for (int64_t i = 0; i < g->n; i++) {
		for (int64_t group = 0; group < g->g; group++) {
			size_t at = (size_t)(i * g->g + group);
			struct piece p = {
				.g = g, .inputs = inputs, .wide = wide, .x = (char *)x + at * image, .w = (char *)w + (size_t)group * filter,
				.y = (char *)y + at * response,
			};

			if (patches->memory)
				p.patches = (char *)patches->memory + i % patches->images * spread_bytes;
			convolve_image(&p, direction, patches);
		}
	}
	free(inputs);
	return true;
}
