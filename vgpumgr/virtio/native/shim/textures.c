/* SPDX-License-Identifier: Apache-2.0 */
/* The books of texture and surface objects, by context and number. */
#include "textures.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_texture *buckets[BUCKETS];

static struct shim_texture **bucket(uint64_t number)
{
	return &buckets[(number * 0x9e3779b97f4a7c15ull) >> 54];
}

/* Under the lock: where the list has it, or its end. */
static struct shim_texture **find(uint64_t context, uint64_t number, bool surface)
{
	struct shim_texture **at = bucket(number);

	while (*at && ((*at)->number != number || (*at)->context != context || (*at)->surface != surface))
		at = &(*at)->next;
	return at;
}

enum shim_table shim_texture_table(bool surface)
{
	return surface ? SHIM_SURFACE : SHIM_TEXTURE;
}

void shim_texture_forget(uint64_t context)
{
	struct shim_texture *o;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < BUCKETS; i++) {
		for (struct shim_texture **at = &buckets[i]; (o = *at);) {
			if (o->context != context) {
				at = &o->next;
				continue;
			}
			*at = o->next;
			shim_object_recycle(shim_texture_table(o->surface), o->id);
			free(o);
		}
	}
	pthread_mutex_unlock(&lock);
}

void shim_texture_add(struct shim_texture *o, uint64_t number)
{
	o->number = number;
	pthread_mutex_lock(&lock);
	o->next = *bucket(number);
	*bucket(number) = o;
	pthread_mutex_unlock(&lock);
}

struct shim_texture *shim_texture_take(uint64_t context, uint64_t number, bool surface)
{
	struct shim_texture **at, *o;

	pthread_mutex_lock(&lock);
	at = find(context, number, surface);
	o = *at;
	if (o)
		*at = o->next;
	pthread_mutex_unlock(&lock);
	return o;
}

bool shim_texture_look(uint64_t context, uint64_t number, bool surface, CUDA_RESOURCE_DESC *resource,
		       CUDA_TEXTURE_DESC *texture)
{
	const struct shim_texture *o;

	pthread_mutex_lock(&lock);
	o = *find(context, number, surface);
	if (o && resource)
		*resource = o->resource;
	if (o && texture)
		*texture = o->texture;
	pthread_mutex_unlock(&lock);
	return o;
}
