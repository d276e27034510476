/* SPDX-License-Identifier: Apache-2.0 */
/* The books of arrays: what handles are made of, and which arrays are levels of others. */
#include "arrays.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over the levels that were asked for */

static CUresult find(enum shim_table table, uint64_t id, struct cuda_array *array)
{
	const struct shim_object *o;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	o = shim_object_get(table, id);
	if (o)
		*array = *o->array.made;
	else
		r = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult shim_array(CUarray handle, struct cuda_array *array)
{
	return find(SHIM_ARRAY, (uint64_t)handle, array);
}

CUresult shim_mipmap(CUmipmappedArray handle, struct cuda_array *array)
{
	return find(SHIM_MIPMAP, (uint64_t)handle, array);
}

/* Under the lock, or of an object that nobody knows yet. */
static void drop(struct shim_object *o)
{
	free(o->array.levels);
	free(o->array.made);
	o->array.levels = NULL;
	o->array.made = NULL;
}

/* Under the lock: levels end with what they are levels of. They are the caller's to recycle when the worker knows. */
static uint64_t *retire_levels(struct shim_object *whole)
{
	uint64_t *levels = whole->array.levels;

	for (uint32_t i = 0; levels && i < whole->array.levels_count; i++) {
		struct shim_object *level = levels[i] ? shim_object_get(SHIM_ARRAY, levels[i]) : NULL;

		if (level && shim_object_retire(level, levels[i]))
			drop(level);
		else
			levels[i] = 0;
	}
	whole->array.levels = NULL;
	return levels;
}

void shim_levels_recycle(uint64_t *levels, uint32_t count)
{
	for (uint32_t i = 0; levels && i < count; i++)
		if (levels[i])
			shim_object_recycle(SHIM_ARRAY, levels[i]);
	free(levels);
}

void shim_array_free(struct shim_object *o)
{
	uint64_t *levels;

	pthread_mutex_lock(&lock);
	levels = retire_levels(o);
	drop(o);
	pthread_mutex_unlock(&lock);
	shim_levels_recycle(levels, o->array.levels_count);
}

/* NULL: out of memory. */
struct shim_object *shim_array_new(enum shim_table table, uint64_t context, const struct cuda_array *made, uint32_t levels,
				      uint64_t *id)
{
	struct shim_object *o = shim_object_new(table, context, id);

	if (!o)
		return NULL;
	o->array.is_level = false;
	o->array.levels_count = levels;
	o->array.levels = levels ? calloc(levels, sizeof(*o->array.levels)) : NULL;
	o->array.made = malloc(sizeof(*made));
	if (o->array.made && (o->array.levels || !levels)) {
		*o->array.made = *made;
		return o;
	}
	drop(o);
	shim_object_recycle(table, *id);
	return NULL;
}

/* Ends a handle's making. */
CUresult shim_array_publish(CUresult r, enum shim_table table, struct shim_object *o, uint64_t id)
{
	if (r == CUDA_SUCCESS) {
		shim_object_publish(o, id);
		return r;
	}
	drop(o);
	shim_object_recycle(table, id);
	return r;
}

/* Takes it out for the one caller that ends it; *levels gets what ends with it. */
bool shim_array_retire(enum shim_table table, uint64_t id, uint64_t **levels, uint32_t *count)
{
	struct shim_object *o = shim_object_get(table, id);
	bool mine;

	pthread_mutex_lock(&lock);
	mine = o && !o->array.is_level && shim_object_retire(o, id);
	if (mine) {
		*count = o->array.levels_count;
		*levels = retire_levels(o);
		drop(o);
	}
	pthread_mutex_unlock(&lock);
	return mine;
}

void shim_arrays_lock(void)
{
	pthread_mutex_lock(&lock);
}

void shim_arrays_unlock(void)
{
	pthread_mutex_unlock(&lock);
}
