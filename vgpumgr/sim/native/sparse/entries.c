/* SPDX-License-Identifier: Apache-2.0 */
/* What is in matrices, whatever their format: entries with a row, a column and a value. */
#include <stdlib.h>

#include "sparse_sim.h"

int64_t sp_rows(const struct sparse_matrix *m)
{
	return m->rows * (m->format == SPARSE_BSR ? m->row_block : 1);
}

int64_t sp_cols(const struct sparse_matrix *m)
{
	return m->cols * (m->format == SPARSE_BSR ? m->col_block : 1);
}

int64_t sp_index(const void *array, int type, int64_t i)
{
	return type == SPARSE_INDEX_64I ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

void sp_put_index(void *array, int type, int64_t i, int64_t value)
{
	if (type == SPARSE_INDEX_64I)
		((int64_t *)array)[i] = value;
	else
		((int32_t *)array)[i] = (int32_t)value;
}

bool sp_reach_index(struct sp_job *job, const void *array, int type, int64_t count)
{
	return bl_reach(&job->work, array, count * (type == SPARSE_INDEX_64I ? 8 : 4));
}

/* Sizes stay within what can be counted in 64 bits, with all that is multiplied by them. */
int sp_check_matrix(const struct sparse_matrix *m)
{
	if (m->rows > INT32_MAX || m->cols > INT32_MAX || m->nnz > INT32_MAX || m->row_block > UINT16_MAX || m->col_block > UINT16_MAX)
		return SPARSE_INVALID_VALUE;
	if (m->offsets_type == SPARSE_INDEX_16U || m->indices_type == SPARSE_INDEX_16U || !bl_size(m->type))
		return SPARSE_NOT_SUPPORTED;
	return SPARSE_OK;
}

int sp_check_dense(const struct sparse_dense *m)
{
	if (m->rows > INT32_MAX || m->cols > INT32_MAX || m->ld > INT32_MAX || m->stride > (int64_t)1 << 40)
		return SPARSE_INVALID_VALUE;
	return bl_size(m->type) ? SPARSE_OK : SPARSE_NOT_SUPPORTED;
}

struct walk {
	struct sp_job *job;
	const struct sparse_matrix *m;
	struct sp_list *list;
	const char *offsets, *indices;
};

/* One entry, or all of a block; false: it lies outside. */
static bool add(struct walk *w, int64_t row, int64_t col, int64_t number)
{
	const struct sparse_matrix *m = w->m;
	int64_t block = m->format == SPARSE_BSR ? m->row_block * m->col_block : 1;

	if (row < 0 || col < 0 || row >= m->rows || col >= m->cols)
		return bl_reach(&w->job->work, NULL, 1);
	for (int64_t k = 0; k < block; k++) {
		struct sp_entry e = { row, col, number * block + k };

		if (m->format == SPARSE_BSR) {
			e.row = row * m->row_block + (m->order == SPARSE_ROWS ? k / m->col_block : k % m->row_block);
			e.col = col * m->col_block + (m->order == SPARSE_ROWS ? k % m->col_block : k / m->row_block);
		}
		w->list->entries[w->list->count++] = e;
	}
	return true;
}

static bool walk_pairs(struct walk *w)
{
	const struct sparse_matrix *m = w->m;

	for (int64_t i = 0; i < m->nnz; i++)
		if (!add(w, sp_index(w->offsets, m->indices_type, i) - m->base, sp_index(w->indices, m->indices_type, i) - m->base, i))
			return false;
	return true;
}

static bool walk_offsets(struct walk *w)
{
	const struct sparse_matrix *m = w->m;
	int64_t lines = m->format == SPARSE_CSC ? m->cols : m->rows, seen = 0;

	for (int64_t line = 0; line < lines; line++) {
		int64_t from = sp_index(w->offsets, m->offsets_type, line) - m->base;
		int64_t to = sp_index(w->offsets, m->offsets_type, line + 1) - m->base;

		/* no entry is in two lines */
		if (from < seen || to < from || to > m->nnz)
			return bl_reach(&w->job->work, NULL, 1);
		for (int64_t i = seen = from; i < to; i++, seen++) {
			int64_t other = sp_index(w->indices, m->indices_type, i) - m->base;

			if (!(m->format == SPARSE_CSC ? add(w, other, line, i) : add(w, line, other, i)))
				return false;
		}
	}
	return true;
}

bool sp_list(struct sp_job *job, const struct sparse_matrix *m, int64_t batch, struct sp_list *list)
{
	int64_t block = m->format == SPARSE_BSR ? m->row_block * m->col_block : 1;
	int64_t lines = m->format == SPARSE_COO ? m->nnz : (m->format == SPARSE_CSC ? m->cols : m->rows) + 1;
	int offsets_type = m->format == SPARSE_COO ? m->indices_type : m->offsets_type;
	int64_t cols_stride = m->format == SPARSE_BSR ? m->cols_stride : m->values_stride;
	int64_t offsets_stride = m->format == SPARSE_COO ? m->values_stride : m->offsets_stride;
	struct walk w = { job, m, list,
			  (const char *)m->offsets + batch * offsets_stride * (offsets_type == SPARSE_INDEX_64I ? 8 : 4),
			  (const char *)m->indices + batch * cols_stride * (m->indices_type == SPARSE_INDEX_64I ? 8 : 4) };
	const char *values = (const char *)m->values + batch * m->values_stride * (int64_t)bl_size(m->type);

	list->count = 0;
	list->entries = sp_area(job, m->nnz * block, sizeof *list->entries);
	if (!list->entries || !sp_reach_index(job, w.offsets, offsets_type, lines) ||
	    !sp_reach_index(job, w.indices, m->indices_type, m->nnz) ||
	    !bl_reach(&job->work, values, m->nnz * block * (int64_t)bl_size(m->type)))
		return false;
	return m->format == SPARSE_COO ? walk_pairs(&w) : walk_offsets(&w);
}

static int by_place(const void *left, const void *right)
{
	const struct sp_entry *a = left, *b = right;

	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	return a->col < b->col ? -1 : a->col > b->col;
}

bool sp_list_rows(struct sp_job *job, const struct sparse_matrix *m, int op, int64_t batch, struct sp_list *list, int64_t **offsets)
{
	int64_t rows = op ? sp_cols(m) : sp_rows(m);
	bool there = sp_list(job, m, batch, list);

	*offsets = there ? sp_area(job, rows + 1, sizeof **offsets) : NULL;
	if (!*offsets)
		return false;
	for (int64_t i = 0; i < list->count; i++) {
		struct sp_entry *e = &list->entries[i];

		if (op)
			*e = (struct sp_entry){ e->col, e->row, e->at };
		(*offsets)[e->row + 1]++;
	}
	for (int64_t row = 0; row < rows; row++)
		(*offsets)[row + 1] += (*offsets)[row];
	qsort(list->entries, (size_t)list->count, sizeof *list->entries, by_place);
	return true;
}

double complex sp_value(const struct sparse_matrix *m, int op, int64_t batch, const struct sp_entry *e)
{
	double complex value = bl_load((const void *)m->values, m->type, batch * m->values_stride + e->at);

	return op == BL_OP_C ? conj(value) : value;
}

/* ---- dense matrices */

static int64_t place(const struct sparse_dense *m, int64_t batch, int64_t i, int64_t j)
{
	return batch * m->stride + (m->order == SPARSE_ROWS ? i * m->ld + j : j * m->ld + i);
}

bool sp_reach_dense(struct sp_job *job, const struct sparse_dense *m)
{
	if (!m->rows || !m->cols)
		return true;
	return bl_reach(&job->work, (const void *)m->values, (place(m, m->batch - 1, m->rows - 1, m->cols - 1) + 1) * (int64_t)bl_size(m->type));
}

double complex sp_get(const struct sparse_dense *m, int op, int64_t batch, int64_t i, int64_t j)
{
	double complex value;

	batch = m->batch > 1 ? batch : 0;
	value = bl_load((const void *)m->values, m->type, op ? place(m, batch, j, i) : place(m, batch, i, j));
	return op == BL_OP_C ? conj(value) : value;
}

void sp_put(const struct sparse_dense *m, int op, int64_t batch, int64_t i, int64_t j, double complex value)
{
	bl_store((void *)m->values, m->type, op ? place(m, batch, j, i) : place(m, batch, i, j), op == BL_OP_C ? conj(value) : value);
}

struct sparse_dense sp_column(const struct sparse_vector *v)
{
	return sp_dense(v->type, v->size, 1, v->size, (const void *)v->values);
}

struct sparse_matrix sp_blocks(const void *descr, int direction, int rows, int cols, int nnz, int type, const void *values,
			       const int *offsets, const int *indices, int block)
{
	uint64_t word = sparse_settings(descr);

	return (struct sparse_matrix){ .format = block ? SPARSE_BSR : SPARSE_CSR, .offsets_type = SPARSE_INDEX_32I,
				       .indices_type = SPARSE_INDEX_32I, .base = word >> SPARSE_DESCR_BASE & 1, .type = (uint8_t)type,
				       .order = direction ? SPARSE_COLUMNS : SPARSE_ROWS, .fill = 1 + (word >> SPARSE_DESCR_FILL & 1),
				       .diag = 1 + (word >> SPARSE_DESCR_DIAG & 1), .rows = rows, .cols = cols, .nnz = nnz,
				       .offsets = (uintptr_t)offsets, .indices = (uintptr_t)indices, .values = (uintptr_t)values,
				       .batch = 1, .row_block = block, .col_block = block };
}
