/* SPDX-License-Identifier: Apache-2.0 */
#include "objects.h"

#include <pthread.h>
#include <stdlib.h>

#include "channels.h"
#include "vg_ops.h"

enum { CHUNK = 256, CHUNKS = VG_CAP_EVENT / CHUNK };

static const struct {
	uint32_t tag, cap;
} kinds[SHIM_TABLES] = {
	[SHIM_CONTEXT] = { VG_TAG_CONTEXT, VG_CAP_CONTEXT },
	[SHIM_STREAM] = { VG_TAG_STREAM, VG_CAP_STREAM },
	[SHIM_EVENT] = { VG_TAG_EVENT, VG_CAP_EVENT },
	[SHIM_MODULE] = { VG_TAG_MODULE, VG_CAP_MODULE },
	[SHIM_FUNCTION] = { VG_TAG_FUNCTION, VG_CAP_FUNCTION },
	[SHIM_POOL] = { VG_TAG_POOL, VG_CAP_POOL },
	[SHIM_PHYSICAL] = { VG_TAG_PHYSICAL, VG_CAP_PHYSICAL },
	[SHIM_GRAPH] = { VG_TAG_GRAPH, VG_CAP_GRAPH },
	[SHIM_GRAPH_EXEC] = { VG_TAG_GRAPH_EXEC, VG_CAP_GRAPH_EXEC },
	[SHIM_ARRAY] = { VG_TAG_ARRAY, VG_CAP_ARRAY },
	[SHIM_MIPMAP] = { VG_TAG_MIPMAP, VG_CAP_MIPMAP },
	[SHIM_TEXTURE] = { VG_TAG_TEXTURE, VG_CAP_TEXTURE },
	[SHIM_SURFACE] = { VG_TAG_SURFACE, VG_CAP_SURFACE },
	[SHIM_MATH] = { VG_TAG_MATH, VG_CAP_MATH },
};

_Static_assert(VG_CAP_FUNCTION <= CHUNK * CHUNKS && VG_CAP_MODULE <= CHUNK * CHUNKS, "chunks for the largest table");

/* One for each channel and kind: zeros until it is used. */
static struct table {
	pthread_mutex_t lock;
	uint32_t count, free;     /* free: a slot and 1, or 0 */
	_Atomic(struct shim_object *) chunks[CHUNKS];
} tables[SHIM_CHANNELS][SHIM_TABLES];

static struct shim_object *at_slot(struct table *t, uint32_t slot)
{
	struct shim_object *chunk;

	if (slot >= CHUNK * CHUNKS)
		return NULL;
	chunk = atomic_load_explicit(&t->chunks[slot / CHUNK], memory_order_acquire);
	return chunk ? &chunk[slot % CHUNK] : NULL;
}

/* Under the lock: a slot never used before. */
static struct shim_object *grow(struct table *t, uint32_t cap, uint32_t *slot)
{
	struct shim_object *chunk;

	if (t->count >= cap)
		return NULL;
	if (!atomic_load(&t->chunks[t->count / CHUNK])) {
		chunk = calloc(CHUNK, sizeof(*chunk));
		if (!chunk)
			return NULL;
		atomic_store_explicit(&t->chunks[t->count / CHUNK], chunk, memory_order_release);
	}
	*slot = t->count++;
	return at_slot(t, *slot);
}

static struct shim_object *take(struct table *t, uint32_t cap, uint32_t *slot)
{
	struct shim_object *o;

	if (!t->free)
		return grow(t, cap, slot);
	*slot = t->free - 1;
	o = at_slot(t, *slot);
	t->free = o->next_free;
	return o;
}

struct shim_object *shim_object_new(enum shim_table table, uint64_t context, uint64_t *id)
{
	unsigned channel = shim_channel_by(context);
	struct table *t = &tables[channel][table];
	struct shim_object *o;
	uint32_t slot;

	pthread_mutex_lock(&t->lock);
	o = take(t, kinds[table].cap, &slot);
	pthread_mutex_unlock(&t->lock);
	if (!o)
		return NULL;
	o->context = context;
	o->generation++;
	*id = vg_handle_make(kinds[table].tag, channel << SHIM_CHANNEL_SHIFT | o->generation, slot);
	return o;
}

void shim_object_publish(struct shim_object *o, uint64_t id)
{
	atomic_store_explicit(&o->id, id, memory_order_release);
}

struct shim_object *shim_object_get(enum shim_table table, uint64_t id)
{
	struct shim_object *o;

	if (vg_handle_tag(id) != kinds[table].tag)
		return NULL;
	o = at_slot(&tables[shim_channel_of(id)][table], vg_handle_slot(id));
	return o && atomic_load_explicit(&o->id, memory_order_acquire) == id ? o : NULL;
}

bool shim_object_retire(struct shim_object *o, uint64_t id)
{
	return atomic_compare_exchange_strong(&o->id, &id, 0);
}

void shim_object_recycle(enum shim_table table, uint64_t id)
{
	struct table *t = &tables[shim_channel_of(id)][table];
	struct shim_object *o = at_slot(t, vg_handle_slot(id));

	/* a slot that has used up its generations is retired for good */
	if (!o || o->generation >= SHIM_GENERATION_MAX)
		return;
	pthread_mutex_lock(&t->lock);
	o->next_free = t->free;
	t->free = vg_handle_slot(id) + 1;
	pthread_mutex_unlock(&t->lock);
}

struct shim_object *shim_object_next(enum shim_table table, uint64_t owner, uint32_t *at)
{
	struct table *t = &tables[shim_channel_of(owner)][table];
	struct shim_object *o;

	while ((o = at_slot(t, *at))) {
		(*at)++;
		if (atomic_load(&o->id))
			return o;
	}
	return NULL;
}

void shim_object_forget(enum shim_table table, uint64_t context, void (*drop)(struct shim_object *object))
{
	struct shim_object *o;
	uint32_t at = 0;
	uint64_t id;

	while ((o = shim_object_next(table, context, &at))) {
		id = atomic_load(&o->id);
		if (!id || o->context != context || !shim_object_retire(o, id))
			continue;
		if (drop)
			drop(o);
		shim_object_recycle(table, id);
	}
}

void shim_function_free(struct shim_object *f)
{
	free(f->function.name);
	free(f->function.parameters);
	f->function.name = NULL;
	f->function.parameters = NULL;
}
