/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of live handles. Handles are addresses of our objects, but a program may pass anything: whether an address is
 * one of ours is asked here before it is followed. Open addressing with linear probing; removed entries leave a tombstone.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda_sim.h"

struct slot {
	const void *object;
	enum handle_kind kind; /* 0: free, or a tombstone where object is set */
};

static struct slot *slots;
static size_t n_slots, n_filled, n_live;

static size_t hash(const void *object)
{
	return (size_t)(((uintptr_t)object >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20);
}

static struct slot *lookup(const void *object)
{
	if (!n_slots || !object)
		return NULL;
	for (size_t i = hash(object);; i++) {
		struct slot *s = &slots[i & (n_slots - 1)];

		if (!s->object)
			return NULL;
		if (s->object == object && s->kind)
			return s;
	}
}

static void insert(const void *object, enum handle_kind kind)
{
	size_t i = hash(object);

	while (slots[i & (n_slots - 1)].object)
		i++;
	slots[i & (n_slots - 1)] = (struct slot){ object, kind };
	n_filled++;
	n_live++;
}

/* Keeps at least half of the table free; drops the tombstones. */
static int grow(void)
{
	size_t old_n = n_slots, n = n_live < 512 ? 2048 : n_live * 4;
	struct slot *old = slots, *fresh;

	for (n_slots = 2048; n_slots < n; n_slots *= 2)
		;
	fresh = calloc(n_slots, sizeof(*fresh));
	if (!fresh) {
		n_slots = old_n;
		return -ENOMEM;
	}
	slots = fresh;
	n_filled = n_live = 0;
	for (size_t i = 0; i < old_n; i++) {
		if (old[i].object && old[i].kind)
			insert(old[i].object, old[i].kind);
	}
	free(old);
	return 0;
}

int handle_add(const void *object, enum handle_kind kind)
{
	if (n_filled * 2 >= n_slots && grow())
		return -ENOMEM;
	insert(object, kind);
	return 0;
}

void handle_remove(const void *object)
{
	struct slot *s = lookup(object);

	if (!s)
		return;
	s->kind = 0;
	n_live--;
}

bool handle_is(const void *object, enum handle_kind kind)
{
	const struct slot *s = lookup(object);

	return s && s->kind == kind;
}
