/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatrixTransform: C = alpha * op(A) + beta * op(B), between orders and types. */
#include <stdlib.h>
#include <string.h>

#include "lt_exports.h"

struct transform {
	struct work work;
	struct lt_transform desc;
	struct lt_layout a, b, c;
	const void *alpha, *beta, *from_a, *from_b;
	void *to;
	_Alignas(16) unsigned char scalars[2][16];
};

static double complex read_scalar(const struct transform *t, const void *place)
{
	return place ? bl_load(place, t->desc.scale, 0) : 0;
}

static bool reach(struct transform *t)
{
	int64_t scale = (int64_t)bl_size(t->desc.scale);

	if (t->desc.pointer_mode == BL_POINTER_DEVICE && !bl_reach(&t->work, t->alpha, scale))
		return false;
	if (t->desc.pointer_mode == BL_POINTER_DEVICE && t->beta && !bl_reach(&t->work, t->beta, scale))
		return false;
	if (read_scalar(t, t->alpha) != 0 && !lt_reach_matrix(&t->work, &t->a, t->from_a))
		return false;
	if (t->from_b && read_scalar(t, t->beta) != 0 && !lt_reach_matrix(&t->work, &t->b, t->from_b))
		return false;
	return lt_reach_matrix(&t->work, &t->c, t->to);
}

static double complex take(const void *data, const struct lt_layout *l, int op, int64_t batch, int64_t i, int64_t j)
{
	double complex e = bl_load(data, l->type, op ? lt_place(l, batch, j, i) : lt_place(l, batch, i, j));

	return op == BL_OP_C ? conj(e) : e;
}

static void transform_batch(const struct transform *t, int64_t batch)
{
	double complex alpha = read_scalar(t, t->alpha), beta = t->from_b ? read_scalar(t, t->beta) : 0;

	for (int64_t j = 0; j < (int64_t)t->c.cols; j++) {
		for (int64_t i = 0; i < (int64_t)t->c.rows; i++) {
			double complex sum = alpha != 0 ? alpha * take(t->from_a, &t->a, t->desc.op_a, batch, i, j) : 0;

			if (beta != 0)
				sum += beta * take(t->from_b, &t->b, t->desc.op_b, batch, i, j);
			bl_store(t->to, t->c.type, lt_place(&t->c, batch, i, j), sum);
		}
	}
}

static void run(struct work *work)
{
	struct transform *t = (struct transform *)work;

	work->wild = false;
	if (!reach(t))
		return;
	for (int64_t batch = 0; batch < t->c.batch; batch++)
		transform_batch(t, batch);
}

static void release(struct work *work)
{
	free(work);
}

static int check_operand(const struct lt_layout *l, const struct lt_layout *c, int op)
{
	int status = lt_check_layout(l);

	if (status != BL_SUCCESS)
		return status;
	if ((op ? l->cols : l->rows) != c->rows || (op ? l->rows : l->cols) != c->cols || l->batch != c->batch)
		return BL_INVALID_VALUE;
	return BL_SUCCESS;
}

static int check(const struct transform *t)
{
	int status = check_operand(&t->a, &t->c, t->desc.op_a);

	if (status == BL_SUCCESS)
		status = lt_check_layout(&t->c);
	if (status == BL_SUCCESS && t->from_b)
		status = check_operand(&t->b, &t->c, t->desc.op_b);
	if (status == BL_SUCCESS && (t->desc.pointer_mode > BL_POINTER_DEVICE || !bl_size(t->desc.scale)))
		status = BL_NOT_SUPPORTED;
	return status;
}

static int post(const struct transform *filled, CUstream stream)
{
	struct bl_context *context;
	struct transform *t;
	int status = bl_context_current(&context);
	size_t scale = bl_size(filled->desc.scale);

	if (status != BL_SUCCESS)
		return status;
	t = malloc(sizeof *t);
	if (!t)
		return BL_ALLOC_FAILED;
	*t = *filled;
	t->work = (struct work){ .run = run, .release = release, .context = context };
	if (t->desc.pointer_mode == BL_POINTER_HOST) {
		t->alpha = memcpy(t->scalars[0], t->alpha, scale);
		t->beta = t->beta ? memcpy(t->scalars[1], t->beta, scale) : NULL;
	}
	return bl_post(&t->work, stream, false);
}

int cublasLtMatrixTransform(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *beta,
			    const void *b, void *b_layout, void *c, void *c_layout, CUstream stream)
{
	struct transform t = { .alpha = alpha, .beta = beta, .from_a = a, .from_b = b, .to = c };
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!desc || !alpha || !a || !a_layout || !c || !c_layout || (b && (!b_layout || !beta)))
		return BL_INVALID_VALUE;
	memcpy(&t.desc, desc, sizeof t.desc);
	memcpy(&t.a, a_layout, sizeof t.a);
	memcpy(&t.c, c_layout, sizeof t.c);
	if (b)
		memcpy(&t.b, b_layout, sizeof t.b);
	status = check(&t);
	return status == BL_SUCCESS ? post(&t, stream) : status;
}
