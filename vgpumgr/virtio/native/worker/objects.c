/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of what guests name by handles: what goes in, what is held for a call, what is taken out. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "session.h"
#include "share.h"

static const struct {
	uint32_t tag, cap;
} limits[WK_TABLES] = {
	[WK_CONTEXT] = { VG_TAG_CONTEXT, VG_CAP_CONTEXT },
	[WK_STREAM] = { VG_TAG_STREAM, VG_CAP_STREAM },
	[WK_EVENT] = { VG_TAG_EVENT, VG_CAP_EVENT },
	[WK_MODULE] = { VG_TAG_MODULE, VG_CAP_MODULE },
	[WK_FUNCTION] = { VG_TAG_FUNCTION, VG_CAP_FUNCTION },
	[WK_POOL] = { VG_TAG_POOL, VG_CAP_POOL },
	[WK_PHYSICAL] = { VG_TAG_PHYSICAL, VG_CAP_PHYSICAL },
	[WK_GRAPH] = { VG_TAG_GRAPH, VG_CAP_GRAPH },
	[WK_GRAPH_EXEC] = { VG_TAG_GRAPH_EXEC, VG_CAP_GRAPH_EXEC },
	[WK_ARRAY] = { VG_TAG_ARRAY, VG_CAP_ARRAY },
	[WK_MIPMAP] = { VG_TAG_MIPMAP, VG_CAP_MIPMAP },
	[WK_TEXTURE] = { VG_TAG_TEXTURE, VG_CAP_TEXTURE },
	[WK_SURFACE] = { VG_TAG_SURFACE, VG_CAP_SURFACE },
	[WK_MATH] = { VG_TAG_MATH, VG_CAP_MATH },
};

static struct wk_slot *slot_of(struct wk_session *s, enum wk_kind kind, uint64_t handle)
{
	struct wk_table *t = &s->tables[kind];
	uint32_t slot = vg_handle_slot(handle);

	if (vg_handle_tag(handle) != limits[kind].tag || slot >= t->count)
		return NULL;
	return t->slots[slot].generation == vg_handle_generation(handle) ? &t->slots[slot] : NULL;
}

struct wk_object *wk_hold_locked(struct wk_session *s, enum wk_kind kind, uint64_t handle)
{
	struct wk_slot *slot = slot_of(s, kind, handle);

	if (!slot || !slot->object)
		return NULL;
	wk_hold_again(slot->object);
	return slot->object;
}

uint64_t wk_handle_of(struct wk_session *s, const struct wk_object *object)
{
	uint64_t handle = 0;

	pthread_mutex_lock(&s->lock);
	if (!object->out)
		handle = vg_handle_make(limits[object->kind].tag, s->tables[object->kind].slots[object->slot].generation, object->slot);
	pthread_mutex_unlock(&s->lock);
	return handle;
}

CUresult wk_hold(struct wk_call *c, enum wk_kind kind, uint64_t handle, struct wk_object **object)
{
	*object = NULL;
	if (!handle && kind == WK_STREAM) { /* the default stream */
		wk_share_mark(c, NULL);
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&c->session->lock);
	*object = wk_hold_locked(c->session, kind, handle);
	pthread_mutex_unlock(&c->session->lock);
	if (kind == WK_STREAM && *object)
		wk_share_mark(c, *object);
	return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static int grow(struct wk_table *t, uint32_t count)
{
	struct wk_slot *slots;
	uint32_t room = t->room ? t->room : 64;

	while (room < count)
		room *= 2;
	if (room > t->room) {
		slots = realloc(t->slots, room * sizeof(*slots));
		if (!slots)
			return -ENOMEM;
		t->slots = slots;
		t->room = room;
	}
	for (; t->count < count; t->count++)
		t->slots[t->count] = (struct wk_slot){ 0 };
	return 0;
}

int wk_reserve(struct wk_call *c, enum wk_kind kind, uint64_t handle)
{
	struct wk_table *t = &c->session->tables[kind];
	uint32_t slot = vg_handle_slot(handle), generation = vg_handle_generation(handle);
	int error = 0;

	if (slot >= limits[kind].cap)
		return -EPROTO;
	pthread_mutex_lock(&c->session->lock);
	if (slot >= t->count)
		error = slot - t->count < WK_TABLE_AHEAD ? grow(t, slot + 1) : -EPROTO;
	if (!error && (t->slots[slot].object || generation <= t->slots[slot].generation))
		error = -EPROTO;
	if (!error)
		t->slots[slot].generation = generation;
	pthread_mutex_unlock(&c->session->lock);
	return error;
}

CUresult wk_put(struct wk_call *c, uint64_t handle, struct wk_object *object)
{
	struct wk_slot *slot;
	bool put = false;

	pthread_mutex_lock(&c->session->lock);
	slot = slot_of(c->session, object->kind, handle);
	/* its owner may have gone while the driver worked */
	if (slot && !slot->object && !(object->owner && object->owner->out)) {
		slot->object = object;
		object->slot = vg_handle_slot(handle);
		wk_own(object);
		put = true;
	}
	pthread_mutex_unlock(&c->session->lock);
	if (put)
		return CUDA_SUCCESS;
	wk_release(object);
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult wk_fill(struct wk_call *c, enum wk_kind kind, uint64_t handle, void *driver, uint64_t bytes)
{
	struct wk_object *o = wk_object_new(kind, c->context, driver, 0);
	struct wk_object lost = { .kind = kind, .owner = c->context, .driver = driver, .bytes = bytes };

	if (o) {
		o->bytes = bytes;
		return wk_put(c, handle, o);
	}
	lost.context = c->context ? c->context : &lost;
	wk_destroy(&lost);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- out of the tables */

/* Takes it and all that it owns out of the tables. They come onto the list: what is owned before its owner. */
static void take_out(struct wk_session *s, struct wk_object *o, struct wk_object ***list)
{
	while (o->owned)
		take_out(s, o->owned, list);
	wk_disown(o);
	if (o->kind == WK_MEMORY)
		s->ledger.out++;
	else
		s->tables[o->kind].slots[o->slot].object = NULL;
	**list = o;
	*list = &o->next;
}

static struct wk_object *take_tree(struct wk_session *s, struct wk_object *o)
{
	struct wk_object *first = NULL, **last = &first;

	take_out(s, o, &last);
	if (s->ledger.out)
		wk_ledger_sweep(s);
	return first;
}

static void release_list(struct wk_object *o, void (*release)(struct wk_object *))
{
	while (o) {
		struct wk_object *next = o->next;

		release(o);
		o = next;
	}
}

static CUresult remove_by(struct wk_call *c, enum wk_kind kind, uint64_t handle, void (*release)(struct wk_object *))
{
	struct wk_object *list = NULL;
	struct wk_slot *slot;

	pthread_mutex_lock(&c->session->lock);
	slot = slot_of(c->session, kind, handle);
	if (slot && slot->object)
		list = take_tree(c->session, slot->object);
	pthread_mutex_unlock(&c->session->lock);
	release_list(list, release);
	return list ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult wk_remove(struct wk_call *c, enum wk_kind kind, uint64_t handle)
{
	return remove_by(c, kind, handle, wk_release);
}

CUresult wk_remove_later(struct wk_call *c, enum wk_kind kind, uint64_t handle)
{
	return remove_by(c, kind, handle, wk_release_later);
}

static void remove_table(struct wk_session *s, struct wk_table *table)
{
	for (uint32_t i = 0; i < table->count; i++) {
		struct wk_object *list = NULL;

		pthread_mutex_lock(&s->lock);
		if (table->slots[i].object)
			list = take_tree(s, table->slots[i].object);
		pthread_mutex_unlock(&s->lock);
		release_list(list, wk_release);
	}
}

void wk_remove_all(struct wk_session *s)
{
	remove_table(s, &s->tables[WK_CONTEXT]);
	remove_table(s, &s->tables[WK_POOL]);
	remove_table(s, &s->tables[WK_PHYSICAL]);
}
