/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of device memory: what each guest process may name in a copy or a memset. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Under the lock: how many allocations start at or below the address. */
static size_t below(const struct wk_session *s, uint64_t address)
{
	size_t low = 0, high = s->ledger.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (s->ledger.at[middle]->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool make_room(struct wk_session *s)
{
	size_t room = s->ledger.room ? s->ledger.room * 2 : 64;
	struct wk_object **at;

	if (s->ledger.count < s->ledger.room)
		return true;
	if (room > WK_ALLOCATIONS)
		return false;
	at = realloc(s->ledger.at, room * sizeof(*at));
	if (!at)
		return false;
	s->ledger.at = at;
	s->ledger.room = room;
	return true;
}

/* A module's variable may be asked for again. */
static bool known(struct wk_session *s, uint64_t address, uint64_t module)
{
	size_t at = below(s, address);

	return module && at && s->ledger.at[at - 1]->address == address;
}

CUresult wk_ledger_add(struct wk_call *c, uint64_t address, uint64_t bytes, uint64_t module)
{
	struct wk_session *s = c->session;
	struct wk_object *o = wk_object_new(c, WK_MEMORY, NULL, 0);
	bool added = false, again = false;
	uint64_t total;
	size_t at;

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->address = address;
	o->bytes = bytes;
	o->module = module;
	pthread_mutex_lock(&s->lock);
	again = known(s, address, module);
	if (!again && make_room(s)) {
		at = below(s, address);
		memmove(&s->ledger.at[at + 1], &s->ledger.at[at], (s->ledger.count - at) * sizeof(o));
		s->ledger.at[at] = o;
		s->ledger.count++;
		s->ledger.bytes += module ? 0 : bytes;
		added = true;
	}
	total = s->ledger.bytes;
	pthread_mutex_unlock(&s->lock);
	vg_lane_account(s->lane, total);
	if (!added)
		wk_release(o);
	return added || again ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_ledger_take(struct wk_call *c, uint64_t address, struct wk_object **memory)
{
	struct wk_session *s = c->session;
	uint64_t total;
	size_t at;

	*memory = NULL;
	pthread_mutex_lock(&s->lock);
	at = below(s, address);
	if (at && s->ledger.at[at - 1]->address == address && !s->ledger.at[at - 1]->module &&
	    s->ledger.at[at - 1]->context == c->context) {
		*memory = s->ledger.at[at - 1];
		s->ledger.bytes -= (*memory)->bytes;
		memmove(&s->ledger.at[at - 1], &s->ledger.at[at], (s->ledger.count - at) * sizeof(*memory));
		s->ledger.count--;
	}
	total = s->ledger.bytes;
	pthread_mutex_unlock(&s->lock);
	vg_lane_account(s->lane, total);
	return *memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct wk_object *hold_at(struct wk_session *s, uint64_t address, uint64_t bytes, const struct wk_object *context)
{
	struct wk_object *o = NULL;
	size_t at;

	pthread_mutex_lock(&s->lock);
	at = below(s, address);
	if (at && s->ledger.at[at - 1]->context == context) {
		o = s->ledger.at[at - 1];
		if (address - o->address > o->bytes || bytes > o->bytes - (address - o->address))
			o = NULL;
		else
			atomic_fetch_add_explicit(&o->references, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&s->lock);
	return o;
}

CUresult wk_check_range(struct wk_call *c, uint64_t address, uint64_t count, uint64_t factor, uint64_t rows,
			uint64_t pitch)
{
	uint64_t width, bytes;
	struct wk_object *o;

	if (__builtin_mul_overflow(count, factor, &width))
		return CUDA_ERROR_INVALID_VALUE;
	if (!width || !rows)
		return CUDA_SUCCESS;
	if ((rows > 1 && pitch < width) || __builtin_mul_overflow(rows - 1, pitch, &bytes) ||
	    __builtin_add_overflow(bytes, width, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	o = hold_at(c->session, address, bytes, c->context);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->pinned[0])
		c->pinned[1] = o;
	else
		c->pinned[0] = o;
	return CUDA_SUCCESS;
}
