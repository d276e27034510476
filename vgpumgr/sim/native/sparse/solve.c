/* SPDX-License-Identifier: Apache-2.0 */
/* Triangular systems: op(sparse[0]) op(dense[1]) = alpha op(dense[0]). */
#include <stdlib.h>

#include "sparse_sim.h"

struct system {
	struct sp_list list;
	int64_t *offsets, n;
	int op;
	bool lower, unit;
};

/* Row after row, from the end where the triangle begins. Entries of the other triangle are ignored. */
static void solve_column(struct sp_job *job, const struct system *s, double complex *x)
{
	for (int64_t step = 0; step < s->n; step++) {
		int64_t row = s->lower ? step : s->n - 1 - step;
		double complex sum = x[row], pivot = 0;

		for (int64_t i = s->offsets[row]; i < s->offsets[row + 1]; i++) {
			const struct sp_entry *e = &s->list.entries[i];
			double complex value = sp_value(&job->sparse[0], s->op, 0, e);

			if (e->col == row)
				pivot += value;
			else if (s->lower == (e->col < row))
				sum -= value * x[e->col];
		}
		if (!s->unit && pivot == 0 && job->pivot) {
			int none = -1, block = job->sparse[0].row_block ? (int)job->sparse[0].row_block : 1;

			atomic_compare_exchange_strong(&job->pivot->at, &none, (int)row / block + job->sparse[0].base);
		}
		x[row] = s->unit ? sum : sum / pivot;
	}
}

void sp_solve(struct sp_job *job)
{
	const struct sparse_dense *b = &job->dense[0], *to = &job->dense[1];
	int op = job->op_b, out = job->turned ? op : 0;
	struct system s = { .n = sp_rows(&job->sparse[0]), .op = job->op_a, .lower = job->lower != (job->op_a != 0), .unit = job->unit };
	int64_t columns = op ? b->rows : b->cols;
	double complex *x = sp_area(job, s.n, sizeof *x);

	if (x && sp_reach_dense(job, b) && sp_reach_dense(job, to) &&
	    sp_list_rows(job, &job->sparse[0], job->op_a, 0, &s.list, &s.offsets))
		for (int64_t j = 0; j < columns; j++) {
			for (int64_t i = 0; i < s.n; i++)
				x[i] = job->alpha.value * sp_get(b, op, 0, i, j);
			solve_column(job, &s, x);
			for (int64_t i = 0; i < s.n; i++)
				sp_put(to, out, 0, i, j, x[i]);
		}
	free(s.list.entries);
	free(s.offsets);
	free(x);
}

static int check_system(struct sp_job *job, int op_a, int op_b)
{
	const struct sparse_matrix *a = &job->sparse[0];
	const struct sparse_dense *b = &job->dense[0], *c = &job->dense[1];
	int status = sp_check_matrix(a);

	if (status == SPARSE_OK)
		status = sp_check_dense(b);
	if (status == SPARSE_OK)
		status = sp_check_dense(c);
	if (status != SPARSE_OK)
		return status;
	if (a->batch > 1 || b->batch > 1 || c->batch > 1)
		return SPARSE_NOT_SUPPORTED;
	job->op_a = op_a;
	job->op_b = op_b;
	job->lower = a->fill < 2;
	job->unit = a->diag == 2;
	if (!sp_is_op(op_a) || !sp_is_op(op_b) || sp_rows(a) != sp_cols(a) || c->rows != sp_rows(a) || (op_b ? b->cols : b->rows) != c->rows ||
	    (op_b ? b->rows : b->cols) != c->cols)
		return SPARSE_INVALID_VALUE;
	return SPARSE_OK;
}

static int begin_sv(void *handle, struct sp_job *job, int op, const void *alpha, const void *matrix, const void *x, const void *y,
		    int type, const struct sp_object *object)
{
	const struct sparse_descriptor *a = sparse_descriptor(matrix, SPARSE_MATRIX), *from = sparse_descriptor(x, SPARSE_VECTOR),
				       *to = sparse_descriptor(y, SPARSE_VECTOR);
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;

	if (status == SPARSE_OK)
		status = a && from && to && alpha && object ? sp_begin(handle, job, sp_solve, type, alpha, NULL) : SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job->sparse[0] = a->any.matrix;
	job->dense[0] = sp_column(&from->any.vector);
	job->dense[1] = sp_column(&to->any.vector);
	return check_system(job, op, 0);
}

/* The analysis needs a buffer; a solution is refused before it. */
static int analyse(int status, struct sp_object *object, const void *buffer)
{
	if (status != SPARSE_OK)
		return status;
	object->analysed = buffer;
	return buffer ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

static int solve(void *handle, int status, const struct sp_job *job, const struct sp_object *object)
{
	if (status != SPARSE_OK)
		return status;
	return object->analysed ? sp_post(handle, job, false) : SPARSE_INVALID_VALUE;
}

SP_API(cusparseSpSV_bufferSize, void *handle, int op, const void *alpha, const void *a, const void *x, void *y, int type, int algorithm,
       void *object, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_sv(handle, &job, op, alpha, a, x, y, type, sp_object(object, SPARSE_SPSV)), size);
}

SP_API(cusparseSpSV_analysis, void *handle, int op, const void *alpha, const void *a, const void *x, void *y, int type, int algorithm,
       void *object, void *buffer)
{
	struct sp_object *o = sp_object(object, SPARSE_SPSV);
	struct sp_job job;

	(void)algorithm;
	return analyse(begin_sv(handle, &job, op, alpha, a, x, y, type, o), o, buffer);
}

SP_API(cusparseSpSV_solve, void *handle, int op, const void *alpha, const void *a, const void *x, void *y, int type, int algorithm,
       void *object)
{
	struct sp_object *o = sp_object(object, SPARSE_SPSV);
	struct sp_job job;
	int status = begin_sv(handle, &job, op, alpha, a, x, y, type, o);

	(void)algorithm;
	return solve(handle, status, &job, o);
}

static int begin_sm(void *handle, struct sp_job *job, const int *ops, const void *alpha, const void *matrix, const void *right,
		    const void *result, int type, const struct sp_object *object)
{
	const struct sparse_descriptor *a = sparse_descriptor(matrix, SPARSE_MATRIX), *b = sparse_descriptor(right, SPARSE_DENSE),
				       *c = sparse_descriptor(result, SPARSE_DENSE);
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;

	if (status == SPARSE_OK)
		status = a && b && c && alpha && object ? sp_begin(handle, job, sp_solve, type, alpha, NULL) : SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job->sparse[0] = a->any.matrix;
	job->dense[0] = b->any.dense;
	job->dense[1] = c->any.dense;
	return check_system(job, ops[0], ops[1]);
}

SP_API(cusparseSpSM_bufferSize, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, void *c, int type,
       int algorithm, void *object, size_t *size)
{
	struct sp_job job;

	(void)algorithm;
	return sp_size(handle, begin_sm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, c, type, sp_object(object, SPARSE_SPSM)), size);
}

SP_API(cusparseSpSM_analysis, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, void *c, int type,
       int algorithm, void *object, void *buffer)
{
	struct sp_object *o = sp_object(object, SPARSE_SPSM);
	struct sp_job job;

	(void)algorithm;
	return analyse(begin_sm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, c, type, o), o, buffer);
}

SP_API(cusparseSpSM_solve, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, void *c, int type,
       int algorithm, void *object)
{
	struct sp_object *o = sp_object(object, SPARSE_SPSM);
	struct sp_job job;
	int status = begin_sm(handle, &job, (int[]){ op_a, op_b }, alpha, a, b, c, type, o);

	(void)algorithm;
	return solve(handle, status, &job, o);
}
