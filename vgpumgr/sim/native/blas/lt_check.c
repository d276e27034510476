/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused of layouts and descriptions, and how much memory a layout names. */
#include "lt.h"
#include "product_types.h"

int lt_check_types(int compute, int scale, int a, int b, int c, int d)
{
	if (bl_scale_type(compute, false) < 0)
		return BL_INVALID_VALUE;
	if (c != d)
		return BL_NOT_SUPPORTED;
	/* integers that are scaled and stored as such */
	if (bl_scale_type(compute, false) == BL_R_32I && scale == BL_R_32F && a == BL_R_8I && b == BL_R_8I && c == BL_R_8I)
		return BL_SUCCESS;
	return bl_check_gemm(compute, scale, a, b, c);
}

int lt_check_layout(const struct lt_layout *l)
{
	uint64_t least = l->order == LT_ROW ? l->cols : l->rows;

	if (l->order != LT_COL && l->order != LT_ROW)
		return BL_NOT_SUPPORTED;
	if (l->batch_mode || l->plane_offset || !bl_size(l->type))
		return BL_NOT_SUPPORTED;
	if (l->batch < 1 || l->ld < 0 || (uint64_t)l->ld < least || l->rows > INT32_MAX || l->cols > INT32_MAX)
		return BL_INVALID_VALUE;
	return BL_SUCCESS;
}

int64_t lt_bytes(const struct lt_layout *l)
{
	int64_t lines = (int64_t)(l->order == LT_ROW ? l->rows : l->cols), length = (int64_t)(l->order == LT_ROW ? l->cols : l->rows);

	return lines && length ? ((lines - 1) * l->ld + length) * (int64_t)bl_size(l->type) : 0;
}

bool lt_reach_matrix(struct work *work, const struct lt_layout *l, const void *data)
{
	for (int64_t i = 0; i < l->batch && (l->stride || !i); i++)
		if (!bl_reach(work, (const char *)data + i * l->stride * (int64_t)bl_size(l->type), lt_bytes(l)))
			return false;
	return true;
}

static bool has_scales(const struct lt_desc *d)
{
	for (size_t i = 0; i < sizeof d->scales / sizeof *d->scales; i++)
		if (d->scales[i])
			return true;
	return d->aux_scale || d->aux_largest || d->out_scale;
}

static int check_desc(const struct lt_desc *d)
{
	if (d->op_a < 0 || d->op_a > BL_OP_C || d->op_b < 0 || d->op_b > BL_OP_C)
		return BL_INVALID_VALUE;
	if (has_scales(d)) /* documented for 8-bit floating point only */
		return BL_INVALID_VALUE;
	if (d->pointer_mode != BL_POINTER_HOST && d->pointer_mode != BL_POINTER_DEVICE)
		return BL_NOT_SUPPORTED;
	return d->op_c || d->fill != 2 || d->emulation ? BL_NOT_SUPPORTED : BL_SUCCESS;
}

static bool is_shaped(const struct lt_problem *p)
{
	uint64_t m = p->desc.op_a ? p->a.cols : p->a.rows, k = p->desc.op_a ? p->a.rows : p->a.cols;
	uint64_t k2 = p->desc.op_b ? p->b.cols : p->b.rows, n = p->desc.op_b ? p->b.rows : p->b.cols;

	return k == k2 && p->c.rows == m && p->c.cols == n && p->d.rows == m && p->d.cols == n &&
	       p->a.batch == p->d.batch && p->b.batch == p->d.batch && p->c.batch == p->d.batch;
}

int lt_check(const struct lt_problem *p)
{
	const struct lt_layout *layouts[] = { &p->a, &p->b, &p->c, &p->d };
	int status = check_desc(&p->desc);

	for (int i = 0; status == BL_SUCCESS && i < 4; i++)
		status = lt_check_layout(layouts[i]);
	if (status == BL_SUCCESS && !is_shaped(p))
		status = BL_INVALID_VALUE;
	if (status == BL_SUCCESS)
		status = lt_check_types(p->desc.compute, p->desc.scale, p->a.type, p->b.type, p->c.type, p->d.type);
	return status == BL_SUCCESS ? lt_check_epilogue(p) : status;
}
