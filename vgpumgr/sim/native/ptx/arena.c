/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 * 1024 };

struct arena_chunk {
	struct arena_chunk *next;
	_Alignas(16) unsigned char data[];
};

static void add_chunk(struct arena *arena, size_t size)
{
	struct arena_chunk *chunk = calloc(1, sizeof *chunk + size);

	if (!chunk)
		longjmp(*arena->failure, 1);
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->used = 0;
	arena->capacity = size;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	void *p;

	if (size > arena->limit - arena->total)
		longjmp(*arena->failure, 1);
	size = (size + 15) & ~(size_t)15;
	arena->total += size < arena->limit - arena->total ? size : arena->limit - arena->total;
	if (size > arena->capacity - arena->used)
		add_chunk(arena, size > CHUNK ? size : CHUNK);
	p = arena->chunks->data + arena->used;
	arena->used += size;
	return p;
}

void *arena_grow(struct arena *arena, const void *old, size_t count, size_t want, size_t element)
{
	void *p;

	if (want > SIZE_MAX / 2 / element)
		longjmp(*arena->failure, 1);
	p = arena_alloc(arena, want * element);
	if (count)
		memcpy(p, old, count * element);
	return p;
}

void arena_free(struct arena *arena)
{
	while (arena->chunks) {
		struct arena_chunk *next = arena->chunks->next;

		free(arena->chunks);
		arena->chunks = next;
	}
}
