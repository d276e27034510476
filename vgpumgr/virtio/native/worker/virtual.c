/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved addresses, and what is mapped where. Both are entered under the lock before anybody can name them and taken out of
 * here before the driver's end with their last reference: so the guest's threads cannot have two things at one address, and
 * memory under a running copy stays.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Under the lock: how many start at or below the address. */
static size_t below(const struct wk_span *list, uint64_t address)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->at[middle]->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_inside(const struct wk_object *o, uint64_t address, uint64_t bytes)
{
	return address >= o->address && address - o->address <= o->bytes && bytes <= o->bytes - (address - o->address);
}

/* Under the lock. */
static bool is_free(const struct wk_span *list, uint64_t address, uint64_t bytes)
{
	size_t at = below(list, address);

	if (at && address - list->at[at - 1]->address < list->at[at - 1]->bytes)
		return false;
	return at == list->count || list->at[at]->address - address >= bytes;
}

/* Under the lock: room for one more. */
static bool make_room(struct wk_span *list, size_t most)
{
	size_t room = list->room ? list->room * 2 : 64;
	struct wk_object **at;

	if (list->count < list->room)
		return true;
	at = room > most ? NULL : realloc(list->at, room * sizeof(*at));
	if (!at)
		return false;
	list->at = at;
	list->room = room;
	return true;
}

/* Under the lock. */
static void insert(struct wk_span *list, struct wk_object *o)
{
	size_t at = below(list, o->address);

	memmove(&list->at[at + 1], &list->at[at], (list->count - at) * sizeof(o));
	list->at[at] = o;
	list->count++;
}

static void erase(struct wk_span *list, size_t at, size_t count)
{
	memmove(&list->at[at], &list->at[at + count], (list->count - at - count) * sizeof(*list->at));
	list->count -= count;
}

/* ---- addresses */

CUresult wk_space_add(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	struct wk_session *s = c->session;
	struct wk_object *o = wk_object_new(WK_SPACE, NULL, NULL, 0);
	bool entered = false;

	if (!o) {
		wk_driver.cuMemAddressFree(address, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->address = address;
	o->bytes = bytes;
	pthread_mutex_lock(&s->lock);
	if (bytes <= WK_SPACE_BYTES - s->space_bytes && make_room(&s->spaces, WK_SPACES)) {
		insert(&s->spaces, o);
		s->space_bytes += bytes;
		entered = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (!entered)
		wk_release(o);
	return entered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_space_take(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	struct wk_session *s = c->session;
	struct wk_object *o = NULL;
	size_t at;

	pthread_mutex_lock(&s->lock);
	at = below(&s->spaces, address);
	if (at && s->spaces.at[at - 1]->address == address && s->spaces.at[at - 1]->bytes == bytes &&
	    is_free(&s->mappings, address, bytes)) {
		o = s->spaces.at[at - 1];
		erase(&s->spaces, at - 1, 1);
		s->space_bytes -= bytes;
	}
	pthread_mutex_unlock(&s->lock);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	wk_release(o);
	return CUDA_SUCCESS;
}

/* ---- mappings */

/* Under the lock: the space around, held; NULL where there is none, or something is mapped. */
static struct wk_object *claim(struct wk_session *s, uint64_t address, uint64_t bytes)
{
	size_t at = below(&s->spaces, address);
	struct wk_object *space = at ? s->spaces.at[at - 1] : NULL;

	if (!space || !is_inside(space, address, bytes) || !is_free(&s->mappings, address, bytes))
		return NULL;
	wk_hold_again(space);
	return space;
}

CUresult wk_mapping_add(struct wk_call *c, uint64_t address, uint64_t bytes, struct wk_object *physical,
			struct wk_object **mapping)
{
	struct wk_session *s = c->session;
	struct wk_object *o = wk_object_new(WK_MAPPING, NULL, NULL, 0);
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (!o)
		return r;
	o->address = address;
	o->bytes = bytes;
	pthread_mutex_lock(&s->lock);
	if (make_room(&s->mappings, WK_MAPPINGS)) {
		o->space = claim(s, address, bytes);
		r = o->space ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (r == CUDA_SUCCESS) {
		wk_hold_again(physical);
		o->physical = physical;
		wk_hold_again(o);
		insert(&s->mappings, o);
		*mapping = o;
	}
	pthread_mutex_unlock(&s->lock);
	if (r != CUDA_SUCCESS)
		wk_release(o);
	return r;
}

/* Under the lock: how many whole mappings the range is made of, from *first on; 0: it is not. */
static size_t count_whole(const struct wk_session *s, uint64_t address, uint64_t bytes, size_t *first)
{
	size_t at = below(&s->mappings, address), count = 0;

	if (!at || !bytes)
		return 0;
	*first = at - 1;
	for (; bytes && at - 1 + count < s->mappings.count; count++) {
		const struct wk_object *o = s->mappings.at[at - 1 + count];

		if (o->address != address || o->bytes > bytes)
			return 0;
		address += o->bytes;
		bytes -= o->bytes;
	}
	return bytes ? 0 : count;
}

static bool make_spans(struct wk_call *c, size_t more)
{
	struct wk_object **at = realloc(c->spans, (c->spans_count + more) * sizeof(*at));

	if (at)
		c->spans = at;
	return at;
}

bool wk_span_add(struct wk_call *c, struct wk_object *memory)
{
	if (!make_spans(c, 1))
		return false;
	c->spans[c->spans_count++] = memory;
	return true;
}

/* Under the lock: holds so many, in the call's spans. */
static bool pin(struct wk_call *c, size_t first, size_t count)
{
	if (!make_spans(c, count))
		return false;
	for (size_t i = 0; i < count; i++) {
		c->spans[c->spans_count++] = c->session->mappings.at[first + i];
		wk_hold_again(c->session->mappings.at[first + i]);
	}
	return true;
}

CUresult wk_mapping_take(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	struct wk_object *list = NULL, *o;
	struct wk_session *s = c->session;
	size_t first, count;

	pthread_mutex_lock(&s->lock);
	count = count_whole(s, address, bytes, &first);
	for (size_t i = 0; i < count; i++) {
		o = s->mappings.at[first + i];
		o->next = list;
		list = o;
	}
	if (count)
		erase(&s->mappings, first, count);
	pthread_mutex_unlock(&s->lock);
	while ((o = list)) {
		list = o->next;
		wk_release(o);
	}
	return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult wk_mapping_hold(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	struct wk_session *s = c->session;
	size_t first, count;
	bool held;

	pthread_mutex_lock(&s->lock);
	count = count_whole(s, address, bytes, &first);
	held = count && pin(c, first, count);
	pthread_mutex_unlock(&s->lock);
	return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock: how many accessible neighbours the range lies in, from *first on; 0: it does not. */
static size_t count_around(const struct wk_session *s, uint64_t address, uint64_t bytes, size_t *first)
{
	size_t at = below(&s->mappings, address), count = 0;
	uint64_t end = at ? s->mappings.at[at - 1]->address : 0, reach;

	if (!at || __builtin_add_overflow(address, bytes, &reach))
		return 0;
	*first = at - 1;
	for (; end < reach && at - 1 + count < s->mappings.count; count++) {
		const struct wk_object *o = s->mappings.at[at - 1 + count];

		if (o->address != end || !atomic_load(&o->accessible))
			return 0;
		end += o->bytes;
	}
	return end < reach || address >= end ? 0 : count;
}

bool wk_mapping_pin(struct wk_call *c, uint64_t address, uint64_t bytes)
{
	struct wk_session *s = c->session;
	size_t first, count;
	bool held;

	pthread_mutex_lock(&s->lock);
	count = count_around(s, address, bytes, &first);
	held = count && pin(c, first, count);
	pthread_mutex_unlock(&s->lock);
	return held;
}

void wk_unpin(struct wk_call *c)
{
	for (int i = 0; i < 2; i++)
		wk_release_held(&c->pinned[i]);
	for (size_t i = 0; i < c->spans_count; i++)
		wk_release(c->spans[i]);
	free(c->spans);
	c->spans = NULL;
	c->spans_count = 0;
}

void wk_virtual_end(struct wk_session *s)
{
	for (size_t i = 0; i < s->mappings.count; i++)
		wk_release(s->mappings.at[i]);
	for (size_t i = 0; i < s->spaces.count; i++)
		wk_release(s->spaces.at[i]);
	s->mappings.count = s->spaces.count = 0;
}
