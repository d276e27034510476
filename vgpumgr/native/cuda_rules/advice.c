/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about managed memory and the places that it was prefetched to, page by page. They are kept for
 * cuMemRangeGetAttribute; no driver of ours follows them. */
#include "cuda_rules.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, DEVICES = 64, PREFETCH = 0 /* no advice has this number */ };

struct cuda_pages {
	uint64_t start, end;
	uint64_t owner;
	CUmemLocation preferred, prefetched; /* INVALID: none */
	uint64_t devices;                    /* that have SET_ACCESSED_BY, by bit */
	bool host, read_mostly;
};

/* At most two pieces more than there were, for each gap one. */
static bool make_room(struct cuda_advice *a, size_t more)
{
	struct cuda_pages *grown;
	size_t room = a->room ? a->room : 16;

	while (room < a->count + more)
		room *= 2;
	if (room == a->room)
		return true;
	grown = realloc(a->at, room * sizeof(*grown));
	if (!grown)
		return false;
	a->at = grown;
	a->room = room;
	return true;
}

static void insert(struct cuda_advice *a, size_t at, struct cuda_pages pages)
{
	memmove(&a->at[at + 1], &a->at[at], (a->count - at) * sizeof(*a->at));
	a->at[at] = pages;
	a->count++;
}

static void erase(struct cuda_advice *a, size_t at)
{
	memmove(&a->at[at], &a->at[at + 1], (--a->count - at) * sizeof(*a->at));
}

/* No piece lies on both sides of the address afterwards. */
static void cut(struct cuda_advice *a, uint64_t address)
{
	for (size_t i = 0; i < a->count; i++) {
		if (a->at[i].start < address && address < a->at[i].end) {
			insert(a, i + 1, a->at[i]);
			a->at[i].end = a->at[i + 1].start = address;
			return;
		}
	}
}

/* What another allocation has left at these addresses. */
static void drop_others(struct cuda_advice *a, const struct cuda_managed *m)
{
	for (size_t i = a->count; i-- > 0;) {
		if (a->at[i].owner != m->owner && a->at[i].start < m->start + m->bytes && m->start < a->at[i].end)
			erase(a, i);
	}
}

/* Pages that are touched, as far as they are the allocation's. */
static struct cuda_managed whole_pages(const struct cuda_managed *m)
{
	uint64_t start = m->start / PAGE * PAGE, end = (m->start + m->bytes + PAGE - 1) / PAGE * PAGE;

	if (start < m->base)
		start = m->base;
	if (end > m->base + m->size)
		end = m->base + m->size;
	return (struct cuda_managed){ .owner = m->owner, .start = start, .bytes = end - start };
}

/* Pieces that together are these pages and nothing else; `*first` is the first of `*count`. */
static bool cover(struct cuda_advice *a, const struct cuda_managed *m, size_t *first, size_t *count)
{
	uint64_t at = m->start, end = m->start + m->bytes;
	size_t i = 0;

	drop_others(a, m);
	if (!make_room(a, a->count + 3))
		return false;
	cut(a, at);
	cut(a, end);
	while (i < a->count && a->at[i].end <= at)
		i++;
	for (*first = i; at < end; i++) {
		uint64_t next = i < a->count && a->at[i].start < end ? a->at[i].start : end;

		if (at < next)
			insert(a, i, (struct cuda_pages){ .start = at, .end = next, .owner = m->owner });
		at = a->at[i].end;
	}
	*count = i - *first;
	return true;
}

static CUresult check_location(CUmemLocation *where, int devices)
{
	unsigned node = 0;

	switch ((int)where->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return where->id >= 0 && where->id < devices && where->id < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
		where->id = 0;
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return where->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		*where = (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
					  .id = syscall(SYS_getcpu, NULL, &node, NULL) == 0 ? (int)node : 0 };
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool has_location(CUmem_advise advice)
{
	return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
	       advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult cuda_check_advice(CUmem_advise advice, CUmemLocation *where, int devices)
{
	CUresult r = CUDA_SUCCESS;

	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	if (has_location(advice))
		r = check_location(where, devices);
	if (r == CUDA_SUCCESS && advice >= CU_MEM_ADVISE_SET_ACCESSED_BY && where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		r = CUDA_ERROR_INVALID_DEVICE;
	return r;
}

CUresult cuda_check_prefetch(CUmemLocation *where, int devices)
{
	return check_location(where, devices);
}

CUmemLocation cuda_location_of(CUdevice device)
{
	return (CUmemLocation){ .type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
				.id = device == CU_DEVICE_CPU ? 0 : device };
}

static void set_accessed(struct cuda_pages *p, CUmemLocation where, bool on)
{
	uint64_t bit = where.type == CU_MEM_LOCATION_TYPE_DEVICE ? UINT64_C(1) << where.id : 0;

	p->devices = on ? p->devices | bit : p->devices & ~bit;
	if (!bit)
		p->host = on;
}

static void change_pages(struct cuda_pages *p, int what, CUmemLocation where)
{
	const CUmemLocation none = { .type = CU_MEM_LOCATION_TYPE_INVALID };

	switch (what) {
	case PREFETCH:
		p->prefetched = where;
		break;
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		p->read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		p->preferred = what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? where : none;
		break;
	default:
		set_accessed(p, where, what == CU_MEM_ADVISE_SET_ACCESSED_BY);
	}
}

static bool is_same_place(CUmemLocation a, CUmemLocation b)
{
	return a.type == b.type && a.id == b.id;
}

static bool says_nothing(const struct cuda_pages *p)
{
	return !p->devices && !p->host && !p->read_mostly && p->preferred.type == CU_MEM_LOCATION_TYPE_INVALID &&
	       p->prefetched.type == CU_MEM_LOCATION_TYPE_INVALID;
}

static bool goes_on(const struct cuda_pages *p, const struct cuda_pages *next)
{
	return p->end == next->start && p->owner == next->owner && p->devices == next->devices && p->host == next->host &&
	       p->read_mostly == next->read_mostly && is_same_place(p->preferred, next->preferred) &&
	       is_same_place(p->prefetched, next->prefetched);
}

/* A program that advises page after page has one piece, not one for each. */
static void tidy(struct cuda_advice *a, size_t first, size_t count)
{
	size_t last = first + count;

	for (size_t i = last; i-- > first;) {
		if (says_nothing(&a->at[i]))
			erase(a, i);
	}
	if (last >= a->count)
		last = a->count ? a->count - 1 : 0;
	for (size_t i = last; i > 0 && i >= first; i--) {
		if (goes_on(&a->at[i - 1], &a->at[i])) {
			a->at[i - 1].end = a->at[i].end;
			erase(a, i);
		}
	}
}

static CUresult change(struct cuda_advice *a, const struct cuda_managed *memory, int what, CUmemLocation where)
{
	const struct cuda_managed m = whole_pages(memory);
	size_t first, count;

	if (!cover(a, &m, &first, &count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = first; i < first + count; i++)
		change_pages(&a->at[i], what, where);
	tidy(a, first, count);
	return CUDA_SUCCESS;
}

CUresult cuda_advise(struct cuda_advice *a, const struct cuda_managed *memory, CUmem_advise advice, CUmemLocation where)
{
	return change(a, memory, advice, where);
}

CUresult cuda_note_prefetch(struct cuda_advice *a, const struct cuda_managed *memory, CUmemLocation where)
{
	return change(a, memory, PREFETCH, where);
}

void cuda_forget_advice(struct cuda_advice *a, uint64_t owner)
{
	for (size_t i = a->count; i-- > 0;) {
		if (a->at[i].owner == owner)
			erase(a, i);
	}
}

CUresult cuda_prefetch_each(const struct cuda_prefetches *p, unsigned long long flags, CUstream stream,
			    CUresult (*one)(CUdeviceptr at, size_t bytes, const CUmemLocation *to, CUstream stream))
{
	CUresult r = p->at && p->sizes && p->count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	size_t kind = 0;

	for (size_t i = 0; i < p->count && r == CUDA_SUCCESS; i++) {
		while (kind + 1 < p->kinds && p->first[kind + 1] <= i)
			kind++;
		r = one(p->at[i], p->sizes[i], p->places ? &p->places[kind] : NULL, stream);
	}
	return r;
}

/* ---- questions */

static CUmemLocation both(CUmemLocation a, CUmemLocation b)
{
	return is_same_place(a, b) ? a : (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_INVALID };
}

/* What is true of all these pages. */
static struct cuda_pages read_pages(const struct cuda_advice *a, const struct cuda_managed *m)
{
	struct cuda_pages all = { .owner = m->owner };
	uint64_t at = m->start, end = m->start + m->bytes;
	bool any = false;

	for (size_t i = 0; i < a->count && at < end; i++) {
		const struct cuda_pages *p = &a->at[i];

		if (p->owner != m->owner || p->end <= at || p->start > at)
			continue;
		if (!any)
			all = *p;
		any = true;
		all.preferred = both(all.preferred, p->preferred);
		all.prefetched = both(all.prefetched, p->prefetched);
		all.devices &= p->devices;
		all.host = all.host && p->host;
		all.read_mostly = all.read_mostly && p->read_mostly;
		at = p->end;
	}
	return at < end ? (struct cuda_pages){ .owner = m->owner } : all;
}

static int as_device(CUmemLocation where)
{
	if (where.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CU_DEVICE_INVALID;
	return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : CU_DEVICE_CPU;
}

static CUresult list_accessed(int *list, size_t room, const struct cuda_pages *p)
{
	size_t n = 0;

	for (int device = 0; device < DEVICES && n < room; device++) {
		if (p->devices >> device & 1)
			list[n++] = device;
	}
	if (p->host && n < room)
		list[n++] = CU_DEVICE_CPU;
	while (n < room)
		list[n++] = CU_DEVICE_INVALID;
	return CUDA_SUCCESS;
}

CUresult cuda_range_attribute(const struct cuda_advice *a, const struct cuda_managed *memory, CUmem_range_attribute attribute,
			      void *data, size_t size)
{
	const struct cuda_managed m = whole_pages(memory);
	const struct cuda_pages p = read_pages(a, &m);

	if (!data || !size || size % sizeof(int) || (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && size != sizeof(int)))
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*(int *)data = p.read_mostly;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*(int *)data = as_device(p.preferred);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		return list_accessed(data, size / sizeof(int), &p);
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*(int *)data = as_device(p.prefetched);
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*(int *)data = p.preferred.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*(int *)data = p.preferred.id;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*(int *)data = p.prefetched.type;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*(int *)data = p.prefetched.id;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_range_attributes(void **data, const size_t *sizes, const CUmem_range_attribute *attributes, size_t count,
			       CUdeviceptr at, size_t bytes, cuda_range_question *ask)
{
	CUresult r = data && sizes && attributes && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = ask(data[i], sizes[i], attributes[i], at, bytes);
	return r;
}
