/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, descriptors and their attributes. */
#include <stdlib.h>
#include <string.h>

#include "lt_exports.h"

#define AT(type, id, member) { id, offsetof(struct type, member), sizeof(((struct type *)0)->member) }
#define COUNT(table) (sizeof(table) / sizeof *(table))

static const struct lt_attribute layout_attributes[] = {
	AT(lt_layout, 0, type), AT(lt_layout, 1, order), AT(lt_layout, 2, rows),   AT(lt_layout, 3, cols),	   AT(lt_layout, 4, ld),
	AT(lt_layout, 5, batch), AT(lt_layout, 6, stride), AT(lt_layout, 7, plane_offset), AT(lt_layout, 8, batch_mode),
};

static const struct lt_attribute desc_attributes[] = {
	AT(lt_desc, 0, compute),	AT(lt_desc, 1, scale),		 AT(lt_desc, 2, pointer_mode),
	AT(lt_desc, 3, op_a),		AT(lt_desc, 4, op_b),		 AT(lt_desc, 5, op_c),
	AT(lt_desc, 6, fill),		AT(lt_desc, 7, epilogue),	 AT(lt_desc, 8, bias),
	AT(lt_desc, 10, bias_stride),	AT(lt_desc, 11, aux),		 AT(lt_desc, 12, aux_ld),
	AT(lt_desc, 13, aux_stride),	AT(lt_desc, 14, alpha_stride),	 AT(lt_desc, 15, sm_count),
	AT(lt_desc, 17, scales[0]),	AT(lt_desc, 18, scales[1]),	 AT(lt_desc, 19, scales[2]),
	AT(lt_desc, 20, scales[3]),	AT(lt_desc, 21, scales[4]),	 AT(lt_desc, 22, aux_type),
	AT(lt_desc, 23, aux_scale),	AT(lt_desc, 24, aux_largest),	 AT(lt_desc, 25, fast_accumulation),
	AT(lt_desc, 26, bias_type),	AT(lt_desc, 31, scale_modes[0]), AT(lt_desc, 32, scale_modes[1]),
	AT(lt_desc, 33, scale_modes[2]), AT(lt_desc, 34, scale_modes[3]), AT(lt_desc, 35, scale_modes[4]),
	AT(lt_desc, 36, out_scale),	AT(lt_desc, 37, out_scale_mode), AT(lt_desc, 38, emulation),
	AT(lt_desc, 39, alpha_batch_stride), AT(lt_desc, 40, beta_batch_stride), AT(lt_desc, 41, invariance),
};

static const struct lt_attribute preference_attributes[] = {
	AT(lt_preference, 0, search),	     AT(lt_preference, 1, workspace),	  AT(lt_preference, 3, reductions),
	AT(lt_preference, 5, alignments[0]), AT(lt_preference, 6, alignments[1]), AT(lt_preference, 7, alignments[2]),
	AT(lt_preference, 8, alignments[3]), AT(lt_preference, 9, waves),	  AT(lt_preference, 12, implementations),
};

static const struct lt_attribute transform_attributes[] = {
	AT(lt_transform, 0, scale),
	AT(lt_transform, 1, pointer_mode),
	AT(lt_transform, 2, op_a),
	AT(lt_transform, 3, op_b),
};

_Static_assert(sizeof(struct lt_layout) <= LT_LAYOUT_BYTES, "a layout fits");
_Static_assert(sizeof(struct lt_desc) <= LT_DESC_BYTES, "a description of a product fits");
_Static_assert(sizeof(struct lt_preference) <= LT_PREFERENCE_BYTES, "a preference fits");
_Static_assert(sizeof(struct lt_transform) <= LT_TRANSFORM_BYTES, "a description of a transformation fits");
_Static_assert(sizeof(struct lt_algo) == LT_ALGO_BYTES, "an algorithm is as large as the header says");

static const struct lt_attribute *find(const struct lt_attribute *table, size_t n, int id)
{
	for (size_t i = 0; i < n; i++)
		if (table[i].id == id)
			return &table[i];
	return NULL;
}

int lt_set(const struct lt_attribute *table, size_t n, void *object, int id, const void *value, size_t size)
{
	const struct lt_attribute *a = find(table, n, id);

	if (!object || !value || !a || size != a->size)
		return BL_INVALID_VALUE;
	memcpy((char *)object + a->offset, value, size);
	return BL_SUCCESS;
}

int lt_give(const void *value, size_t needed, void *out, size_t size, size_t *written)
{
	if (!size) {
		if (!written)
			return BL_INVALID_VALUE;
		*written = needed;
		return BL_SUCCESS;
	}
	if (!out || size < needed)
		return BL_INVALID_VALUE;
	memcpy(out, value, needed);
	if (written)
		*written = needed;
	return BL_SUCCESS;
}

int lt_get(const struct lt_attribute *table, size_t n, const void *object, int id, void *value, size_t size, size_t *written)
{
	const struct lt_attribute *a = find(table, n, id);

	if (!object || !a)
		return BL_INVALID_VALUE;
	return lt_give((const char *)object + a->offset, a->size, value, size, written);
}

/* Writes a fresh object where the program has the room. */
static int init(void *place, size_t room, const void *fresh, size_t size)
{
	if (!place)
		return BL_INVALID_VALUE;
	if (room < size)
		return BL_ALLOC_FAILED;
	memset(place, 0, room);
	memcpy(place, fresh, size);
	return BL_SUCCESS;
}

/* A fresh object of the opaque struct's size. */
static int create(void **out, size_t room, const void *fresh, size_t size)
{
	if (!out)
		return BL_INVALID_VALUE;
	*out = calloc(1, room);
	return *out ? init(*out, room, fresh, size) : BL_ALLOC_FAILED;
}

static int destroy(void *object)
{
	free(object);
	return BL_SUCCESS;
}

int cublasLtCreate(void **handle)
{
	int status;

	if (!handle)
		return BL_INVALID_VALUE;
	*handle = bl_handle_create(&status);
	return status;
}

int cublasLtDestroy(void *handle)
{
	return bl_handle_destroy(handle);
}

size_t cublasLtGetVersion(void)
{
	return (size_t)bl_version();
}

size_t cublasLtGetCudartVersion(void)
{
	return (size_t)(bl_version() / 10000 * 1000);
}

int cublasLtGetProperty(int type, int *value)
{
	int version = bl_version();

	if (!value || type < 0 || type > 2)
		return BL_INVALID_VALUE;
	*value = type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100;
	return BL_SUCCESS;
}

const char *cublasLtGetStatusName(int status)
{
	return bl_status_name(status);
}

const char *cublasLtGetStatusString(int status)
{
	return bl_status_text(status);
}

static struct lt_layout fresh_layout(int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	return (struct lt_layout){ .type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1 };
}

int cublasLtMatrixLayoutInit_internal(void *layout, size_t size, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	struct lt_layout fresh = fresh_layout(type, rows, cols, ld);

	return init(layout, size, &fresh, sizeof fresh);
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	struct lt_layout fresh = fresh_layout(type, rows, cols, ld);

	return create(layout, 14 * sizeof(uint64_t), &fresh, sizeof fresh);
}

int cublasLtMatrixLayoutDestroy(void *layout)
{
	return destroy(layout);
}

int cublasLtMatrixLayoutSetAttribute(void *layout, int id, const void *value, size_t size)
{
	return lt_set(layout_attributes, COUNT(layout_attributes), layout, id, value, size);
}

int cublasLtMatrixLayoutGetAttribute(void *layout, int id, void *value, size_t size, size_t *written)
{
	return lt_get(layout_attributes, COUNT(layout_attributes), layout, id, value, size, written);
}

static struct lt_desc fresh_desc(int compute, int scale)
{
	return (struct lt_desc){
		.compute = compute, .scale = scale, .epilogue = LT_DEFAULT, .aux_type = -1, .bias_type = -1, .fill = 2,
	};
}

int cublasLtMatmulDescInit_internal(void *desc, size_t size, int compute, int scale)
{
	struct lt_desc fresh = fresh_desc(compute, scale);

	return init(desc, size, &fresh, sizeof fresh);
}

int cublasLtMatmulDescCreate(void **desc, int compute, int scale)
{
	struct lt_desc fresh = fresh_desc(compute, scale);

	return create(desc, LT_DESC_BYTES, &fresh, sizeof fresh);
}

int cublasLtMatmulDescDestroy(void *desc)
{
	return destroy(desc);
}

int cublasLtMatmulDescSetAttribute(void *desc, int id, const void *value, size_t size)
{
	return lt_set(desc_attributes, COUNT(desc_attributes), desc, id, value, size);
}

int cublasLtMatmulDescGetAttribute(void *desc, int id, void *value, size_t size, size_t *written)
{
	return lt_get(desc_attributes, COUNT(desc_attributes), desc, id, value, size, written);
}

static struct lt_preference fresh_preference(void)
{
	return (struct lt_preference){ .reductions = 7, .alignments = { 256, 256, 256, 256 }, .implementations = UINT64_MAX };
}

int cublasLtMatmulPreferenceInit_internal(void *preference, size_t size)
{
	struct lt_preference fresh = fresh_preference();

	return init(preference, size, &fresh, sizeof fresh);
}

int cublasLtMatmulPreferenceCreate(void **preference)
{
	struct lt_preference fresh = fresh_preference();

	return create(preference, 12 * sizeof(uint64_t), &fresh, sizeof fresh);
}

int cublasLtMatmulPreferenceDestroy(void *preference)
{
	return destroy(preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int id, const void *value, size_t size)
{
	return lt_set(preference_attributes, COUNT(preference_attributes), preference, id, value, size);
}

int cublasLtMatmulPreferenceGetAttribute(void *preference, int id, void *value, size_t size, size_t *written)
{
	return lt_get(preference_attributes, COUNT(preference_attributes), preference, id, value, size, written);
}

int cublasLtMatrixTransformDescInit_internal(void *desc, size_t size, int scale)
{
	struct lt_transform fresh = { .scale = scale };

	return init(desc, size, &fresh, sizeof fresh);
}

int cublasLtMatrixTransformDescCreate(void **desc, int scale)
{
	struct lt_transform fresh = { .scale = scale };

	return create(desc, LT_TRANSFORM_BYTES, &fresh, sizeof fresh);
}

int cublasLtMatrixTransformDescDestroy(void *desc)
{
	return destroy(desc);
}

int cublasLtMatrixTransformDescSetAttribute(void *desc, int id, const void *value, size_t size)
{
	return lt_set(transform_attributes, COUNT(transform_attributes), desc, id, value, size);
}

int cublasLtMatrixTransformDescGetAttribute(void *desc, int id, void *value, size_t size, size_t *written)
{
	return lt_get(transform_attributes, COUNT(transform_attributes), desc, id, value, size, written);
}

static size_t cache_capacity = 8192;

int cublasLtHeuristicsCacheGetCapacity(size_t *capacity)
{
	if (!capacity)
		return BL_INVALID_VALUE;
	*capacity = cache_capacity;
	return BL_SUCCESS;
}

int cublasLtHeuristicsCacheSetCapacity(size_t capacity)
{
	cache_capacity = capacity;
	return BL_SUCCESS;
}

int cublasLtLoggerSetCallback(void *callback)
{
	(void)callback;
	return BL_SUCCESS;
}

int cublasLtLoggerSetFile(void *file)
{
	(void)file;
	return BL_SUCCESS;
}

int cublasLtLoggerOpenFile(const char *file)
{
	(void)file;
	return BL_SUCCESS;
}

int cublasLtLoggerSetLevel(int level)
{
	return level < 0 || level > 5 ? BL_INVALID_VALUE : BL_SUCCESS;
}

int cublasLtLoggerSetMask(int mask)
{
	(void)mask;
	return BL_SUCCESS;
}

int cublasLtLoggerForceDisable(void)
{
	return BL_SUCCESS;
}
