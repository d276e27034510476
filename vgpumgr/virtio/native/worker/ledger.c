/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of device memory: what each guest process may name in a copy or a memset. */
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
static bool is_known(const struct wk_session *s, const struct wk_object *o)
{
	size_t at = below(s, o->address);

	return wk_is_variable(o) && at && s->ledger.at[at - 1]->address == o->address;
}

static uint64_t charged_bytes(const struct wk_object *o)
{
	return wk_is_variable(o) || wk_ipc_is_opened(o) ? 0 : o->bytes;
}

static void account(struct wk_session *s, uint64_t total)
{
	s->ledger.bytes = total;
	wk_account(s);
}

/* Under the lock. Its owner may have gone while the driver worked. */
static CUresult enter(struct wk_session *s, struct wk_object *o)
{
	size_t at = below(s, o->address);

	if (o->owner->out)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!make_room(s))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memmove(&s->ledger.at[at + 1], &s->ledger.at[at], (s->ledger.count - at) * sizeof(o));
	s->ledger.at[at] = o;
	s->ledger.count++;
	wk_own(o);
	account(s, s->ledger.bytes + charged_bytes(o));
	return CUDA_SUCCESS;
}

CUresult wk_ledger_enter(struct wk_call *c, struct wk_object *o)
{
	struct wk_session *s = c->session;
	CUresult r = CUDA_SUCCESS;
	bool known;

	pthread_mutex_lock(&s->lock);
	known = is_known(s, o);
	if (!known)
		r = enter(s, o);
	pthread_mutex_unlock(&s->lock);
	if (known || r != CUDA_SUCCESS)
		wk_release(o);
	return r;
}

CUresult wk_ledger_add(struct wk_call *c, struct wk_object *owner, uint64_t address, uint64_t bytes)
{
	struct wk_object *o = wk_object_new(WK_MEMORY, owner, NULL, 0);

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->address = address;
	o->bytes = bytes;
	return wk_ledger_enter(c, o);
}

CUresult wk_ledger_take(struct wk_call *c, uint64_t address, bool opened, struct wk_object **memory)
{
	struct wk_session *s = c->session;
	struct wk_object *o;
	size_t at;

	*memory = NULL;
	pthread_mutex_lock(&s->lock);
	at = below(s, address);
	o = at ? s->ledger.at[at - 1] : NULL;
	if (o && o->address == address && o->owner == c->context && wk_ipc_is_opened(o) == opened) {
		*memory = o;
		memmove(&s->ledger.at[at - 1], &s->ledger.at[at], (s->ledger.count - at) * sizeof(o));
		s->ledger.count--;
		wk_disown(o);
		account(s, s->ledger.bytes - charged_bytes(o));
	}
	pthread_mutex_unlock(&s->lock);
	return *memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void wk_ledger_sweep(struct wk_session *s)
{
	uint64_t total = s->ledger.bytes;
	size_t kept = 0;

	for (size_t i = 0; i < s->ledger.count; i++) {
		struct wk_object *o = s->ledger.at[i];

		if (o->out)
			total -= charged_bytes(o);
		else
			s->ledger.at[kept++] = o;
	}
	s->ledger.count = kept;
	s->ledger.out = 0;
	account(s, total);
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
			wk_hold_again(o);
	}
	pthread_mutex_unlock(&s->lock);
	return o;
}

struct wk_object *wk_ledger_hold(struct wk_call *c, uint64_t address)
{
	return hold_at(c->session, address, 1, c->context);
}

struct wk_object *wk_ledger_search(struct wk_call *c, bool (*is)(const struct wk_object *, const void *), const void *what)
{
	struct wk_session *s = c->session;
	struct wk_object *found = NULL;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->ledger.count && !found; i++)
		if (s->ledger.at[i]->context == c->context && is(s->ledger.at[i], what))
			found = s->ledger.at[i];
	if (found)
		wk_hold_again(found);
	pthread_mutex_unlock(&s->lock);
	return found;
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
		return wk_mapping_pin(c, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 2; i++) {
		if (!c->pinned[i]) {
			c->pinned[i] = o;
			return CUDA_SUCCESS;
		}
	}
	if (wk_span_add(c, o))
		return CUDA_SUCCESS;
	wk_release(o);
	return CUDA_ERROR_OUT_OF_MEMORY;
}
