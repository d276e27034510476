/* SPDX-License-Identifier: Apache-2.0 */
/* Which pointers are objects of this library: a program's mistake is an error here, as it is in NVIDIA's. */
#include <stdlib.h>

#include "dnn.h"

enum { LEAST = 256 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
/* Open addressing; NULL: an empty place. */
static const void **places;
static size_t count, room;

static size_t place_of(const void *object, size_t size)
{
	return (size_t)(math_hash(0x11, (uintptr_t)object) % size);
}

static void put(const void **to, size_t size, const void *object)
{
	size_t i = place_of(object, size);

	while (to[i])
		i = (i + 1) % size;
	to[i] = object;
}

static bool grow(void)
{
	size_t size = room ? 2 * room : LEAST;
	const void **more = calloc(size, sizeof(*more));

	if (!more)
		return false;
	for (size_t i = 0; i < room; i++)
		if (places[i])
			put(more, size, places[i]);
	free(places);
	places = more;
	room = size;
	return true;
}

bool dnn_live_add(const void *object)
{
	bool added;

	pthread_rwlock_wrlock(&lock);
	added = 2 * count < room || grow();
	if (added) {
		put(places, room, object);
		count++;
	}
	pthread_rwlock_unlock(&lock);
	return added;
}

/* The object's place, or room. */
static size_t find(const void *object)
{
	for (size_t i = room ? place_of(object, room) : 0; room && places[i]; i = (i + 1) % room)
		if (places[i] == object)
			return i;
	return room;
}

void dnn_live_remove(const void *object)
{
	size_t i;

	pthread_rwlock_wrlock(&lock);
	i = find(object);
	if (i < room) {
		places[i] = NULL;
		count--;
		/* those behind it may have been put there because of it */
		for (size_t j = (i + 1) % room; places[j]; j = (j + 1) % room) {
			const void *other = places[j];

			places[j] = NULL;
			put(places, room, other);
		}
	}
	pthread_rwlock_unlock(&lock);
}

bool dnn_is_live(const void *object)
{
	bool found;

	pthread_rwlock_rdlock(&lock);
	found = object && find(object) < room;
	pthread_rwlock_unlock(&lock);
	return found;
}
