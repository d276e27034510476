/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "session.h"

static const struct {
	uint32_t tag, cap;
} limits[WK_TABLES] = {
	[WK_CONTEXT] = { VG_TAG_CONTEXT, VG_CAP_CONTEXT },
	[WK_STREAM] = { VG_TAG_STREAM, VG_CAP_STREAM },
	[WK_EVENT] = { VG_TAG_EVENT, VG_CAP_EVENT },
	[WK_MODULE] = { VG_TAG_MODULE, VG_CAP_MODULE },
	[WK_FUNCTION] = { VG_TAG_FUNCTION, VG_CAP_FUNCTION },
};

static __thread uint64_t current; /* number of the context current on this thread */
static _Atomic uint64_t last_number;

int wk_set_current(struct wk_object *context)
{
	CUresult r;

	if (current == context->number)
		return CUDA_SUCCESS;
	r = wk_driver.cuCtxSetCurrent(context->driver);
	current = r == CUDA_SUCCESS ? context->number : 0;
	return r;
}

void wk_forget_current(void)
{
	current = 0;
}

/* ---- references */

static void destroy_driver_object(struct wk_object *o)
{
	if (o->context)
		wk_set_current(o->context);
	switch (o->kind) {
	case WK_CONTEXT:
		wk_driver.cuCtxDestroy_v2(o->driver);
		current = 0;
		break;
	case WK_STREAM:
		wk_driver.cuStreamDestroy_v2(o->driver);
		break;
	case WK_EVENT:
		wk_driver.cuEventDestroy_v2(o->driver);
		break;
	case WK_MODULE:
		wk_driver.cuModuleUnload(o->driver);
		break;
	case WK_MEMORY:
		if (!o->module && o->address)
			wk_driver.cuMemFree_v2(o->address);
		break;
	default: /* a function ends with its module */
		break;
	}
}

static void hold(struct wk_object *o)
{
	atomic_fetch_add_explicit(&o->references, 1, memory_order_relaxed);
}

bool wk_is_last(struct wk_object *o)
{
	return atomic_load_explicit(&o->references, memory_order_acquire) == 1;
}

void wk_release(struct wk_object *o)
{
	struct wk_object *context = o->context;

	if (atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel) > 1)
		return;
	destroy_driver_object(o);
	free(o);
	if (context)
		wk_release(context);
}

struct wk_object *wk_object_new(struct wk_call *c, enum wk_kind kind, void *driver, uint32_t parameters)
{
	struct wk_object *o = calloc(1, sizeof(*o) + parameters * sizeof(struct wk_parameter));

	if (!o)
		return NULL;
	o->kind = kind;
	o->session = c->session;
	atomic_init(&o->references, 1);
	o->driver = driver;
	o->number = atomic_fetch_add(&last_number, 1) + 1;
	o->context = kind == WK_CONTEXT ? NULL : c->context;
	if (o->context)
		hold(o->context);
	return o;
}

/* ---- tables */

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
	hold(slot->object);
	return slot->object;
}

CUresult wk_hold(struct wk_call *c, enum wk_kind kind, uint64_t handle, struct wk_object **object)
{
	*object = NULL;
	if (!handle && kind == WK_STREAM)
		return CUDA_SUCCESS; /* the default stream */
	pthread_mutex_lock(&c->session->lock);
	*object = wk_hold_locked(c->session, kind, handle);
	pthread_mutex_unlock(&c->session->lock);
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
	if (slot && !slot->object) { /* its context may have gone while the driver worked */
		slot->object = object;
		put = true;
	}
	pthread_mutex_unlock(&c->session->lock);
	if (put)
		return CUDA_SUCCESS;
	wk_release(object);
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult wk_fill(struct wk_call *c, enum wk_kind kind, uint64_t handle, void *driver)
{
	struct wk_object *o = wk_object_new(c, kind, driver, 0);
	struct wk_object lost = { .kind = kind, .context = c->context, .driver = driver };

	if (o)
		return wk_put(c, handle, o);
	destroy_driver_object(&lost);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_take(struct wk_call *c, enum wk_kind kind, uint64_t handle, struct wk_object **object)
{
	struct wk_slot *slot;

	*object = NULL;
	pthread_mutex_lock(&c->session->lock);
	slot = slot_of(c->session, kind, handle);
	if (slot) {
		*object = slot->object;
		slot->object = NULL;
	}
	pthread_mutex_unlock(&c->session->lock);
	return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Takes one object that belongs to a context or a module out of a table. */
static struct wk_object *take_one(struct wk_session *s, enum wk_kind kind, const struct wk_object *context,
				  uint64_t module, uint32_t *at)
{
	struct wk_table *t = &s->tables[kind];
	struct wk_object *o = NULL;

	pthread_mutex_lock(&s->lock);
	for (; !o && *at < t->count; (*at)++) {
		struct wk_object *candidate = t->slots[*at].object;

		if (candidate && (candidate->context == context || (module && candidate->module == module))) {
			o = candidate;
			t->slots[*at].object = NULL;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return o;
}

static struct wk_object *take_memory(struct wk_session *s, const struct wk_object *context, uint64_t module, size_t *at)
{
	struct wk_object *o = NULL;

	pthread_mutex_lock(&s->lock);
	while (!o && *at > 0) {
		struct wk_object *candidate = s->ledger.at[--*at];

		if (candidate->context != context && (!module || candidate->module != module))
			continue;
		o = candidate;
		s->ledger.bytes -= o->module ? 0 : o->bytes;
		for (size_t i = *at; i + 1 < s->ledger.count; i++)
			s->ledger.at[i] = s->ledger.at[i + 1];
		s->ledger.count--;
	}
	pthread_mutex_unlock(&s->lock);
	return o;
}

static void forget_memory(struct wk_session *s, const struct wk_object *context, uint64_t module)
{
	size_t at = s->ledger.count;
	struct wk_object *o;

	while ((o = take_memory(s, context, module, &at)))
		wk_release(o);
}

void wk_forget_module(struct wk_session *s, uint64_t module)
{
	static const struct wk_object no_context;
	struct wk_object *o;
	uint32_t at = 0;

	forget_memory(s, &no_context, module);
	while ((o = take_one(s, WK_FUNCTION, &no_context, module, &at)))
		wk_release(o);
}

void wk_forget_context(struct wk_session *s, struct wk_object *context)
{
	static const enum wk_kind order[] = { WK_FUNCTION, WK_MODULE, WK_EVENT, WK_STREAM };
	struct wk_object *o;

	forget_memory(s, context, 0);
	for (unsigned int i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		uint32_t at = 0;

		while ((o = take_one(s, order[i], context, 0, &at)))
			wk_release(o);
	}
}
