/* SPDX-License-Identifier: Apache-2.0 */
/* Bias, ReLU, GELU and their gradients, applied to a result before it is rounded. */
#include <math.h>

#include "lt.h"

enum { MASK_ALIGNMENT = 128, AUX_ALIGNMENT = 8 };

static bool has(const struct lt_problem *p, uint32_t part)
{
	return (p->desc.epilogue & part) == part;
}

static bool is_gelu(const struct lt_problem *p)
{
	return p->desc.epilogue & (LT_GELU | (LT_DGELU & ~LT_AUX));
}

static bool uses_bias(const struct lt_problem *p)
{
	return p->desc.epilogue & (LT_BIAS | LT_BGRAD | LT_BGRADA | LT_BGRADB);
}

static int bias_type(const struct lt_problem *p)
{
	if (p->desc.bias_type >= 0)
		return p->desc.bias_type;
	return p->d.type == BL_R_8I ? p->desc.scale : p->d.type;
}

static int aux_type(const struct lt_problem *p)
{
	return p->desc.aux_type >= 0 ? p->desc.aux_type : p->d.type;
}

static bool is_known(uint32_t epilogue)
{
	static const uint32_t known[] = {
		LT_DEFAULT, LT_RELU, LT_RELU | LT_AUX, LT_BIAS, LT_RELU | LT_BIAS, LT_RELU | LT_AUX | LT_BIAS, LT_DRELU,
		LT_DRELU | LT_BGRAD, LT_GELU, LT_GELU | LT_AUX, LT_GELU | LT_BIAS, LT_GELU | LT_AUX | LT_BIAS, LT_DGELU,
		LT_DGELU | LT_BGRAD, LT_BGRADA, LT_BGRADB,
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i] == epilogue)
			return true;
	return false;
}

static int check_aux(const struct lt_problem *p)
{
	int alignment = is_gelu(p) ? AUX_ALIGNMENT : MASK_ALIGNMENT;

	if (!p->desc.aux || p->desc.aux_ld < (int64_t)p->d.rows || p->desc.aux_ld % alignment || p->desc.aux_stride % alignment)
		return BL_INVALID_VALUE;
	return is_gelu(p) && (!bl_size(aux_type(p)) || bl_is_complex(aux_type(p))) ? BL_NOT_SUPPORTED : BL_SUCCESS;
}

int lt_check_epilogue(const struct lt_problem *p)
{
	if (!is_known(p->desc.epilogue))
		return BL_INVALID_VALUE;
	if (p->desc.epilogue == LT_DEFAULT)
		return BL_SUCCESS;
	if (bl_is_complex(p->d.type) || !bl_size(bias_type(p)))
		return BL_NOT_SUPPORTED;
	return p->desc.epilogue & LT_AUX ? check_aux(p) : BL_SUCCESS;
}

/* A buffer of one length for each batch. */
static bool reach_batches(struct work *work, const struct lt_problem *p, const void *data, int64_t stride, int64_t bytes)
{
	for (int64_t i = 0; i < p->d.batch && (stride || !i); i++)
		if (!bl_reach(work, (const char *)data + i * stride, bytes))
			return false;
	return true;
}

bool lt_reach_epilogue(struct work *work, const struct lt_problem *p)
{
	int64_t m = (int64_t)p->d.rows, n = (int64_t)p->d.cols, length = has(p, LT_BGRADB) ? n : m;
	int64_t size = (int64_t)bl_size(bias_type(p)), aux = (int64_t)bl_size(aux_type(p));

	if (!m || !n)
		return true;
	if (uses_bias(p) && !reach_batches(work, p, p->desc.bias, p->desc.bias_stride * size, length * size))
		return false;
	if (!(p->desc.epilogue & LT_AUX))
		return true;
	if (is_gelu(p))
		return reach_batches(work, p, p->desc.aux, p->desc.aux_stride * aux, ((n - 1) * p->desc.aux_ld + m) * aux);
	return reach_batches(work, p, p->desc.aux, p->desc.aux_stride / 8, ((n - 1) * p->desc.aux_ld + m + 7) / 8);
}

/* The approximation by tanh, which is what cuBLASLt computes. */
static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(M_SQRT2 * M_2_SQRTPI / 2 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
	double scale = M_SQRT2 * M_2_SQRTPI / 2, t = tanh(scale * (x + 0.044715 * x * x * x));

	return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

static bool read_mask(const struct lt_result_matrix *r, int64_t at)
{
	return ((const uint8_t *)r->problem->desc.aux)[at / 8] >> at % 8 & 1;
}

static void write_mask(const struct lt_result_matrix *r, int64_t at, bool positive)
{
	uint8_t *byte = (uint8_t *)r->problem->desc.aux + at / 8;

	*byte = (uint8_t)((*byte & ~(1 << at % 8)) | positive << at % 8);
}

static double forward(const struct lt_result_matrix *r, double x, int64_t aux)
{
	const struct lt_problem *p = r->problem;

	if (has(p, LT_RELU)) {
		if (has(p, LT_AUX))
			write_mask(r, aux, x > 0);
		return x > 0 || isnan(x) ? x : 0;
	}
	if (has(p, LT_GELU)) {
		if (has(p, LT_AUX))
			bl_store(p->desc.aux, aux_type(p), aux, x);
		return gelu(x);
	}
	return x;
}

static double backward(const struct lt_result_matrix *r, double x, int64_t aux)
{
	const struct lt_problem *p = r->problem;

	if (has(p, LT_DRELU))
		return read_mask(r, aux) ? x : 0;
	if (has(p, LT_DGELU))
		return x * gelu_slope(creal(bl_load(p->desc.aux, aux_type(p), aux)));
	return x;
}

static void sum_rows(const struct lt_result_matrix *r)
{
	const struct lt_problem *p = r->problem;

	for (int64_t i = 0; i < r->m; i++) {
		double sum = 0;

		for (int64_t j = 0; j < r->n; j++)
			sum += creal(bl_load(r->data, r->base, j * r->m + i));
		bl_store(p->desc.bias, bias_type(p), r->batch * p->desc.bias_stride + i, sum);
	}
}

void lt_finish(const struct lt_result_matrix *r)
{
	const struct lt_problem *p = r->problem;

	if (p->desc.epilogue == LT_DEFAULT)
		return;
	for (int64_t j = 0; j < r->n; j++) {
		for (int64_t i = 0; i < r->m; i++) {
			int64_t at = j * r->m + i, aux = r->batch * p->desc.aux_stride + j * p->desc.aux_ld + i;
			double x = creal(bl_load(r->data, r->base, at));

			if (has(p, LT_BIAS))
				x += creal(bl_load(p->desc.bias, bias_type(p), r->batch * p->desc.bias_stride + i));
			bl_store(r->data, r->base, at, backward(r, forward(r, x, aux), aux));
		}
	}
	if (has(p, LT_BGRAD))
		sum_rows(r);
}

void lt_sum_operands(const struct lt_problem *p, int64_t batch, const void *a, const void *b, int base)
{
	int64_t m = (int64_t)p->d.rows, n = (int64_t)p->d.cols, k = (int64_t)(p->desc.op_a ? p->a.rows : p->a.cols);
	bool of_a = has(p, LT_BGRADA);

	if (!of_a && !has(p, LT_BGRADB))
		return;
	for (int64_t i = 0; i < (of_a ? m : n); i++) {
		double sum = 0;

		for (int64_t l = 0; l < k; l++)
			sum += creal(of_a ? bl_load(a, base, l * m + i) : bl_load(b, base, i * k + l));
		bl_store(p->desc.bias, bias_type(p), batch * p->desc.bias_stride + i, sum);
	}
}
