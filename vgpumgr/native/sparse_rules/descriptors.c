/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of sparse matrices. */
#include <stdlib.h>

#include "descriptors.h"

struct sparse_descriptor *sparse_descriptor(const void *descriptor, uint64_t kind)
{
	struct sparse_descriptor *d = (void *)descriptor;

	return d && d->kind == kind ? d : NULL;
}

int sparse_new(void **out, uint64_t kind, const union sparse_any *any)
{
	struct sparse_descriptor *d = out ? calloc(1, sizeof(*d)) : NULL;

	if (!out)
		return SPARSE_INVALID_VALUE;
	*out = d;
	if (!d)
		return SPARSE_ALLOC_FAILED;
	d->any = *any;
	d->kind = kind;
	return SPARSE_OK;
}

int sparse_end(const void *descriptor, uint64_t kind)
{
	struct sparse_descriptor *d = sparse_descriptor(descriptor, kind);

	if (!d)
		return descriptor ? SPARSE_INVALID_VALUE : SPARSE_OK;
	d->kind = 0;
	free(d);
	return SPARSE_OK;
}

bool sparse_is_index(int type)
{
	return type >= SPARSE_INDEX_16U && type <= SPARSE_INDEX_64I;
}

static struct sparse_matrix *matrix(const void *descriptor)
{
	struct sparse_descriptor *d = sparse_descriptor(descriptor, SPARSE_MATRIX);

	return d ? &d->any.matrix : NULL;
}

static int create(void **out, const struct sparse_matrix *m, int offsets_type, int indices_type, int base, int type)
{
	union sparse_any any = { .matrix = *m };

	if (m->rows < 0 || m->cols < 0 || m->nnz < 0 || base < 0 || base > 1 || type < 0 || type > UINT8_MAX ||
	    !sparse_is_index(indices_type) || !sparse_is_index(offsets_type))
		return SPARSE_INVALID_VALUE;
	any.matrix.offsets_type = (uint8_t)offsets_type;
	any.matrix.indices_type = (uint8_t)indices_type;
	any.matrix.base = (uint8_t)base;
	any.matrix.type = (uint8_t)type;
	any.matrix.batch = 1;
	return sparse_new(out, SPARSE_MATRIX, &any);
}

#define ADDRESS(pointer) ((uintptr_t)(pointer))

/* Two names for each: descriptors of what a call only reads are the same. */
#define OFFSETS(name, number)                                                                                                  \
	SPARSE_FUNCTION(int, name, void **out, int64_t rows, int64_t cols, int64_t nnz, const void *offsets, const void *indices, \
			const void *values, int offsets_type, int indices_type, int base, int type)                            \
	{                                                                                                                      \
		return create(out, &(struct sparse_matrix){ .format = number, .rows = rows, .cols = cols, .nnz = nnz,            \
							    .offsets = ADDRESS(offsets), .indices = ADDRESS(indices),          \
							    .values = ADDRESS(values) },                                        \
			      offsets_type, indices_type, base, type);                                                         \
	}
#define PAIRS(name)                                                                                                            \
	SPARSE_FUNCTION(int, name, void **out, int64_t rows, int64_t cols, int64_t nnz, const void *at_rows, const void *at_cols, \
			const void *values, int indices_type, int base, int type)                                              \
	{                                                                                                                      \
		return create(out, &(struct sparse_matrix){ .format = SPARSE_COO, .rows = rows, .cols = cols, .nnz = nnz,         \
							    .offsets = ADDRESS(at_rows), .indices = ADDRESS(at_cols),          \
							    .values = ADDRESS(values) },                                        \
			      indices_type, indices_type, base, type);                                                         \
	}
#define BLOCKS(name)                                                                                                           \
	SPARSE_FUNCTION(int, name, void **out, int64_t rows, int64_t cols, int64_t nnz, int64_t row_block, int64_t col_block,   \
			const void *offsets, const void *indices, const void *values, int offsets_type, int indices_type,      \
			int base, int type, int order)                                                                         \
	{                                                                                                                      \
		if (row_block < 1 || col_block < 1 || (order != SPARSE_COLUMNS && order != SPARSE_ROWS))                         \
			return SPARSE_INVALID_VALUE;                                                                           \
		return create(out, &(struct sparse_matrix){ .format = SPARSE_BSR, .rows = rows, .cols = cols, .nnz = nnz,         \
							    .row_block = row_block, .col_block = col_block,                    \
							    .order = (uint8_t)order, .offsets = ADDRESS(offsets),              \
							    .indices = ADDRESS(indices), .values = ADDRESS(values) },          \
			      offsets_type, indices_type, base, type);                                                         \
	}
OFFSETS(cusparseCreateCsr, SPARSE_CSR)
OFFSETS(cusparseCreateConstCsr, SPARSE_CSR)
OFFSETS(cusparseCreateCsc, SPARSE_CSC)
OFFSETS(cusparseCreateConstCsc, SPARSE_CSC)
PAIRS(cusparseCreateCoo)
PAIRS(cusparseCreateConstCoo)
BLOCKS(cusparseCreateBsr)
BLOCKS(cusparseCreateConstBsr)

SPARSE_FUNCTION(int, cusparseDestroySpMat, const void *descriptor)
{
	return sparse_end(descriptor, SPARSE_MATRIX);
}

/* ---- what they have */

struct place {
	int64_t *rows, *cols, *nnz;
	void **offsets, **indices, **values;
	int *offsets_type, *indices_type, *base, *type;
};

static int get(const void *descriptor, int format, const struct place *to)
{
	const struct sparse_matrix *m = matrix(descriptor);

	if (!m || m->format != format || !to->rows || !to->cols || !to->nnz || !to->offsets || !to->indices || !to->values ||
	    !to->offsets_type || !to->indices_type || !to->base || !to->type)
		return SPARSE_INVALID_VALUE;
	*to->rows = m->rows, *to->cols = m->cols, *to->nnz = m->nnz;
	*to->offsets = (void *)m->offsets, *to->indices = (void *)m->indices, *to->values = (void *)m->values;
	*to->offsets_type = m->offsets_type, *to->indices_type = m->indices_type, *to->base = m->base, *to->type = m->type;
	return SPARSE_OK;
}

#define GET(name, format)                                                                                                       \
	SPARSE_FUNCTION(int, name, const void *descriptor, int64_t *rows, int64_t *cols, int64_t *nnz, void **offsets,          \
			void **indices, void **values, int *offsets_type, int *indices_type, int *base, int *type)             \
	{                                                                                                                      \
		return get(descriptor, format, &(struct place){ rows, cols, nnz, offsets, indices, values, offsets_type,         \
								indices_type, base, type });                                   \
	}
#define GET_PAIRS(name)                                                                                                        \
	SPARSE_FUNCTION(int, name, const void *descriptor, int64_t *rows, int64_t *cols, int64_t *nnz, void **at_rows,          \
			void **at_cols, void **values, int *indices_type, int *base, int *type)                                \
	{                                                                                                                      \
		return get(descriptor, SPARSE_COO, &(struct place){ rows, cols, nnz, at_rows, at_cols, values, indices_type,     \
								    indices_type, base, type });                               \
	}
GET(cusparseCsrGet, SPARSE_CSR)
GET(cusparseConstCsrGet, SPARSE_CSR)
GET(cusparseCscGet, SPARSE_CSC)
GET(cusparseConstCscGet, SPARSE_CSC)
GET_PAIRS(cusparseCooGet)
GET_PAIRS(cusparseConstCooGet)

SPARSE_FUNCTION(int, cusparseSpMatGetSize, const void *descriptor, int64_t *rows, int64_t *cols, int64_t *nnz)
{
	const struct sparse_matrix *m = matrix(descriptor);

	if (!m || !rows || !cols || !nnz)
		return SPARSE_INVALID_VALUE;
	*rows = m->rows, *cols = m->cols, *nnz = m->nnz;
	return SPARSE_OK;
}

static int give(const struct sparse_matrix *m, int *to, int value)
{
	if (!m || !to)
		return SPARSE_INVALID_VALUE;
	*to = value;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseSpMatGetFormat, const void *descriptor, int *format)
{
	const struct sparse_matrix *m = matrix(descriptor);

	return give(m, format, m ? m->format : 0);
}

SPARSE_FUNCTION(int, cusparseSpMatGetIndexBase, const void *descriptor, int *base)
{
	const struct sparse_matrix *m = matrix(descriptor);

	return give(m, base, m ? m->base : 0);
}

SPARSE_FUNCTION(int, cusparseSpMatGetStridedBatch, const void *descriptor, int *count)
{
	const struct sparse_matrix *m = matrix(descriptor);

	return give(m, count, m ? (int)m->batch : 0);
}

static int give_values(const struct sparse_matrix *m, void **values)
{
	if (!m || !values)
		return SPARSE_INVALID_VALUE;
	*values = (void *)m->values;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseSpMatGetValues, const void *descriptor, void **values)
{
	return give_values(matrix(descriptor), values);
}

SPARSE_FUNCTION(int, cusparseConstSpMatGetValues, const void *descriptor, void **values)
{
	return give_values(matrix(descriptor), values);
}

/* Of its attributes one more than the value is kept: 0 is one that was not set. */
static uint8_t *attribute(struct sparse_matrix *m, int number, const void *data, size_t size)
{
	if (!m || !data || size != sizeof(int) || number < 0 || number > 1)
		return NULL;
	return number ? &m->diag : &m->fill;
}

SPARSE_FUNCTION(int, cusparseSpMatGetAttribute, const void *descriptor, int number, void *data, size_t size)
{
	const uint8_t *kept = attribute(matrix(descriptor), number, data, size);

	return kept ? give(matrix(descriptor), data, *kept ? *kept - 1 : 0) : SPARSE_INVALID_VALUE;
}

/* ---- what they are set to */

SPARSE_FUNCTION(int, cusparseSpMatSetAttribute, void *descriptor, int number, const void *data, size_t size)
{
	uint8_t *kept = attribute(matrix(descriptor), number, data, size);

	if (!kept || *(const int *)data < 0 || *(const int *)data > 1)
		return SPARSE_INVALID_VALUE;
	*kept = (uint8_t)(1 + *(const int *)data);
	return SPARSE_OK;
}

static int set_pointers(struct sparse_matrix *m, int format, const void *offsets, const void *indices, const void *values)
{
	if (!m || m->format != format)
		return SPARSE_INVALID_VALUE;
	m->offsets = ADDRESS(offsets), m->indices = ADDRESS(indices), m->values = ADDRESS(values);
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseCsrSetPointers, void *descriptor, void *offsets, void *indices, void *values)
{
	return set_pointers(matrix(descriptor), SPARSE_CSR, offsets, indices, values);
}

SPARSE_FUNCTION(int, cusparseCscSetPointers, void *descriptor, void *offsets, void *indices, void *values)
{
	return set_pointers(matrix(descriptor), SPARSE_CSC, offsets, indices, values);
}

SPARSE_FUNCTION(int, cusparseCooSetPointers, void *descriptor, void *rows, void *cols, void *values)
{
	return set_pointers(matrix(descriptor), SPARSE_COO, rows, cols, values);
}

SPARSE_FUNCTION(int, cusparseSpMatSetValues, void *descriptor, void *values)
{
	struct sparse_matrix *m = matrix(descriptor);

	if (!m)
		return SPARSE_INVALID_VALUE;
	m->values = ADDRESS(values);
	return SPARSE_OK;
}

static int set_batch(struct sparse_matrix *m, int format, int count, int64_t offsets_stride, int64_t values_stride)
{
	if (!m || m->format != format || count < 1 || offsets_stride < 0 || values_stride < 0)
		return SPARSE_INVALID_VALUE;
	m->batch = count, m->offsets_stride = offsets_stride, m->values_stride = values_stride;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseCsrSetStridedBatch, void *descriptor, int count, int64_t offsets_stride, int64_t values_stride)
{
	return set_batch(matrix(descriptor), SPARSE_CSR, count, offsets_stride, values_stride);
}

SPARSE_FUNCTION(int, cusparseCooSetStridedBatch, void *descriptor, int count, int64_t stride)
{
	return set_batch(matrix(descriptor), SPARSE_COO, count, 0, stride);
}

SPARSE_FUNCTION(int, cusparseBsrSetStridedBatch, void *descriptor, int count, int64_t offsets_stride, int64_t cols_stride,
		int64_t values_stride)
{
	struct sparse_matrix *m = matrix(descriptor);
	int status = cols_stride < 0 ? SPARSE_INVALID_VALUE : set_batch(m, SPARSE_BSR, count, offsets_stride, values_stride);

	if (status == SPARSE_OK)
		m->cols_stride = cols_stride;
	return status;
}
