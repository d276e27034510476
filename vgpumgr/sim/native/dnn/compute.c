/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: operands are packed, computed in float or double, and rounded once when they are stored. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"
#include "gemm.h"

/* An operand of an operation, and where it is. */
struct operand {
	const struct dn_tensor *tensor;
	void *data;
};

static struct operand operand_of(const struct dn_program *p, const struct dn_operation *o, int role, void *const *data)
{
	int at = o->operands[role];

	return at < 0 ? (struct operand){ NULL, NULL } : (struct operand){ &p->tensors[at], data[at] };
}

/* A copy of all elements one after the other; zeros where it is about to be written. To be freed. */
static void *borrow(const struct operand *a, bool wide, bool is_output)
{
	void *copy = calloc((size_t)dn_elements(a->tensor) + 1, wide ? sizeof(double) : sizeof(float));

	if (copy && !is_output)
		dn_pack(a->tensor, a->data, wide, copy);
	return copy;
}

static bool convolve(const struct dn_program *p, const struct dn_operation *o, void *const *data, const struct dn_patches *patches)
{
	enum dn_direction direction = o->output == 2 ? DN_GO_FORWARD : o->output == 0 ? DN_GO_DATA : DN_GO_FILTER;
	struct operand operands[3];
	void *copies[3];
	bool good = true;

	for (int i = 0; i < 3; i++) {
		operands[i] = operand_of(p, o, i, data);
		copies[i] = borrow(&operands[i], o->wide, i == o->output);
		good &= copies[i] != NULL;
	}
	good = good && dn_convolve(&o->geometry, direction, o->wide, copies[0], copies[1], copies[2], patches);
	if (good)
		dn_unpack(operands[o->output].tensor, operands[o->output].data, o->wide, copies[o->output], o->alpha, o->beta);
	for (int i = 0; i < 3; i++)
		free(copies[i]);
	return good;
}

/* Stores alpha times an element, plus beta times the old one where beta is not 0. */
static void put(const struct dn_operation *o, const struct operand *y, int64_t at, double value)
{
	value *= o->alpha;
	if (o->beta != 0)
		value += o->beta * dn_get(y->data, y->tensor->type, at);
	dn_put(y->data, y->tensor->type, at, value);
}

/* The result may be an operand: each element is read before it is written. */
static void map(const struct dn_program *p, const struct dn_operation *o, void *const *data)
{
	struct operand operands[4], *y = &operands[3];
	int places[4] = { 0 };
	struct dn_walk w;

	*y = operand_of(p, o, 3, data);
	if (dn_elements(y->tensor) <= 0)
		return;
	dn_walk_begin(&w, y->tensor);
	for (int i = 3; i >= 0; i--) {
		operands[i] = operand_of(p, o, i, data);
		places[i] = w.n;
		if (operands[i].tensor)
			dn_walk_add(&w, operands[i].tensor);
	}
	do {
		double values[3] = { 0 }, index = o->pointwise.axis >= 0 ? (double)w.index[o->pointwise.axis] : 0;

		for (int i = 0; i < 3; i++)
			if (operands[i].tensor)
				values[i] = dn_get(operands[i].data, operands[i].tensor->type, w.at[places[i]]);
		put(o, y, w.at[places[3]], dn_pointwise_compute(&o->pointwise, values[0], values[1], values[2], index));
	} while (dn_walk_next(&w));
}

/* cudnnReduceTensorOp_t */
enum {
	REDUCE_ADD = 0,
	REDUCE_MUL = 1,
	REDUCE_MIN = 2,
	REDUCE_MAX = 3,
	REDUCE_AMAX = 4,
	REDUCE_MEAN = 5,
	REDUCE_NORM1 = 6,
	REDUCE_NORM2 = 7,
	REDUCE_MUL_NO_ZEROS = 8,
};

static double reduce(int kind, double sum, double value)
{
	switch (kind) {
	case REDUCE_ADD:
	case REDUCE_MEAN:
		return sum + value;
	case REDUCE_NORM1:
		return sum + fabs(value);
	case REDUCE_NORM2:
		return sum + value * value;
	case REDUCE_MUL:
		return sum * value;
	case REDUCE_MUL_NO_ZEROS:
		return value == 0 ? sum : sum * value;
	case REDUCE_MIN:
		return fmin(sum, value);
	case REDUCE_MAX:
		return fmax(sum, value);
	default:
		return fmax(sum, fabs(value));
	}
}

static double neutral(int kind)
{
	static const double values[] = { [REDUCE_MUL] = 1, [REDUCE_MIN] = INFINITY, [REDUCE_MAX] = -INFINITY,
					 [REDUCE_MUL_NO_ZEROS] = 1 };

	return values[kind];
}

/* What becomes of the sum of so many elements. */
static double conclude(int kind, double sum, double count)
{
	return kind == REDUCE_MEAN ? sum / count : kind == REDUCE_NORM2 ? sqrt(sum) : sum;
}

/* The same shape with elements one after the other. */
static struct dn_tensor packed_like(const struct dn_tensor *t)
{
	struct dn_tensor packed = *t;
	int64_t stride = 1;

	for (int i = t->nd - 1; i >= 0; i--) {
		packed.strides[i] = stride;
		stride *= t->dims[i];
	}
	return packed;
}

static bool reduce_tensor(const struct dn_program *p, const struct dn_operation *o, void *const *data)
{
	struct operand x = operand_of(p, o, 0, data), y = operand_of(p, o, 1, data);
	struct dn_tensor packed = packed_like(y.tensor);
	int64_t n = dn_elements(y.tensor);
	double *sums = calloc((size_t)n + 1, sizeof *sums);
	struct dn_walk w;

	if (!sums)
		return false;
	for (int64_t i = 0; i < n; i++)
		sums[i] = neutral(o->reduction);
	dn_walk_begin(&w, x.tensor);
	dn_walk_add(&w, x.tensor);
	dn_walk_add(&w, &packed);
	if (dn_elements(x.tensor) > 0) {
		do {
			double *sum = &sums[w.at[1]];

			*sum = reduce(o->reduction, *sum, dn_get(x.data, x.tensor->type, w.at[0]));
		} while (dn_walk_next(&w));
	}
	for (int64_t i = 0; i < n; i++)
		sums[i] = conclude(o->reduction, sums[i], (double)dn_elements(x.tensor) / (double)n);
	dn_unpack(y.tensor, y.data, true, sums, o->alpha, o->beta);
	free(sums);
	return true;
}

/* All batches of packed matrices. */
static void multiply_batches(const struct dn_operation *o, struct operand *operands, void **copies)
{
	struct dn_tensor a = packed_like(operands[0].tensor), b = packed_like(operands[1].tensor), c = packed_like(operands[2].tensor);
	int64_t m = c.dims[c.nd - 2], n = c.dims[c.nd - 1], k = a.dims[a.nd - 1];
	size_t size = o->wide ? sizeof(double) : sizeof(float);
	struct dn_walk w;

	if (dn_elements(&c) <= 0)
		return;
	a.nd = b.nd = c.nd = c.nd - 2;
	dn_walk_begin(&w, &c);
	dn_walk_add(&w, &a);
	dn_walk_add(&w, &b);
	dn_walk_add(&w, &c);
	do {
		struct dn_matrix left = { (char *)copies[0] + (size_t)w.at[0] * size, k ? k : 1, false };
		struct dn_matrix right = { (char *)copies[1] + (size_t)w.at[1] * size, n, false };

		dn_gemm(o->wide, m, n, k, left, right, (char *)copies[2] + (size_t)w.at[2] * size, n, false);
	} while (dn_walk_next(&w));
}

static bool multiply(const struct dn_program *p, const struct dn_operation *o, void *const *data)
{
	struct operand operands[3];
	void *copies[3];
	bool good = true;

	for (int i = 0; i < 3; i++) {
		operands[i] = operand_of(p, o, i, data);
		copies[i] = borrow(&operands[i], o->wide, i == o->output);
		good &= copies[i] != NULL;
	}
	if (good) {
		multiply_batches(o, operands, copies);
		dn_unpack(operands[2].tensor, operands[2].data, o->wide, copies[2], 1, 0);
	}
	for (int i = 0; i < 3; i++)
		free(copies[i]);
	return good;
}

bool dn_compute(const struct dn_program *p, const struct dn_operation *o, void *const *data, const struct dn_patches *patches)
{
	switch (o->kind) {
	case DN_D_POINTWISE_OP:
		map(p, o, data);
		return true;
	case DN_D_MATMUL_OP:
		return multiply(p, o, data);
	case DN_D_REDUCTION_OP:
		return reduce_tensor(p, o, data);
	default:
		return convolve(p, o, data, patches);
	}
}
