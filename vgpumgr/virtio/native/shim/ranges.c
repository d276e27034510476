/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorted arrays of address ranges: device allocations and mappings, pinned host memory, reserved addresses. Each channel has
 * its own: sessions do not know of each other's addresses. Allocations are made so that they differ (memory.c); where they
 * cannot, as the variables of modules, an address is looked for on the device first that the thread works on.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { KINDS = SHIM_RANGE_RESERVED + 1 };

static struct ranges {
	pthread_mutex_t lock;
	struct shim_range *at;
	size_t count, room;
} ranges[SHIM_CHANNELS][KINDS];

static _Atomic uint64_t last_id;
static _Atomic size_t managed_count;
static _Atomic(const struct shim_managed_watcher *) managed_watcher;

/* The number of ranges that start at or below the address. */
static size_t below(const struct ranges *r, uint64_t address)
{
	size_t low = 0, high = r->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (r->at[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool make_room(struct ranges *r)
{
	size_t room = r->room ? r->room * 2 : 64;
	struct shim_range *at;

	if (r->count < r->room)
		return true;
	at = realloc(r->at, room * sizeof(*at));
	if (!at)
		return false;
	r->at = at;
	r->room = room;
	return true;
}

static struct ranges *of_channel(enum shim_range_kind kind, unsigned channel)
{
	return &ranges[kind == SHIM_RANGE_HOST ? 0 : channel][kind];
}

/* The channels that may have it: the thread's own, then all others. -1: no more. */
static int first_channel(enum shim_range_kind kind)
{
	return kind == SHIM_RANGE_HOST ? 0 : (int)shim_channel();
}

static int next_channel(enum shim_range_kind kind, int channel)
{
	int own = first_channel(kind), next = channel == own ? 0 : channel + 1;

	if (next == own)
		next++;
	return kind == SHIM_RANGE_HOST || next >= (int)shim_channels() ? -1 : next;
}

CUresult shim_range_add(enum shim_range_kind kind, const struct shim_range *range)
{
	unsigned channel = shim_channel_by(range->context ? range->context : range->physical);
	struct ranges *r = of_channel(kind, channel);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	size_t at;

	pthread_mutex_lock(&r->lock);
	if (make_room(r)) {
		at = below(r, range->start);
		memmove(&r->at[at + 1], &r->at[at], (r->count - at) * sizeof(*r->at));
		r->at[at] = *range;
		r->at[at].id = atomic_fetch_add(&last_id, 1) + 1;
		r->at[at].channel = channel;
		r->count++;
		atomic_fetch_add(&managed_count, range->managed);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&r->lock);
	return result;
}

static bool find_in(struct ranges *r, uint64_t address, struct shim_range *found)
{
	bool is = false;
	size_t at;

	pthread_mutex_lock(&r->lock);
	at = below(r, address);
	if (at && address - r->at[at - 1].start < r->at[at - 1].bytes) {
		*found = r->at[at - 1];
		is = true;
	}
	pthread_mutex_unlock(&r->lock);
	return is;
}

bool shim_range_find(enum shim_range_kind kind, uint64_t address, struct shim_range *found)
{
	for (int c = first_channel(kind); c >= 0; c = next_channel(kind, c))
		if (find_in(of_channel(kind, (unsigned)c), address, found))
			return true;
	return false;
}

static bool remove_from(struct ranges *r, uint64_t start, struct shim_range *removed)
{
	bool is = false;
	size_t at;

	pthread_mutex_lock(&r->lock);
	at = below(r, start);
	if (at && r->at[at - 1].start == start) {
		*removed = r->at[at - 1];
		atomic_fetch_sub(&managed_count, removed->managed);
		memmove(&r->at[at - 1], &r->at[at], (r->count - at) * sizeof(*r->at));
		r->count--;
		is = true;
	}
	pthread_mutex_unlock(&r->lock);
	return is;
}

bool shim_range_remove(enum shim_range_kind kind, struct shim_range *found)
{
	return remove_from(of_channel(kind, found->channel), found->start, found);
}

void shim_range_forget(enum shim_range_kind kind, uint64_t owner)
{
	const struct shim_managed_watcher *watcher = atomic_load(&managed_watcher);
	struct ranges *r = of_channel(kind, shim_channel_of(owner));
	size_t kept = 0;

	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; i < r->count; i++) {
		if (r->at[i].context != owner && r->at[i].module != owner)
			r->at[kept++] = r->at[i];
		else
			atomic_fetch_sub(&managed_count, r->at[i].managed);
	}
	r->count = kept;
	pthread_mutex_unlock(&r->lock);
	if (watcher && kind == SHIM_RANGE_DEVICE)
		watcher->forget(owner);
}

void shim_range_watch(const struct shim_managed_watcher *watcher)
{
	atomic_store(&managed_watcher, watcher);
}

uint32_t shim_range_count(const struct shim_range *found, int change)
{
	struct ranges *r = of_channel(SHIM_RANGE_DEVICE, found->channel);
	uint32_t count = 0;
	size_t at;

	pthread_mutex_lock(&r->lock);
	at = below(r, found->start);
	if (at && r->at[at - 1].id == found->id)
		count = r->at[at - 1].opened += (uint32_t)change;
	pthread_mutex_unlock(&r->lock);
	return count;
}

static bool has_managed(struct ranges *r, uint64_t start, size_t bytes)
{
	bool is = false;

	pthread_mutex_lock(&r->lock);
	for (size_t at = below(r, start + bytes - 1); at && !is && r->at[at - 1].start + r->at[at - 1].bytes > start; at--)
		is = r->at[at - 1].managed;
	pthread_mutex_unlock(&r->lock);
	return is;
}

bool shim_range_is_managed(const void *memory, size_t bytes)
{
	bool is = false;

	if (!atomic_load_explicit(&managed_count, memory_order_relaxed) || !bytes)
		return false;
	for (unsigned c = 0; c < shim_channels() && !is; c++)
		is = has_managed(of_channel(SHIM_RANGE_DEVICE, c), (uint64_t)memory, bytes);
	return is;
}

static bool has_any(struct ranges *r, uint64_t start, uint64_t bytes)
{
	size_t at;
	bool any;

	pthread_mutex_lock(&r->lock);
	at = below(r, start);
	any = (at && start - r->at[at - 1].start < r->at[at - 1].bytes) || (at < r->count && r->at[at].start - start < bytes);
	pthread_mutex_unlock(&r->lock);
	return any;
}

bool shim_range_any(enum shim_range_kind kind, uint64_t start, uint64_t bytes)
{
	bool any = false;

	for (unsigned c = 0; c < shim_channels() && !any; c++)
		any = has_any(of_channel(kind, c), start, bytes);
	return any;
}

/* The last that has any of these addresses. */
static bool find_last(struct ranges *r, uint64_t start, uint64_t bytes, struct shim_range *found)
{
	bool is;
	size_t at;

	pthread_mutex_lock(&r->lock);
	at = below(r, start + bytes - 1);
	is = at && r->at[at - 1].start + r->at[at - 1].bytes > start;
	if (is)
		*found = r->at[at - 1];
	pthread_mutex_unlock(&r->lock);
	return is;
}

bool shim_range_last(enum shim_range_kind kind, unsigned channel, uint64_t start, uint64_t bytes, struct shim_range *found)
{
	return find_last(of_channel(kind, channel), start, bytes, found);
}

uint64_t shim_range_elsewhere(uint64_t context, uint64_t start, uint64_t bytes)
{
	static const enum shim_range_kind kinds[] = { SHIM_RANGE_DEVICE, SHIM_RANGE_RESERVED };
	unsigned own = shim_channel_by(context);
	struct shim_range found;
	uint64_t end = 0;

	for (unsigned c = 0; c < shim_channels(); c++) {
		for (unsigned k = 0; k < 2 && c != own; k++) {
			if (find_last(of_channel(kinds[k], c), start, bytes, &found) && found.start + found.bytes > end)
				end = found.start + found.bytes;
		}
	}
	return end;
}

static bool open_in(struct ranges *r, uint64_t start, bool accessible)
{
	bool is = false;
	size_t at;

	pthread_mutex_lock(&r->lock);
	at = below(r, start);
	if (at && r->at[at - 1].start == start && r->at[at - 1].physical) {
		r->at[at - 1].accessible = accessible;
		is = true;
	}
	pthread_mutex_unlock(&r->lock);
	return is;
}

bool shim_range_open(const struct shim_range *found, bool accessible)
{
	return open_in(of_channel(SHIM_RANGE_DEVICE, found->channel), found->start, accessible);
}

bool shim_is_device(uint64_t address)
{
	struct shim_range found;

	return shim_range_find(SHIM_RANGE_DEVICE, address, &found) || shim_range_find(SHIM_RANGE_RESERVED, address, &found);
}

/* From a mapping on: whether open neighbours of one device go on for so many bytes. */
static bool is_open(const struct shim_range *first, uint64_t bytes)
{
	struct shim_range next = *first;

	while (next.physical && next.accessible && next.device == first->device) {
		if (bytes <= next.bytes)
			return true;
		bytes -= next.bytes;
		if (!shim_range_find(SHIM_RANGE_DEVICE, next.start + next.bytes, &next))
			return false;
	}
	return false;
}

CUresult shim_check_range(uint64_t address, uint64_t count, uint64_t factor, uint64_t rows, uint64_t pitch)
{
	struct shim_range found;
	size_t bytes;
	CUresult r = cuda_rows_extent(count, factor, rows, pitch, &bytes);

	/* elements are aligned, also where there are none */
	if (r == CUDA_SUCCESS && (address % factor || (rows > 1 && pitch % factor)))
		return CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS || !bytes)
		return r;
	if (!shim_range_find(SHIM_RANGE_DEVICE, address, &found))
		return CUDA_ERROR_INVALID_VALUE;
	if (found.physical)
		return is_open(&found, bytes + (address - found.start)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (bytes > found.bytes - (address - found.start))
		return CUDA_ERROR_INVALID_VALUE;
	return found.managed ? atomic_load(&managed_watcher)->use(found.start) : CUDA_SUCCESS;
}
