/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a sparse matrix and a dense one, and what of a dense product a sparse matrix has places for. */
#include <stdlib.h>

#include "sparse_sim.h"

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void add_row(const struct sp_job *job, int64_t batch, const struct sp_entry *e, double complex *sums)
{
	const struct sparse_matrix *a = &job->sparse[0];
	double complex value = sp_value(a, job->op_a, a->batch > 1 ? batch : 0, e);
	int64_t row = job->op_a ? e->col : e->row, col = job->op_a ? e->row : e->col, n = job->dense[1].cols;

	for (int64_t j = 0; j < n; j++)
		sums[row * n + j] += value * sp_get(&job->dense[0], job->op_b, batch, col, j);
}

/* dense[1] = alpha op(sparse[0]) op(dense[0]) + beta dense[1] */
static bool multiply_one(struct sp_job *job, int64_t batch)
{
	const struct sparse_dense *c = &job->dense[1];
	double complex *sums = sp_area(job, c->rows * c->cols, sizeof *sums);
	struct sp_list list = { NULL, 0 };
	bool there = sums && sp_list(job, &job->sparse[0], job->sparse[0].batch > 1 ? batch : 0, &list);

	for (int64_t i = 0; there && i < list.count; i++)
		add_row(job, batch, &list.entries[i], sums);
	for (int64_t i = 0; there && i < c->rows; i++)
		for (int64_t j = 0; j < c->cols; j++) {
			double complex old = job->beta.value != 0 ? job->beta.value * sp_get(c, 0, batch, i, j) : 0;

			sp_put(c, 0, batch, i, j, job->alpha.value * sums[i * c->cols + j] + old);
		}
	free(list.entries);
	free(sums);
	return there;
}

void sp_multiply(struct sp_job *job)
{
	if (!sp_reach_dense(job, &job->dense[0]) || !sp_reach_dense(job, &job->dense[1]))
		return;
	for (int64_t batch = 0; batch < job->dense[1].batch && multiply_one(job, batch); batch++)
		;
}

/* Of op(a) b = c; a batch is one of the result's, or the same for all. */
static int check_product(const struct sp_job *job)
{
	const struct sparse_matrix *a = &job->sparse[0];
	const struct sparse_dense *b = &job->dense[0], *c = &job->dense[1];
	int64_t rows = job->op_a ? sp_cols(a) : sp_rows(a), inner = job->op_a ? sp_rows(a) : sp_cols(a);
	int status = sp_check_matrix(a);

	if (status == SPARSE_OK)
		status = sp_check_dense(b);
	if (status == SPARSE_OK)
		status = sp_check_dense(c);
	if (status != SPARSE_OK)
		return status;
	if (!sp_is_op(job->op_a) || !sp_is_op(job->op_b) || rows != c->rows || inner != (job->op_b ? b->cols : b->rows) ||
	    c->cols != (job->op_b ? b->rows : b->cols))
		return SPARSE_INVALID_VALUE;
	return (a->batch > 1 && a->batch != c->batch) || (b->batch > 1 && b->batch != c->batch) ? SPARSE_INVALID_VALUE : SPARSE_OK;
}

static int begin_mv(void *handle, struct sp_job *job, int op, const void *alpha, const void *matrix, const void *x, const void *beta,
		    const void *y, int type)
{
	const struct sparse_descriptor *a = sparse_descriptor(matrix, SPARSE_MATRIX), *from = sparse_descriptor(x, SPARSE_VECTOR),
				       *to = sparse_descriptor(y, SPARSE_VECTOR);
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;

	if (status == SPARSE_OK)
		status = a && from && to && alpha && beta ? sp_begin(handle, job, sp_multiply, type, alpha, beta) : SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job->op_a = op;
	job->sparse[0] = a->any.matrix;
	job->dense[0] = sp_column(&from->any.vector);
	job->dense[1] = sp_column(&to->any.vector);
	return check_product(job);
}

SP_API(cusparseSpMV_bufferSize, void *handle, int op, const void *alpha, const void *a, const void *x, const void *beta, void *y,
       int type, int algorithm, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_mv(handle, &job, op, alpha, a, x, beta, y, type), size);
}

SP_API(cusparseSpMV, void *handle, int op, const void *alpha, const void *a, const void *x, const void *beta, void *y, int type,
       int algorithm, void *buffer)
{
	struct sp_job job;
	int status = begin_mv(handle, &job, op, alpha, a, x, beta, y, type);

	(void)algorithm;
	return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;
}

static int begin_mm(void *handle, struct sp_job *job, const int *ops, const void *alpha, const void *matrix, const void *dense,
		    const void *beta, const void *result, int type)
{
	const struct sparse_descriptor *a = sparse_descriptor(matrix, SPARSE_MATRIX), *b = sparse_descriptor(dense, SPARSE_DENSE),
				       *c = sparse_descriptor(result, SPARSE_DENSE);
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;

	if (status == SPARSE_OK)
		status = a && b && c && alpha && beta ? sp_begin(handle, job, sp_multiply, type, alpha, beta) : SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job->op_a = ops[0];
	job->op_b = ops[1];
	job->sparse[0] = a->any.matrix;
	job->dense[0] = b->any.dense;
	job->dense[1] = c->any.dense;
	return check_product(job);
}

SP_API(cusparseSpMM_bufferSize, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta,
       void *c, int type, int algorithm, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_mm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, beta, c, type), size);
}

SP_API(cusparseSpMM, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta, void *c,
       int type, int algorithm, void *buffer)
{
	struct sp_job job;
	int status = begin_mm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, beta, c, type);

	(void)algorithm;
	return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;
}

/* ---- SDDMM: sparse[0] = alpha (op(dense[0]) op(dense[1])) where it has entries, + beta sparse[0] */

static void sample_one(const struct sp_job *job, int64_t batch, const struct sp_entry *e)
{
	const struct sparse_matrix *c = &job->sparse[0];
	int64_t inner = job->op_a ? job->dense[0].rows : job->dense[0].cols, at = (c->batch > 1 ? batch : 0) * c->values_stride + e->at;
	double complex sum = 0, old = 0;

	for (int64_t k = 0; k < inner; k++)
		sum += sp_get(&job->dense[0], job->op_a, batch, e->row, k) * sp_get(&job->dense[1], job->op_b, batch, k, e->col);
	if (job->beta.value != 0)
		old = job->beta.value * bl_load((const void *)c->values, c->type, at);
	bl_store((void *)c->values, c->type, at, job->alpha.value * sum + old);
}

static void sample(struct sp_job *job)
{
	bool there = sp_reach_dense(job, &job->dense[0]) && sp_reach_dense(job, &job->dense[1]);

	for (int64_t batch = 0; there && batch < job->sparse[0].batch; batch++) {
		struct sp_list list = { NULL, 0 };

		there = sp_list(job, &job->sparse[0], batch, &list);
		for (int64_t i = 0; there && i < list.count; i++)
			sample_one(job, batch, &list.entries[i]);
		free(list.entries);
	}
}

static int begin_sddmm(void *handle, struct sp_job *job, const int *ops, const void *alpha, const void *left, const void *right,
		       const void *beta, const void *result, int type)
{
	const struct sparse_descriptor *a = sparse_descriptor(left, SPARSE_DENSE), *b = sparse_descriptor(right, SPARSE_DENSE),
				       *c = sparse_descriptor(result, SPARSE_MATRIX);
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;
	const struct sparse_dense *da = &job->dense[0], *db = &job->dense[1];

	if (status == SPARSE_OK)
		status = a && b && c && alpha && beta ? sp_begin(handle, job, sample, type, alpha, beta) : SPARSE_INVALID_VALUE;
	if (status == SPARSE_OK)
		status = sp_check_matrix(&c->any.matrix);
	if (status == SPARSE_OK)
		status = sp_check_dense(&a->any.dense);
	if (status == SPARSE_OK)
		status = sp_check_dense(&b->any.dense);
	if (status != SPARSE_OK)
		return status;
	job->op_a = ops[0];
	job->op_b = ops[1];
	job->sparse[0] = c->any.matrix;
	job->dense[0] = a->any.dense;
	job->dense[1] = b->any.dense;
	if (!sp_is_op(ops[0]) || !sp_is_op(ops[1]) || (ops[0] ? da->cols : da->rows) != sp_rows(&job->sparse[0]) ||
	    (ops[1] ? db->rows : db->cols) != sp_cols(&job->sparse[0]) || (ops[0] ? da->rows : da->cols) != (ops[1] ? db->cols : db->rows))
		return SPARSE_INVALID_VALUE;
	return most(da->batch, db->batch) > job->sparse[0].batch ? SPARSE_INVALID_VALUE : SPARSE_OK;
}

SP_API(cusparseSDDMM_bufferSize, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta,
       void *c, int type, int algorithm, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_sddmm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, beta, c, type), size);
}

SP_API(cusparseSDDMM_preprocess, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta,
       void *c, int type, int algorithm, void *buffer)
{
	struct sp_job job;
	int status = begin_sddmm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, beta, c, type);

	(void)algorithm;
	return status == SPARSE_OK && !buffer ? SPARSE_INVALID_VALUE : status;
}

SP_API(cusparseSDDMM, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta, void *c,
       int type, int algorithm, void *buffer)
{
	struct sp_job job;
	int status = begin_sddmm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, beta, c, type);

	(void)algorithm;
	return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;
}

/* ---- entries to places, and from there */

static void spread(struct sp_job *job)
{
	const struct sparse_dense *b = &job->dense[0];
	bool there = sp_reach_dense(job, b);

	for (int64_t batch = 0; there && batch < b->batch; batch++) {
		int64_t of = job->sparse[0].batch > 1 ? batch : 0;
		struct sp_list list = { NULL, 0 };

		there = sp_list(job, &job->sparse[0], of, &list);
		for (int64_t i = 0; there && i < b->rows; i++)
			for (int64_t j = 0; j < b->cols; j++)
				sp_put(b, 0, batch, i, j, 0);
		for (int64_t i = 0; there && i < list.count; i++)
			sp_put(b, 0, batch, list.entries[i].row, list.entries[i].col, sp_value(&job->sparse[0], 0, of, &list.entries[i]));
		free(list.entries);
	}
}

static int begin_dense(void *handle, struct sp_job *job, const void *from, const void *to)
{
	const struct sparse_descriptor *a = sparse_descriptor(from, SPARSE_MATRIX), *b = sparse_descriptor(to, SPARSE_DENSE);
	int status = sp_begin(handle, job, spread, BL_R_32F, NULL, NULL);

	if (status == SPARSE_OK)
		status = a && b ? sp_check_matrix(&a->any.matrix) : SPARSE_INVALID_VALUE;
	if (status == SPARSE_OK)
		status = sp_check_dense(&b->any.dense);
	if (status != SPARSE_OK)
		return status;
	job->sparse[0] = a->any.matrix;
	job->dense[0] = b->any.dense;
	return sp_rows(&job->sparse[0]) == job->dense[0].rows && sp_cols(&job->sparse[0]) == job->dense[0].cols ? SPARSE_OK :
														  SPARSE_INVALID_VALUE;
}

SP_API(cusparseSparseToDense_bufferSize, void *handle, const void *a, void *b, int algorithm, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_dense(handle, &job, a, b), size);
}

SP_API(cusparseSparseToDense, void *handle, const void *a, void *b, int algorithm, void *buffer)
{
	struct sp_job job;
	int status = begin_dense(handle, &job, a, b);

	(void)algorithm;
	return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;
}

static void exchange(struct sp_job *job)
{
	const struct sparse_entries *x = &job->entries;
	const struct sparse_dense *y = &job->dense[0];
	bool there = sp_reach_dense(job, y) && sp_reach_index(job, (const void *)x->indices, x->indices_type, x->nnz) &&
		     bl_reach(&job->work, (const void *)x->values, x->nnz * (int64_t)bl_size(x->type));

	for (int64_t i = 0; there && i < x->nnz; i++) {
		int64_t at = sp_index((const void *)x->indices, x->indices_type, i) - x->base;

		there = (at >= 0 && at < y->rows) || bl_reach(&job->work, NULL, 1);
		if (there && job->turned)
			sp_put(y, 0, 0, at, 0, bl_load((const void *)x->values, x->type, i));
		else if (there)
			bl_store((void *)x->values, x->type, i, sp_get(y, 0, 0, at, 0));
	}
}

static int post_exchange(void *handle, const void *dense, const void *entries, bool scatter)
{
	const struct sparse_descriptor *y = sparse_descriptor(dense, SPARSE_VECTOR), *x = sparse_descriptor(entries, SPARSE_ENTRIES);
	struct sp_job job;
	int status = sp_begin(handle, &job, exchange, BL_R_32F, NULL, NULL);

	if (status == SPARSE_OK && (!x || !y || x->any.entries.size != y->any.vector.size || x->any.entries.nnz > INT32_MAX))
		return SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job.dense[0] = sp_column(&y->any.vector);
	job.entries = x->any.entries;
	job.turned = scatter;
	status = sp_check_dense(&job.dense[0]);
	if (job.entries.type != job.dense[0].type || job.entries.indices_type == SPARSE_INDEX_16U)
		return SPARSE_NOT_SUPPORTED;
	return status == SPARSE_OK ? sp_post(handle, &job, false) : status;
}

SP_API(cusparseGather, void *handle, const void *y, void *x)
{
	return post_exchange(handle, y, x, false);
}

SP_API(cusparseScatter, void *handle, const void *x, void *y)
{
	return post_exchange(handle, y, x, true);
}
