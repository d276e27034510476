/* SPDX-License-Identifier: Apache-2.0 */
/* C = alpha A + beta B, of matrices of rows: how many entries it has in each, and then the entries. */
#include <stdlib.h>

#include "sparse_sim.h"

struct operands {
	struct sp_list a, b;
	int64_t *a_offsets, *b_offsets;
};

static bool list(struct sp_job *job, struct operands *o)
{
	return sp_list_rows(job, &job->sparse[0], 0, 0, &o->a, &o->a_offsets) && sp_list_rows(job, &job->sparse[1], 0, 0, &o->b, &o->b_offsets);
}

static void leave(struct operands *o)
{
	free(o->a.entries);
	free(o->b.entries);
	free(o->a_offsets);
	free(o->b_offsets);
}

/* The row's entries one after the other, into C's where `into` says so; how many. */
static int64_t merge(const struct sp_job *job, const struct operands *o, int64_t row, int64_t at, bool into)
{
	const struct sparse_matrix *c = &job->sparse[2];
	int64_t i = o->a_offsets[row], k = o->b_offsets[row], count = 0;

	while (i < o->a_offsets[row + 1] || k < o->b_offsets[row + 1]) {
		const struct sp_entry *a = i < o->a_offsets[row + 1] ? &o->a.entries[i] : NULL;
		const struct sp_entry *b = k < o->b_offsets[row + 1] ? &o->b.entries[k] : NULL;
		int64_t col = !b || (a && a->col < b->col) ? a->col : b->col;
		double complex value = 0;

		if (a && a->col == col && ++i)
			value += into ? job->alpha.value * sp_value(&job->sparse[0], 0, 0, a) : 0;
		if (b && b->col == col && ++k)
			value += into ? job->beta.value * sp_value(&job->sparse[1], 0, 0, b) : 0;
		if (into) {
			((int *)c->indices)[at + count] = (int)col + c->base;
			bl_store((void *)c->values, c->type, at + count, value);
		}
		count++;
	}
	return count;
}

/* areas: the number on the host, and on the device */
static void count(struct sp_job *job)
{
	const struct sparse_matrix *c = &job->sparse[2];
	struct operands o = { .a_offsets = NULL };
	int *offsets = (int *)c->offsets;
	int64_t at = 0;

	if (list(job, &o) && sp_reach_index(job, offsets, SPARSE_INDEX_32I, c->rows + 1) &&
	    bl_reach(&job->work, job->areas[1], job->areas[1] ? sizeof(int) : 0)) {
		offsets[0] = c->base;
		for (int64_t row = 0; row < c->rows; row++) {
			at += merge(job, &o, row, 0, false);
			offsets[row + 1] = (int)at + c->base;
		}
		*(int *)(job->areas[1] ? job->areas[1] : job->areas[0]) = (int)at;
	}
	leave(&o);
}

static void add(struct sp_job *job)
{
	const struct sparse_matrix *c = &job->sparse[2];
	struct operands o = { .a_offsets = NULL };
	int64_t at = 0;
	int *offsets = (int *)c->offsets;

	if (list(job, &o) && sp_reach_index(job, offsets, SPARSE_INDEX_32I, c->rows + 1)) {
		int64_t entries = offsets[c->rows] - c->base;
		/* what was counted is what there is room for */
		bool right = sp_reach_index(job, (void *)c->indices, SPARSE_INDEX_32I, entries) &&
			     bl_reach(&job->work, (void *)c->values, entries * (int64_t)bl_size(c->type));

		for (int64_t row = 0; right && row < c->rows; row++) {
			int64_t more = merge(job, &o, row, 0, false);

			right = at + more <= entries || bl_reach(&job->work, NULL, 1);
			if (right)
				at += merge(job, &o, row, at, true);
		}
	}
	leave(&o);
}

struct sum {
	int m, n, type;
	const void *descr[3];
	int nnz[2];
	const void *values[3];
	const int *offsets[3], *indices[3];
};

static int begin(void *handle, struct sp_job *job, void (*compute)(struct sp_job *), const struct sum *s, const void *alpha,
		 const void *beta)
{
	int status = sp_begin(handle, job, compute, s->type, alpha, beta);

	if (status == SPARSE_OK && (s->m < 0 || s->n < 0 || s->nnz[0] < 0 || s->nnz[1] < 0))
		status = SPARSE_INVALID_VALUE;
	for (int i = 0; i < SP_MATRICES && status == SPARSE_OK; i++) {
		status = sparse_settings(s->descr[i]) ? SPARSE_OK : SPARSE_INVALID_VALUE;
		job->sparse[i] = sp_blocks(s->descr[i], 0, s->m, s->n, i < 2 ? s->nnz[i] : 0, s->type, s->values[i], s->offsets[i],
					   s->indices[i], 0);
	}
	return status;
}

SP_API(cusparseXcsrgeam2Nnz, void *handle, int m, int n, const void *descr_a, int nnz_a, const int *rows_a, const int *cols_a,
       const void *descr_b, int nnz_b, const int *rows_b, const int *cols_b, const void *descr_c, int *rows_c, int *nnz, void *buffer)
{
	const struct sp_handle *h = sp_handle(handle);
	struct sum s = { m, n, BL_R_32F, { descr_a, descr_b, descr_c }, { nnz_a, nnz_b }, { NULL }, { rows_a, rows_b, rows_c },
			 { cols_a, cols_b } };
	struct sp_job job;
	int status = begin(handle, &job, count, &s, NULL, NULL);

	if (status == SPARSE_OK && (!nnz || !buffer))
		status = SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	/* only the entries' positions are read: any memory of this size may stand for their values */
	job.sparse[0].values = job.sparse[0].indices;
	job.sparse[1].values = job.sparse[1].indices;
	job.areas[h->pointer_mode] = nnz;
	job.buffer = buffer;
	return sp_post(handle, &job, !h->pointer_mode);
}

#define OF(type)                                                                                                                   \
	(&(struct sum){ m, n, type, { descr_a, descr_b, descr_c }, { nnz_a, nnz_b }, { values_a, values_b, values_c },                \
			{ rows_a, rows_b, rows_c }, { cols_a, cols_b, cols_c } })

#define FUNCTIONS(letter, type)                                                                                                    \
	SP_API(cusparse##letter##csrgeam2_bufferSizeExt, void *handle, int m, int n, const void *alpha, const void *descr_a,        \
	       int nnz_a, const void *values_a, const int *rows_a, const int *cols_a, const void *beta, const void *descr_b,         \
	       int nnz_b, const void *values_b, const int *rows_b, const int *cols_b, const void *descr_c, const void *values_c,     \
	       const int *rows_c, const int *cols_c, size_t *size)                                                                 \
	{                                                                                                                          \
		struct sp_job job;                                                                                                 \
		return sp_size(handle, begin(handle, &job, add, OF(type), alpha, beta), size);                                       \
	}                                                                                                                          \
	SP_API(cusparse##letter##csrgeam2, void *handle, int m, int n, const void *alpha, const void *descr_a, int nnz_a,           \
	       const void *values_a, const int *rows_a, const int *cols_a, const void *beta, const void *descr_b, int nnz_b,         \
	       const void *values_b, const int *rows_b, const int *cols_b, const void *descr_c, void *values_c, int *rows_c,         \
	       int *cols_c, void *buffer)                                                                                          \
	{                                                                                                                          \
		struct sp_job job;                                                                                                 \
		int status = begin(handle, &job, add, OF(type), alpha, beta);                                                        \
		return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;                                          \
	}

FUNCTIONS(S, BL_R_32F)
FUNCTIONS(D, BL_R_64F)
FUNCTIONS(C, BL_C_32F)
FUNCTIONS(Z, BL_C_64F)
