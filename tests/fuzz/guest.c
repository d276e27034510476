/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <string.h>

static const uint32_t tags[WK_TABLES] = { VG_TAG_CONTEXT, VG_TAG_STREAM,   VG_TAG_EVENT,
					  VG_TAG_MODULE,  VG_TAG_FUNCTION, VG_TAG_POOL };

uint64_t guest_roll(struct guest *g)
{
	g->random ^= g->random << 13, g->random ^= g->random >> 7, g->random ^= g->random << 17;
	return g->random >> 11;
}

static uint64_t small(struct guest *g, uint64_t most)
{
	return guest_once_in(g, 50) ? guest_roll(g) & UINT32_MAX : guest_roll(g) % (most + 1);
}

static void put(struct guest *g, uint64_t word)
{
	if (g->length + 8 <= PAYLOAD)
		memcpy(g->payload + g->length, &word, 8);
	g->length += 8;
}

static void put_blob(struct guest *g, const void *data, size_t length)
{
	put(g, length);
	memset(g->payload + g->length, 0, (length + 7) & ~(size_t)7);
	memcpy(g->payload + g->length, data, length);
	g->length += (length + 7) & ~(size_t)7;
}

/* ---- handles and addresses */

static uint64_t known_handle(struct guest *g, enum wk_kind kind)
{
	uint64_t handle = 0;

	for (int i = 0; i < 4 && !handle; i++)
		handle = g->handles[kind][guest_roll(g) % KEPT];
	return handle;
}

static uint64_t some_handle(struct guest *g, enum wk_kind kind)
{
	switch (guest_roll(g) % 40) {
	case 0:
		return 0;
	case 1: /* of another kind: its tag is a violation only where the decoder says so */
		return g->spoil ? known_handle(g, (kind + 1) % WK_TABLES) : 0;
	case 2: /* never made */
		return vg_handle_make(tags[kind], 1 + guest_roll(g) % 9, guest_roll(g) % 4096);
	default:
		return kind == WK_STREAM && guest_once_in(g, 3) ? 0 : known_handle(g, kind);
	}
}

/* Usually the table's next slot, sometimes one that was used; the generation rises. */
static uint64_t new_handle(struct guest *g, enum wk_kind kind)
{
	uint32_t slot = g->slots[kind];
	uint64_t handle;

	if (g->spoil && guest_once_in(g, 2))
		return known_handle(g, kind);
	if (slot < 60)
		g->slots[kind]++;
	else
		slot = guest_roll(g) % slot;
	handle = vg_handle_make(tags[kind], ++g->generation, slot);
	g->handles[kind][guest_roll(g) % KEPT] = handle;
	return handle;
}

static uint64_t some_address(struct guest *g, bool exact)
{
	uint64_t address = 0;

	pthread_mutex_lock(&g->lane.lock);
	for (int i = 0; i < 8 && !address; i++) {
		unsigned int at = guest_roll(g) % KEPT;

		if (g->memories[at].context == g->context || i == 7)
			address = g->memories[at].address;
	}
	pthread_mutex_unlock(&g->lane.lock);
	if (guest_once_in(g, 40))
		return guest_roll(g) << 12;
	return exact ? address : address + guest_roll(g) % 64;
}

void guest_learn(struct vg_lane *lane, const struct lane_call *call, int32_t status, const void *data, size_t length)
{
	struct guest *g = lane->guest;
	unsigned int at = call->sequence % KEPT;

	if (status || length < 8)
		return;
	if (call->op != VG_OP_memory_allocate && call->op != VG_OP_memory_allocate_pitch &&
	    call->op != VG_OP_memory_allocate_async && call->op != VG_OP_pool_allocate && call->op != VG_OP_module_global)
		return;
	memcpy(&g->memories[at].address, data, 8);
	g->memories[at].context = call->context;
}

/* ---- fields */

static bool named(const struct field *f, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(f->name, *names))
			return true;
	return false;
}

static uint64_t some_size(struct guest *g, const struct field *f)
{
	static const char *const widths[] = { "width", "Width", NULL }, *const heights[] = { "height", "Height", NULL };
	static const char *const pitches[] = { "pitch", "dstPitch", "source_pitch", "destination_pitch", NULL };
	uint64_t value = guest_once_in(g, 60) ? guest_roll(g) << (guest_roll(g) % 12) : guest_roll(g) % 300;

	if (named(f, widths))
		return g->width = value % 64 + (value > 1000 ? value : 0);
	if (named(f, heights))
		return g->height = guest_once_in(g, 60) ? guest_roll(g) : guest_roll(g) % 5;
	if (named(f, pitches))
		return guest_once_in(g, 8) ? guest_roll(g) % 64 : 64 + guest_roll(g) % 64;
	return value;
}

static uint64_t some_word(struct guest *g, const struct operation *o, const struct field *f)
{
	static const char *const addresses[] = { "address", "source", "destination", "dstDevice", NULL };
	static const char *const sizes[] = { "bytes", "N", "width", "Width", "height", "Height", "pitch", "dstPitch",
					     "source_pitch", "destination_pitch", NULL };

	if (named(f, addresses))
		return some_address(g, strstr(o->name, "free"));
	if (named(f, sizes))
		return some_size(g, f);
	if (!strcmp(f->name, "ordinal"))
		return guest_once_in(g, 30);
	if (!strcmp(f->name, "upload"))
		return o->id == VG_OP_image_data ? ++g->upload : guest_once_in(g, 20) ? 0 : g->upload;
	if (!strcmp(f->name, "total"))
		return guest_once_in(g, 20) ? guest_roll(g) : g->bulk;
	if (!strcmp(f->name, "offset"))
		return guest_once_in(g, 20) ? guest_roll(g) % 64 : 0;
	if (!strcmp(f->name, "gate"))
		return o->id == VG_OP_host_gate ? ++g->gates : g->gates - guest_roll(g) % 8;
	if (strstr(f->name, "log_bytes"))
		return guest_once_in(g, 4) ? guest_roll(g) % 9000 : 0;
	if (!strcmp(f->name, "cooperative"))
		return small(g, 1);
	return small(g, 8);
}

static void put_bytes(struct guest *g, const struct field *f)
{
	static const char *const names[] = { "kernel", "variable", "missing", "other" };
	uint64_t words[64];
	size_t length = 24;

	if (f->kind == FIELD_STRING) {
		const char *name = names[guest_roll(g) % 4];

		put_blob(g, name, strlen(name) + 1);
		return;
	}
	for (int i = 0; i < 64; i++)
		words[i] = guest_roll(g) % 20;
	if (!strcmp(f->name, "options"))
		length = guest_once_in(g, 3) ? 16 * (guest_roll(g) % 3) : 0;
	if (guest_once_in(g, 30))
		length = guest_roll(g) % sizeof(words);
	put_blob(g, words, length < f->cap ? length : f->cap);
}

static void put_field(struct guest *g, const struct operation *o, const struct field *f)
{
	uint64_t word;

	switch (f->kind) {
	case FIELD_BYTES:
	case FIELD_STRING:
		put_bytes(g, f);
		return;
	case FIELD_HANDLE:
		word = some_handle(g, f->handle);
		break;
	case FIELD_MINT:
		word = new_handle(g, f->handle);
		break;
	case FIELD_I32:
		word = (uint64_t)(int64_t)(int32_t)small(g, 4);
		break;
	case FIELD_U64:
		word = some_word(g, o, f);
		break;
	default:
		word = some_word(g, o, f) & UINT32_MAX;
	}
	put(g, word);
}

void guest_make(struct guest *g, const struct operation *o)
{
	g->length = 0;
	g->width = g->height = 0;
	g->spoil = guest_once_in(g, 700);
	g->bulk = 1 + guest_roll(g) % 200;
	g->context = some_handle(g, WK_CONTEXT);
	if (o->id == VG_OP_launch_large && !guest_once_in(g, 20))
		g->bulk = 24;
	if (o->in_context)
		put(g, g->context);
	for (unsigned int i = 0; i < o->count; i++)
		put_field(g, o, &o->fields[i]);
	if (strstr(o->name, "_2d") && !guest_once_in(g, 20) && g->width * g->height <= LANE_BULK)
		g->bulk = g->width * g->height;
	if (g->spoil && g->length && guest_once_in(g, 2))
		g->length = guest_roll(g) % g->length;
}
