/* SPDX-License-Identifier: Apache-2.0 */
#include "lt_objects.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x766c7400 /* and the kind */

enum { OWN_BYTES = 256 };

/* One behind the other: a number, and the bytes of its value. A layout of CUDA 12's has 64 bytes in all. */
struct lt_object {
	uint32_t magic;
	uint16_t used, room;
	uint8_t at[];
};

static enum lt_object_kind kind_of(const struct lt_object *o)
{
	return (enum lt_object_kind)(o->magic & 0xff);
}

struct lt_object *lt_object(void *opaque, enum lt_object_kind kind)
{
	struct lt_object *o = opaque;

	return o && o->magic == (MAGIC | (uint32_t)kind) ? o : NULL;
}

static size_t step(const struct lt_object *o, size_t place)
{
	return 1 + lt_attribute_bytes(kind_of(o), o->at[place]);
}

/* Where the attribute is; o->used: it was not set. */
static size_t find(const struct lt_object *o, unsigned int number)
{
	size_t place = 0;

	while (place < o->used && o->at[place] != number)
		place += step(o, place);
	return place;
}

uint64_t lt_value(const struct lt_object *o, unsigned int number, uint64_t otherwise)
{
	size_t place = find(o, number);
	uint64_t value = 0;

	if (place >= o->used)
		return otherwise;
	memcpy(&value, o->at + place + 1, step(o, place) - 1);
	return value;
}

size_t lt_pack(const struct lt_object *o, uint64_t *words, size_t room)
{
	size_t count = 0;

	for (size_t place = 0; place < o->used; place += step(o, place)) {
		if (3 + 2 * count > room || count == LT_ATTRIBUTES)
			return 0;
		words[1 + 2 * count] = o->at[place] | (uint64_t)(step(o, place) - 1) << 32;
		words[2 + 2 * count] = lt_value(o, o->at[place], 0);
		count++;
	}
	if (!room)
		return 0;
	words[0] = count;
	return 1 + 2 * count;
}

static int set(struct lt_object *o, unsigned int number, uint64_t value, size_t bytes)
{
	size_t place = find(o, number);

	if (place >= o->used) {
		if (o->used + 1 + bytes > o->room)
			return BLAS_NOT_SUPPORTED;
		o->at[place] = (uint8_t)number;
		o->used = (uint16_t)(o->used + 1 + bytes);
	}
	memcpy(o->at + place + 1, &value, bytes);
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

	if (!o || bytes < sizeof(*o) || bytes > UINT16_MAX)
		return BLAS_INVALID_VALUE;
	memset(o, 0, bytes);
	o->magic = MAGIC | (uint32_t)kind;
	o->room = (uint16_t)(bytes - sizeof(*o));
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
	int status = create(opaque, OWN_BYTES, LT_LAYOUT);

	return status == BLAS_OK ? cublasLtMatrixLayoutInit_internal(*opaque, OWN_BYTES, type, rows, columns, ld) : status;
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
