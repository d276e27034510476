/* SPDX-License-Identifier: Apache-2.0 */
/* The objects that programs hold. NVIDIA's library follows any pointer; this one follows those that it made. */
#include <pthread.h>
#include <stdlib.h>

#include "dnn.h"

enum { BUCKETS = 1024, ALIGNMENT_BITS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dn_object *buckets[BUCKETS];

static struct dn_object **bucket_of(const void *pointer)
{
	return &buckets[((uintptr_t)pointer >> ALIGNMENT_BITS) % BUCKETS];
}

void *dn_object_create(enum dn_kind kind, size_t bytes)
{
	struct dn_object *o = calloc(1, bytes), **bucket;

	if (!o)
		return NULL;
	o->kind = kind;
	pthread_mutex_lock(&lock);
	bucket = bucket_of(o);
	o->next = *bucket;
	*bucket = o;
	pthread_mutex_unlock(&lock);
	return o;
}

void *dn_object_find(const void *pointer, enum dn_kind kind)
{
	struct dn_object *o;

	pthread_mutex_lock(&lock);
	for (o = *bucket_of(pointer); o && (o != pointer || o->kind != kind); o = o->next)
		;
	pthread_mutex_unlock(&lock);
	return o;
}

bool dn_object_destroy(void *pointer, enum dn_kind kind)
{
	struct dn_object **place, *o;

	pthread_mutex_lock(&lock);
	for (place = bucket_of(pointer); *place && (*place != pointer || (*place)->kind != kind); place = &(*place)->next)
		;
	o = *place;
	if (o)
		*place = o->next;
	pthread_mutex_unlock(&lock);
	free(o);
	return o;
}
