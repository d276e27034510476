/* SPDX-License-Identifier: Apache-2.0 */
/* A product of two sparse matrices: made when the program asks for its size, and kept in the object until it is copied. */
#include <stdlib.h>
#include <string.h>

#include "sparse_sim.h"

struct operand {
	struct sp_list list;
	int64_t *offsets;
};

/* Sums of one row, by column; touched: which there are. */
struct row {
	double complex *sums;
	bool *there;
	int64_t *touched, count;
};

static void add_row(const struct sp_job *job, const struct operand *a, const struct operand *b, int64_t row, struct row *r)
{
	r->count = 0;
	for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
		const struct sp_entry *left = &a->list.entries[i];
		double complex value = sp_value(&job->sparse[0], 0, 0, left);

		for (int64_t k = b->offsets[left->col]; k < b->offsets[left->col + 1]; k++) {
			const struct sp_entry *right = &b->list.entries[k];

			if (!r->there[right->col]) {
				r->there[right->col] = true;
				r->sums[right->col] = 0;
				r->touched[r->count++] = right->col;
			}
			r->sums[right->col] += value * sp_value(&job->sparse[1], 0, 0, right);
		}
	}
}

static int by_number(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return a < b ? -1 : a > b;
}

/* False: there is no memory. */
static bool append(struct sp_product *p, int64_t row, struct row *r, double complex alpha)
{
	int64_t *cols = realloc(p->cols, (size_t)(p->count + r->count + 1) * sizeof *cols);
	double complex *values;

	p->cols = cols ? cols : p->cols;
	values = cols ? realloc(p->values, (size_t)(p->count + r->count + 1) * sizeof *values) : NULL;
	if (!values)
		return false;
	p->values = values;
	qsort(r->touched, (size_t)r->count, sizeof *r->touched, by_number);
	for (int64_t i = 0; i < r->count; i++, p->count++) {
		p->cols[p->count] = r->touched[i];
		p->values[p->count] = alpha * r->sums[r->touched[i]];
		r->there[r->touched[i]] = false;
	}
	p->offsets[row + 1] = p->count;
	return true;
}

static void multiply(struct sp_job *job)
{
	int64_t rows = job->sparse[0].rows, cols = job->sparse[1].cols;
	struct row r = { sp_area(job, cols, sizeof *r.sums), sp_area(job, cols, sizeof *r.there), sp_area(job, cols, sizeof *r.touched), 0 };
	struct operand a = { .offsets = NULL }, b = { .offsets = NULL };
	struct sp_product *p = job->product;
	bool there = r.sums && r.there && r.touched && sp_list_rows(job, &job->sparse[0], 0, 0, &a.list, &a.offsets) &&
		     sp_list_rows(job, &job->sparse[1], 0, 0, &b.list, &b.offsets);

	sp_end_product(p);
	p->offsets = there ? sp_area(job, rows + 1, sizeof *p->offsets) : NULL;
	p->rows = p->offsets ? rows : 0;
	for (int64_t row = 0; row < p->rows; row++) {
		add_row(job, &a, &b, row, &r);
		if (!append(p, row, &r, job->alpha.value)) {
			bl_reach(&job->work, NULL, 1);
			break;
		}
	}
	free(a.list.entries);
	free(a.offsets);
	free(b.list.entries);
	free(b.offsets);
	free(r.sums);
	free(r.there);
	free(r.touched);
}

static bool is_rows(const struct sparse_matrix *m)
{
	return m->format == SPARSE_CSR && m->batch == 1;
}

/* Of what is added to it nothing is simulated: *beta is on the host, and 0. */
static int begin(void *handle, struct sp_job *job, const int *ops, const void *const *scalars, const void *const *matrices, int type,
		 const struct sp_object *object)
{
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;
	struct sparse_matrix *m = job->sparse;

	for (int i = 0; i < SP_MATRICES && status == SPARSE_OK; i++)
		status = sparse_descriptor(matrices[i], SPARSE_MATRIX) ? SPARSE_OK : SPARSE_INVALID_VALUE;
	if (status == SPARSE_OK)
		status = object && scalars[0] && scalars[1] ? sp_begin(handle, job, multiply, type, scalars[0], scalars[1]) : SPARSE_INVALID_VALUE;
	for (int i = 0; i < SP_MATRICES && status == SPARSE_OK; i++) {
		m[i] = sparse_descriptor(matrices[i], SPARSE_MATRIX)->any.matrix;
		status = is_rows(&m[i]) ? sp_check_matrix(&m[i]) : SPARSE_NOT_SUPPORTED;
	}
	if (status != SPARSE_OK)
		return status;
	if (ops[0] || ops[1] || job->beta.value != 0)
		return SPARSE_NOT_SUPPORTED;
	return m[0].cols == m[1].rows && m[2].rows == m[0].rows && m[2].cols == m[1].cols ? SPARSE_OK : SPARSE_INVALID_VALUE;
}

#define ARGUMENTS (int[]){ op_a, op_b }, (const void *const[]){ alpha, beta }, (const void *const[]){ a, b, c }, type, o

/* Tells the size of a buffer where there is none, and otherwise that it is large enough. True: it is there. */
static bool measure(int *status, const void *buffer, size_t *size)
{
	if (*status == SPARSE_OK && !size)
		*status = SPARSE_INVALID_VALUE;
	if (*status == SPARSE_OK && buffer && *size < SP_BUFFER)
		*status = SPARSE_INSUFFICIENT_RESOURCES;
	if (*status == SPARSE_OK && !buffer)
		*size = SP_BUFFER;
	return *status == SPARSE_OK && buffer;
}

SP_API(cusparseSpGEMM_workEstimation, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta,
       void *c, int type, int algorithm, void *object, size_t *size, void *buffer)
{
	struct sp_object *o = sp_object(object, SPARSE_SPGEMM);
	struct sp_job job;
	int status = begin(handle, &job, ARGUMENTS);

	(void)algorithm;
	if (measure(&status, buffer, size))
		o->analysed = true;
	return status;
}

SP_API(cusparseSpGEMM_compute, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta,
       void *c, int type, int algorithm, void *object, size_t *size, void *buffer)
{
	struct sp_object *o = sp_object(object, SPARSE_SPGEMM);
	struct sp_job job;
	int status = begin(handle, &job, ARGUMENTS);

	(void)algorithm;
	if (status == SPARSE_OK && !o->analysed)
		return SPARSE_INVALID_VALUE;
	if (!measure(&status, buffer, size))
		return status;
	job.product = &o->product;
	job.buffer = buffer;
	status = sp_post(handle, &job, true);
	if (status == SPARSE_OK)
		sparse_descriptor(c, SPARSE_MATRIX)->any.matrix.nnz = o->product.count;
	return status;
}

static void copy(struct sp_job *job)
{
	const struct sparse_matrix *c = &job->sparse[2];
	const struct sp_product *p = &job->given;

	if (!sp_reach_index(job, (void *)c->offsets, c->offsets_type, p->rows + 1) ||
	    !sp_reach_index(job, (void *)c->indices, c->indices_type, p->count) ||
	    !bl_reach(&job->work, (void *)c->values, p->count * (int64_t)bl_size(c->type)))
		return;
	for (int64_t row = 0; row <= p->rows; row++)
		sp_put_index((void *)c->offsets, c->offsets_type, row, p->offsets[row] + c->base);
	for (int64_t i = 0; i < p->count; i++) {
		sp_put_index((void *)c->indices, c->indices_type, i, p->cols[i] + c->base);
		bl_store((void *)c->values, c->type, i, p->values[i]);
	}
}

static void *duplicate(const void *from, int64_t bytes)
{
	void *to = malloc((size_t)bytes + 1);

	return to && from ? memcpy(to, from, (size_t)bytes) : to;
}

SP_API(cusparseSpGEMM_copy, void *handle, int op_a, int op_b, const void *alpha, const void *a, const void *b, const void *beta, void *c,
       int type, int algorithm, void *object)
{
	struct sp_object *o = sp_object(object, SPARSE_SPGEMM);
	struct sp_job job;
	int status = begin(handle, &job, ARGUMENTS);

	(void)algorithm;
	if (status == SPARSE_OK && (!o->product.offsets || job.sparse[2].nnz != o->product.count || o->product.rows != job.sparse[2].rows))
		status = SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job.compute = copy;
	job.given = (struct sp_product){ o->product.rows, o->product.count,
					 duplicate(o->product.offsets, (o->product.rows + 1) * (int64_t)sizeof(int64_t)),
					 duplicate(o->product.cols, o->product.count * (int64_t)sizeof(int64_t)),
					 duplicate(o->product.values, o->product.count * (int64_t)sizeof(double complex)) };
	if (job.given.offsets && job.given.cols && job.given.values)
		return sp_post(handle, &job, false);
	sp_end_product(&job.given);
	return SPARSE_ALLOC_FAILED;
}
