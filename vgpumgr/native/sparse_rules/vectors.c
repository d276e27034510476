/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of dense matrices, of vectors, and of the interface of types. */
#include <stdlib.h>

#include "descriptors.h"

/* ---- dense matrices */

static struct sparse_dense *dense(const void *descriptor)
{
	struct sparse_descriptor *d = sparse_descriptor(descriptor, SPARSE_DENSE);

	return d ? &d->any.dense : NULL;
}

static int create_dense(void **out, int64_t rows, int64_t cols, int64_t ld, const void *values, int type, int order)
{
	union sparse_any any = { .dense = { .type = (uint8_t)type, .order = (uint8_t)order, .rows = rows, .cols = cols, .ld = ld,
					    .values = (uintptr_t)values, .batch = 1 } };

	if (rows < 0 || cols < 0 || type < 0 || type > UINT8_MAX || (order != SPARSE_COLUMNS && order != SPARSE_ROWS) ||
	    ld < (order == SPARSE_COLUMNS ? rows : cols))
		return SPARSE_INVALID_VALUE;
	return sparse_new(out, SPARSE_DENSE, &any);
}

SPARSE_FUNCTION(int, cusparseCreateDnMat, void **out, int64_t rows, int64_t cols, int64_t ld, void *values, int type, int order)
{
	return create_dense(out, rows, cols, ld, values, type, order);
}

SPARSE_FUNCTION(int, cusparseCreateConstDnMat, void **out, int64_t rows, int64_t cols, int64_t ld, const void *values, int type,
		int order)
{
	return create_dense(out, rows, cols, ld, values, type, order);
}

SPARSE_FUNCTION(int, cusparseDestroyDnMat, const void *descriptor)
{
	return sparse_end(descriptor, SPARSE_DENSE);
}

static int get_dense(const struct sparse_dense *m, int64_t *rows, int64_t *cols, int64_t *ld, void **values, int *type, int *order)
{
	if (!m || !rows || !cols || !ld || !values || !type || !order)
		return SPARSE_INVALID_VALUE;
	*rows = m->rows, *cols = m->cols, *ld = m->ld, *values = (void *)m->values, *type = m->type, *order = m->order;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseDnMatGet, const void *descriptor, int64_t *rows, int64_t *cols, int64_t *ld, void **values, int *type,
		int *order)
{
	return get_dense(dense(descriptor), rows, cols, ld, values, type, order);
}

SPARSE_FUNCTION(int, cusparseConstDnMatGet, const void *descriptor, int64_t *rows, int64_t *cols, int64_t *ld, void **values,
		int *type, int *order)
{
	return get_dense(dense(descriptor), rows, cols, ld, values, type, order);
}

SPARSE_FUNCTION(int, cusparseDnMatSetStridedBatch, void *descriptor, int count, int64_t stride)
{
	struct sparse_dense *m = dense(descriptor);

	if (!m || count < 1 || stride < 0)
		return SPARSE_INVALID_VALUE;
	m->batch = count, m->stride = stride;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseDnMatGetStridedBatch, const void *descriptor, int *count, int64_t *stride)
{
	const struct sparse_dense *m = dense(descriptor);

	if (!m || !count || !stride)
		return SPARSE_INVALID_VALUE;
	*count = (int)m->batch, *stride = m->stride;
	return SPARSE_OK;
}

/* ---- vectors: dense ones, and those of entries */

static struct sparse_vector *vector(const void *descriptor)
{
	struct sparse_descriptor *d = sparse_descriptor(descriptor, SPARSE_VECTOR);

	return d ? &d->any.vector : NULL;
}

static int create_vector(void **out, int64_t size, const void *values, int type)
{
	union sparse_any any = { .vector = { .type = (uint8_t)type, .size = size, .values = (uintptr_t)values } };

	return size < 0 || type < 0 || type > UINT8_MAX ? SPARSE_INVALID_VALUE : sparse_new(out, SPARSE_VECTOR, &any);
}

SPARSE_FUNCTION(int, cusparseCreateDnVec, void **out, int64_t size, void *values, int type)
{
	return create_vector(out, size, values, type);
}

SPARSE_FUNCTION(int, cusparseCreateConstDnVec, void **out, int64_t size, const void *values, int type)
{
	return create_vector(out, size, values, type);
}

SPARSE_FUNCTION(int, cusparseDestroyDnVec, const void *descriptor)
{
	return sparse_end(descriptor, SPARSE_VECTOR);
}

static int get_vector(const struct sparse_vector *v, int64_t *size, void **values, int *type)
{
	if (!v || !size || !values || !type)
		return SPARSE_INVALID_VALUE;
	*size = v->size, *values = (void *)v->values, *type = v->type;
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseDnVecGet, const void *descriptor, int64_t *size, void **values, int *type)
{
	return get_vector(vector(descriptor), size, values, type);
}

SPARSE_FUNCTION(int, cusparseConstDnVecGet, const void *descriptor, int64_t *size, void **values, int *type)
{
	return get_vector(vector(descriptor), size, values, type);
}

static struct sparse_entries *entries(const void *descriptor)
{
	struct sparse_descriptor *d = sparse_descriptor(descriptor, SPARSE_ENTRIES);

	return d ? &d->any.entries : NULL;
}

static int create_entries(void **out, int64_t size, int64_t nnz, const void *indices, const void *values, int indices_type, int base,
			  int type)
{
	union sparse_any any = { .entries = { .indices_type = (uint8_t)indices_type, .base = (uint8_t)base, .type = (uint8_t)type,
					      .size = size, .nnz = nnz, .indices = (uintptr_t)indices,
					      .values = (uintptr_t)values } };

	if (size < 0 || nnz < 0 || !sparse_is_index(indices_type) || base < 0 || base > 1 || type < 0 || type > UINT8_MAX)
		return SPARSE_INVALID_VALUE;
	return sparse_new(out, SPARSE_ENTRIES, &any);
}

SPARSE_FUNCTION(int, cusparseCreateSpVec, void **out, int64_t size, int64_t nnz, void *indices, void *values, int indices_type,
		int base, int type)
{
	return create_entries(out, size, nnz, indices, values, indices_type, base, type);
}

SPARSE_FUNCTION(int, cusparseCreateConstSpVec, void **out, int64_t size, int64_t nnz, const void *indices, const void *values,
		int indices_type, int base, int type)
{
	return create_entries(out, size, nnz, indices, values, indices_type, base, type);
}

SPARSE_FUNCTION(int, cusparseDestroySpVec, const void *descriptor)
{
	return sparse_end(descriptor, SPARSE_ENTRIES);
}

#define GET_ENTRIES(name)                                                                                                            \
	SPARSE_FUNCTION(int, name, const void *descriptor, int64_t *size, int64_t *nnz, void **indices, void **values, int *indices_type, \
			int *base, int *type)                                                                                       \
	{                                                                                                                           \
		const struct sparse_entries *v = entries(descriptor);                                                               \
		if (!v || !size || !nnz || !indices || !values || !indices_type || !base || !type)                                    \
			return SPARSE_INVALID_VALUE;                                                                                \
		*size = v->size, *nnz = v->nnz, *indices = (void *)v->indices, *values = (void *)v->values;                           \
		*indices_type = v->indices_type, *base = v->base, *type = v->type;                                                    \
		return SPARSE_OK;                                                                                                   \
	}
GET_ENTRIES(cusparseSpVecGet)
GET_ENTRIES(cusparseConstSpVecGet)

SPARSE_FUNCTION(int, cusparseSpVecGetIndexBase, const void *descriptor, int *base)
{
	const struct sparse_entries *v = entries(descriptor);

	if (!v || !base)
		return SPARSE_INVALID_VALUE;
	*base = v->base;
	return SPARSE_OK;
}

/* ---- where the values of either lie */

#define VALUES(what, find, setter, getter, constant)                       \
	SPARSE_FUNCTION(int, setter, void *descriptor, void *values)       \
	{                                                                  \
		if (!find(descriptor))                                     \
			return SPARSE_INVALID_VALUE;                       \
		find(descriptor)->values = (uintptr_t)values;              \
		return SPARSE_OK;                                          \
	}                                                                  \
	SPARSE_FUNCTION(int, getter, const void *descriptor, void **values) \
	{                                                                  \
		if (!find(descriptor) || !values)                          \
			return SPARSE_INVALID_VALUE;                       \
		*values = (void *)find(descriptor)->values;                \
		return SPARSE_OK;                                          \
	}                                                                  \
	SPARSE_FUNCTION(int, constant, const void *descriptor, void **values) \
	{                                                                  \
		return getter(descriptor, values);                         \
	}
VALUES(dense, dense, cusparseDnMatSetValues, cusparseDnMatGetValues, cusparseConstDnMatGetValues)
VALUES(vector, vector, cusparseDnVecSetValues, cusparseDnVecGetValues, cusparseConstDnVecGetValues)
VALUES(entries, entries, cusparseSpVecSetValues, cusparseSpVecGetValues, cusparseConstSpVecGetValues)

/* ---- of the interface of types */

static struct sparse_settings *find_settings(const void *descriptor)
{
	struct sparse_settings *s = (void *)descriptor;

	return s && s->kind == SPARSE_SETTINGS ? s : NULL;
}

uint64_t sparse_settings(const void *descriptor)
{
	const struct sparse_settings *s = find_settings(descriptor);

	return s ? s->word : 0;
}

SPARSE_FUNCTION(int, cusparseCreateMatDescr, void **out)
{
	struct sparse_settings *s = out ? calloc(1, sizeof(*s)) : NULL;

	if (!out)
		return SPARSE_INVALID_VALUE;
	*out = s;
	if (!s)
		return SPARSE_ALLOC_FAILED;
	*s = (struct sparse_settings){ SPARSE_SETTINGS, SPARSE_DESCR };
	return SPARSE_OK;
}

SPARSE_FUNCTION(int, cusparseDestroyMatDescr, void *descriptor)
{
	struct sparse_settings *s = find_settings(descriptor);

	if (!s)
		return descriptor ? SPARSE_INVALID_VALUE : SPARSE_OK;
	s->kind = 0;
	free(s);
	return SPARSE_OK;
}

static int set(struct sparse_settings *s, int shift, int value, int most)
{
	if (!s || value < 0 || value > most)
		return SPARSE_INVALID_VALUE;
	s->word = (s->word & ~(0xffull << shift)) | (uint64_t)value << shift;
	return SPARSE_OK;
}

#define SETTING(setter, getter, shift, most)                          \
	SPARSE_FUNCTION(int, setter, void *descriptor, int value)     \
	{                                                             \
		return set(find_settings(descriptor), shift, value, most); \
	}                                                             \
	SPARSE_FUNCTION(int, getter, const void *descriptor)          \
	{                                                             \
		return (int)(sparse_settings(descriptor) >> shift & 0xff); \
	}
SETTING(cusparseSetMatType, cusparseGetMatType, SPARSE_DESCR_TYPE, 3)
SETTING(cusparseSetMatFillMode, cusparseGetMatFillMode, SPARSE_DESCR_FILL, 1)
SETTING(cusparseSetMatDiagType, cusparseGetMatDiagType, SPARSE_DESCR_DIAG, 1)
SETTING(cusparseSetMatIndexBase, cusparseGetMatIndexBase, SPARSE_DESCR_BASE, 1)
