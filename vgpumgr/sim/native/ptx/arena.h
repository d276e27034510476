/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once: everything a module's parser and its decoded code own. */
#ifndef PTX_ARENA_H
#define PTX_ARENA_H

#include <setjmp.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks;
	size_t used, capacity;
	size_t total;     /* bytes given out, checked against `limit` */
	size_t limit;
	jmp_buf *failure; /* where to go when memory or the limit is exhausted */
};

/* Zeroed, aligned to 16. Never NULL: leaves through `failure`. */
void *arena_alloc(struct arena *arena, size_t size);
/* A copy with room for `want` elements; the old one stays in the arena. */
void *arena_grow(struct arena *arena, const void *old, size_t count, size_t want, size_t element);
void arena_free(struct arena *arena);

/* Make room for one more element of a counted array that grows by doubling. */
#define ARENA_PUSH(arena, items, count, capacity)                                                                  \
	((count) < (capacity) ? (void)0                                                                            \
			      : (void)((items) = arena_grow(arena, items, count, (capacity) ? 2 * (size_t)(capacity) : 8, \
							    sizeof *(items)),                                     \
				       (capacity) = (capacity) ? 2 * (capacity) : 8),                              \
	 &(items)[(count)++])

#endif
