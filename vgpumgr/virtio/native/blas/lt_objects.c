/* SPDX-License-Identifier: Apache-2.0 */
#include "lt_objects.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x766c7400 /* and the kind */

enum { OWN_BYTES = 272, LAYOUT_OWN_BYTES = 160, BYTES_PER_VALUE = 10 };

/* `room` numbers, as many sizes, and then as many values. */
struct lt_object {
	uint32_t magic;
	uint16_t count, room;
	uint8_t at[];
};

static uint64_t *values_of(const struct lt_object *o)
{
	return (uint64_t *)((uintptr_t)o->at + blas_padded(2 * (size_t)o->room));
}

static uint8_t *sizes_of(const struct lt_object *o)
{
	return (uint8_t *)o->at + o->room;
}

struct lt_object *lt_object(void *opaque, enum lt_object_kind kind)
{
	struct lt_object *o = opaque;

	return o && o->magic == (MAGIC | (uint32_t)kind) ? o : NULL;
}

static int find(const struct lt_object *o, unsigned int number)
{
	for (int i = 0; i < o->count; i++)
		if (o->at[i] == number)
			return i;
	return -1;
}

uint64_t lt_value(const struct lt_object *o, unsigned int number, uint64_t otherwise)
{
	int i = find(o, number);

	return i < 0 ? otherwise : values_of(o)[i];
}

size_t lt_pack(const struct lt_object *o, uint64_t *words, size_t room)
{
	if (room < 1 + 2 * (size_t)o->count)
		return 0;
	words[0] = o->count;
	for (int i = 0; i < o->count; i++) {
		words[1 + 2 * i] = o->at[i] | (uint64_t)sizes_of(o)[i] << 32;
		words[2 + 2 * i] = values_of(o)[i];
	}
	return 1 + 2 * (size_t)o->count;
}

static int set(struct lt_object *o, unsigned int number, uint64_t value, size_t bytes)
{
	int i = find(o, number);

	if (i < 0) {
		if (o->count == o->room)
			return BLAS_NOT_SUPPORTED;
		i = o->count++;
		o->at[i] = (uint8_t)number;
	}
	sizes_of(o)[i] = (uint8_t)bytes;
	values_of(o)[i] = value;
	return BLAS_OK;
}

static int set_attribute(void *opaque, enum lt_object_kind kind, int number, const void *value, size_t bytes)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct lt_object *o = lt_object(opaque, kind);
	size_t known = lt_attribute_bytes(kind, (uint32_t)number);
	uint64_t word = 0;

	if (!o || !value || number < 0)
		return BLAS_INVALID_VALUE;
	if (!known)
		return blas_unsupported("an attribute of cuBLASLt that is newer than these libraries", &told);
	if (bytes != known)
		return BLAS_INVALID_VALUE;
	memcpy(&word, value, bytes);
	return set(o, (unsigned int)number, word, bytes);
}

/* What none was set for is 0, but for a few. */
static uint64_t otherwise(enum lt_object_kind kind, int number)
{
	if (kind == LT_LAYOUT && number == 5)
		return 1; /* batches */
	if (kind == LT_DESCRIPTOR && (number == 22 || number == 26))
		return UINT32_MAX; /* types: as another's */
	if (kind == LT_DESCRIPTOR && number == 6)
		return 2; /* all of it */
	if (kind == LT_DESCRIPTOR && number == 7)
		return 1; /* no epilogue */
	if (kind == LT_PREFERENCE && number == 3)
		return 7; /* all schemes of reduction */
	if (kind == LT_PREFERENCE && number >= 5 && number <= 8)
		return 256; /* bytes that addresses are aligned to */
	if (kind == LT_PREFERENCE && number == 12)
		return UINT64_MAX; /* all implementations */
	return 0;
}

static int get_attribute(void *opaque, enum lt_object_kind kind, int number, void *value, size_t bytes, size_t *written)
{
	struct lt_object *o = lt_object(opaque, kind);
	size_t known = lt_attribute_bytes(kind, (uint32_t)number);
	uint64_t word;

	if (!o || !known)
		return BLAS_INVALID_VALUE;
	if (written)
		*written = known;
	if (!bytes)
		return written ? BLAS_OK : BLAS_INVALID_VALUE;
	if (!value || bytes < known)
		return BLAS_INVALID_VALUE;
	word = lt_value(o, (unsigned int)number, otherwise(kind, number));
	memcpy(value, &word, known);
	return BLAS_OK;
}

static int init(void *opaque, size_t bytes, enum lt_object_kind kind)
{
	struct lt_object *o = opaque;

	if (!o || bytes < sizeof(*o) + BYTES_PER_VALUE)
		return BLAS_INVALID_VALUE;
	memset(o, 0, bytes);
	o->magic = MAGIC | (uint32_t)kind;
	o->room = (uint16_t)((bytes - sizeof(*o)) / BYTES_PER_VALUE);
	while (sizeof(*o) + blas_padded(2 * (size_t)o->room) + 8 * (size_t)o->room > bytes)
		o->room--;
	if (o->room > LT_ATTRIBUTES)
		o->room = LT_ATTRIBUTES;
	return BLAS_OK;
}

static int create(void **opaque, size_t bytes, enum lt_object_kind kind)
{
	if (!opaque)
		return BLAS_INVALID_VALUE;
	*opaque = calloc(1, bytes);
	return *opaque ? init(*opaque, bytes, kind) : BLAS_ALLOC_FAILED;
}

static int destroy(void *opaque, enum lt_object_kind kind)
{
	struct lt_object *o = lt_object(opaque, kind);

	if (o)
		o->magic = 0;
	free(o);
	return BLAS_OK;
}

#define ATTRIBUTES(name, kind)                                                                                    \
	BLAS_API int cublasLt##name##SetAttribute(void *opaque, int number, const void *value, size_t bytes);     \
	int cublasLt##name##SetAttribute(void *opaque, int number, const void *value, size_t bytes)               \
	{                                                                                                         \
		return set_attribute(opaque, kind, number, value, bytes);                                         \
	}                                                                                                         \
	BLAS_API int cublasLt##name##GetAttribute(void *opaque, int number, void *value, size_t bytes, size_t *written); \
	int cublasLt##name##GetAttribute(void *opaque, int number, void *value, size_t bytes, size_t *written)    \
	{                                                                                                         \
		return get_attribute(opaque, kind, number, value, bytes, written);                                \
	}                                                                                                         \
	BLAS_API int cublasLt##name##Destroy(void *opaque);                                                       \
	int cublasLt##name##Destroy(void *opaque)                                                                 \
	{                                                                                                         \
		return destroy(opaque, kind);                                                                     \
	}

ATTRIBUTES(MatmulDesc, LT_DESCRIPTOR)
ATTRIBUTES(MatrixLayout, LT_LAYOUT)
ATTRIBUTES(MatmulPreference, LT_PREFERENCE)
ATTRIBUTES(MatrixTransformDesc, LT_TRANSFORMATION)

/* ---- made with what they cannot be without */

BLAS_API int cublasLtMatmulDescInit_internal(void *opaque, size_t bytes, int compute, int scale);
int cublasLtMatmulDescInit_internal(void *opaque, size_t bytes, int compute, int scale)
{
	int status = init(opaque, bytes, LT_DESCRIPTOR);

	if (status == BLAS_OK)
		status = set(opaque, LT_DESC_COMPUTE, (uint64_t)compute, sizeof(compute));
	return status == BLAS_OK ? set(opaque, LT_DESC_SCALE, (uint64_t)scale, sizeof(scale)) : status;
}

BLAS_API int cublasLtMatmulDescCreate(void **opaque, int compute, int scale);
int cublasLtMatmulDescCreate(void **opaque, int compute, int scale)
{
	int status = create(opaque, OWN_BYTES, LT_DESCRIPTOR);

	return status == BLAS_OK ? cublasLtMatmulDescInit_internal(*opaque, OWN_BYTES, compute, scale) : status;
}

BLAS_API int cublasLtMatrixLayoutInit_internal(void *opaque, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutInit_internal(void *opaque, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
	int status = init(opaque, bytes, LT_LAYOUT);

	if (status == BLAS_OK)
		status = set(opaque, LT_LAYOUT_TYPE, (uint64_t)type, sizeof(type));
	if (status == BLAS_OK)
		status = set(opaque, LT_LAYOUT_ROWS, rows, sizeof(rows));
	if (status == BLAS_OK)
		status = set(opaque, LT_LAYOUT_COLS, columns, sizeof(columns));
	return status == BLAS_OK ? set(opaque, LT_LAYOUT_LD, (uint64_t)ld, sizeof(ld)) : status;
}

BLAS_API int cublasLtMatrixLayoutCreate(void **opaque, int type, uint64_t rows, uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutCreate(void **opaque, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
	int status = create(opaque, LAYOUT_OWN_BYTES, LT_LAYOUT);

	return status == BLAS_OK ? cublasLtMatrixLayoutInit_internal(*opaque, LAYOUT_OWN_BYTES, type, rows, columns, ld) : status;
}

BLAS_API int cublasLtMatmulPreferenceInit_internal(void *opaque, size_t bytes);
int cublasLtMatmulPreferenceInit_internal(void *opaque, size_t bytes)
{
	return init(opaque, bytes, LT_PREFERENCE);
}

BLAS_API int cublasLtMatmulPreferenceCreate(void **opaque);
int cublasLtMatmulPreferenceCreate(void **opaque)
{
	return create(opaque, OWN_BYTES, LT_PREFERENCE);
}

BLAS_API int cublasLtMatrixTransformDescInit_internal(void *opaque, size_t bytes, int scale);
int cublasLtMatrixTransformDescInit_internal(void *opaque, size_t bytes, int scale)
{
	int status = init(opaque, bytes, LT_TRANSFORMATION);

	return status == BLAS_OK ? set(opaque, LT_TRANSFORM_SCALE, (uint64_t)scale, sizeof(scale)) : status;
}

BLAS_API int cublasLtMatrixTransformDescCreate(void **opaque, int scale);
int cublasLtMatrixTransformDescCreate(void **opaque, int scale)
{
	int status = create(opaque, OWN_BYTES, LT_TRANSFORMATION);

	return status == BLAS_OK ? cublasLtMatrixTransformDescInit_internal(*opaque, OWN_BYTES, scale) : status;
}
