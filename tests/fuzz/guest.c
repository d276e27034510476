/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <string.h>

static const uint32_t tags[WK_TABLES] = { VG_TAG_CONTEXT, VG_TAG_STREAM,   VG_TAG_EVENT,
					  VG_TAG_MODULE,  VG_TAG_FUNCTION, VG_TAG_POOL,
					  VG_TAG_PHYSICAL, VG_TAG_GRAPH, VG_TAG_GRAPH_EXEC,
					  VG_TAG_ARRAY,	  VG_TAG_MIPMAP,   VG_TAG_TEXTURE, VG_TAG_SURFACE, VG_TAG_MATH };

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
	if (g->usual[kind] && !guest_once_in(g, 5))
		return g->usual[kind];
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
	return g->made[kind] = handle;
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
	if (g->near && guest_once_in(g, 6)) /* around the borders of what may be mapped there */
		address = g->near + guest_roll(g) % GUEST_UNITS * GUEST_UNIT - guest_roll(g) % 2 * 100;
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
	if (call->op == VG_OP_virtual_reserve)
		memcpy(&g->space, data, 8);
	if (call->op == VG_OP_graph_condition)
		memcpy(&g->conditions[call->sequence % 4], data, 8);
	if (call->op != VG_OP_memory_allocate && call->op != VG_OP_memory_allocate_pitch &&
	    call->op != VG_OP_memory_allocate_async && call->op != VG_OP_pool_allocate && call->op != VG_OP_module_global)
		return;
	memcpy(&g->memories[at].address, data, 8);
	g->memories[at].context = call->context;
}

static uint64_t some_condition(struct guest *g)
{
	uint64_t found;

	pthread_mutex_lock(&g->lane.lock);
	found = g->conditions[guest_roll(g) % 4];
	pthread_mutex_unlock(&g->lane.lock);
	return guest_once_in(g, 20) ? guest_roll(g) : found;
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
	static const char *const widths[] = { "width", "Width", NULL }, *const heights[] = { "height", "Height", "rows", NULL };
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

/* Mostly what comes to something: a few units inside the newest addresses, and all of them. */
static uint64_t some_space(struct guest *g, const struct operation *o, const struct field *f)
{
	bool all = o->id == VG_OP_virtual_free || o->id == VG_OP_virtual_reserve;
	uint64_t unit = all ? 0 : g->unit, units = all ? GUEST_UNITS : 1 + guest_roll(g) % 2;

	if (guest_once_in(g, 30))
		return guest_roll(g) << (guest_roll(g) % 20);
	if (!strcmp(f->name, "address"))
		return g->near + unit * GUEST_UNIT;
	if (!strcmp(f->name, "bytes"))
		return units * GUEST_UNIT;
	if (!strcmp(f->name, "alignment"))
		return guest_once_in(g, 4) ? 1ull << guest_roll(g) % 50 : 0;
	if (!strcmp(f->name, "wish"))
		return guest_once_in(g, 4) ? g->near : 0;
	if (!strcmp(f->name, "open"))
		return !guest_once_in(g, 4);
	return guest_roll(g) % (strcmp(f->name, "option") ? 30 : 3) == 29;
}

/* What arrays are made of, and which parts of them are copied: of 8 by 4 by 2 elements, or what is refused. */
static bool some_array(struct guest *g, const struct operation *o, const struct field *f, uint64_t *word)
{
	static const char *const formats[] = { "format", NULL };
	static const uint64_t usual[] = { CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT };
	bool makes = o->id == VG_OP_array_create || o->id == VG_OP_mipmap_create;

	if (guest_once_in(g, 30))
		return false;
	if (named(f, formats))
		*word = guest_once_in(g, 20) ? guest_roll(g) % 64 : usual[guest_roll(g) % 4];
	else if (!strcmp(f->name, "channels"))
		*word = guest_once_in(g, 20) ? guest_roll(g) : 1 + guest_roll(g) % 2;
	else if (!strcmp(f->name, "flags"))
		*word = guest_once_in(g, 20) ? guest_roll(g) : o->id == VG_OP_texture_create ? guest_roll(g) % 4 : CUDA_ARRAY3D_SURFACE_LDST;
	else if (!strcmp(f->name, "levels"))
		*word = 1 + guest_roll(g) % 4;
	else if (!strcmp(f->name, "resource"))
		*word = guest_roll(g) % 4;
	else if (!strcmp(f->name, "address") && o->id == VG_OP_texture_create)
		*word = some_address(g, true);
	else if (makes && !strcmp(f->name, "width"))
		*word = guest_once_in(g, 9) ? guest_roll(g) << guest_roll(g) % 12 : 8 + guest_roll(g) % 60;
	else if (makes && (!strcmp(f->name, "height") || !strcmp(f->name, "depth")))
		*word = f->name[0] == 'h' ? guest_roll(g) % 9 : guest_once_in(g, 3) ? guest_roll(g) % 4 : 0;
	else if (!strcmp(f->name, "width"))
		*word = g->width = 8 * (1 + guest_roll(g) % 2);
	else if (!strcmp(f->name, "height") || !strcmp(f->name, "rows"))
		*word = g->height = 1 + guest_roll(g) % 3;
	else if (strlen(f->name) && strchr("xyz", f->name[strlen(f->name) - 1]) && strncmp(f->name, "address", 7))
		*word = guest_once_in(g, 3) ? 8 * (guest_roll(g) % 2) : 0;
	else if (!strcmp(f->name, "filter") || !strcmp(f->name, "mipmap_filter"))
		*word = guest_roll(g) % 2;
	else
		return false;
	return true;
}

static uint64_t some_word(struct guest *g, const struct operation *o, const struct field *f)
{
	static const char *const addresses[] = { "address", "source", "destination", "dstDevice", NULL };
	static const char *const sizes[] = { "bytes", "N", "width", "Width", "height", "Height", "pitch", "dstPitch",
					     "source_pitch", "destination_pitch", "rows", NULL };
	static const uint32_t attributes[] = { 1, 2, 4, 5, 8, 9, 10, 14 }; /* of kernels in graphs */
	bool arrays = strstr(o->name, "array") || strstr(o->name, "mipmap") || strstr(o->name, "texture");
	uint64_t word;

	if (arrays && some_array(g, o, f, &word))
		return word;
	if (!strncmp(o->name, "virtual_", 8))
		return some_space(g, o, f);
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
	if (!strcmp(f->name, "number"))
		return guest_once_in(g, 3) ? g->gates : ++g->gates;
	if (strstr(f->name, "log_bytes"))
		return guest_once_in(g, 4) ? guest_roll(g) % 9000 : 0;
	if (!strcmp(f->name, "attribute"))
		return guest_once_in(g, 4) ? small(g, 20) : attributes[guest_roll(g) % (sizeof(attributes) / sizeof(attributes[0]))];
	if (o->id == VG_OP_cuCtxSetLimit && !strcmp(f->name, "value")) /* more and less than the driver's own */
		return guest_roll(g) % 2048;
	if (!strcmp(f->name, "set") || !strcmp(f->name, "only"))
		return small(g, 1);
	if (!strcmp(f->name, "cooperative") || !strcmp(f->name, "remove") || !strcmp(f->name, "waits") ||
	    !strcmp(f->name, "to_host"))
		return small(g, 1);
	if (o->id == VG_OP_tensor_map && !strcmp(f->name, "how"))
		return g->tensor.how = small(g, 2);
	if (!strcmp(f->name, "condition"))
		return some_condition(g);
	if (!strcmp(f->name, "kind"))
		return small(g, 2);
	if (!strcmp(f->name, "bodies"))
		return guest_once_in(g, 20) ? small(g, 300) : 1 + guest_roll(g) % 2;
	if (!strcmp(f->name, "body") || (!strcmp(f->name, "flags") && o->id == VG_OP_graph_condition))
		return small(g, 1);
	if (!strcmp(f->name, "rank"))
		return g->tensor.rank = small(g, 6);
	if (!strcmp(f->name, "how"))
		return g->how ? g->how - 1 : small(g, 2);
	if (!strcmp(f->name, "what"))
		return small(g, 4);
	if (!strcmp(f->name, "node") || !strcmp(f->name, "from_node"))
		return g->how ? 0 : small(g, guest_once_in(g, 2) ? 2 : 9);
	if (!strcmp(f->name, "first"))
		return small(g, 1);
	if (!strcmp(f->name, "element"))
		return guest_once_in(g, 10) ? small(g, 8) : 1;
	if (!strcmp(f->name, "slices"))
		return guest_once_in(g, 10) ? small(g, 3) : 1;
	if (!strcmp(f->name, "destination_slice") || !strcmp(f->name, "source_slice") || !strcmp(f->name, "slice"))
		return guest_once_in(g, 4) ? small(g, 300) : 0;
	return small(g, 8);
}

/* Two inputs of the linker, as make_image() laid them out. */
static size_t some_parts(struct guest *g, uint64_t *words)
{
	for (int i = 0; i < 4; i += 2) {
		words[i] = g->inputs / 2 - 2 + (guest_once_in(g, 20) ? guest_roll(g) % 9 : 0);
		words[i + 1] = (guest_once_in(g, 20) ? guest_roll(g) % 4 : 2ull) << 32 | guest_roll(g) % (guest_once_in(g, 9) ? 9 : 5);
	}
	return 16 * (guest_roll(g) % 3);
}

/* Waits, writes, reductions and barriers, mostly of what there is; some are none. */
static size_t some_operations(struct guest *g, uint64_t *words)
{
	static const uint64_t kinds[] = {
		CU_STREAM_MEM_OP_WAIT_VALUE_32,	 CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_MEM_OP_WAIT_VALUE_64,
		CU_STREAM_MEM_OP_WRITE_VALUE_64, CU_STREAM_MEM_OP_BARRIER,	  CU_STREAM_MEM_OP_ATOMIC_REDUCTION,
	};
	size_t count = 1 + guest_roll(g) % 8;

	for (size_t i = 0; i < count; i++, words += 4) {
		uint64_t kind = guest_once_in(g, 40) ? guest_roll(g) % 12 : kinds[guest_roll(g) % 6];
		bool waits = kind == CU_STREAM_MEM_OP_WAIT_VALUE_32 || kind == CU_STREAM_MEM_OP_WAIT_VALUE_64;

		words[0] = kind | (guest_once_in(g, 40) ? guest_roll(g) << 32 : waits ? guest_roll(g) % 4 << 32 : 0);
		words[1] = guest_roll(g) % 2 | (uint64_t)(guest_once_in(g, 2) ? 8 : 4) << 32;
		if (kind == CU_STREAM_MEM_OP_ATOMIC_REDUCTION)
			words[1] = (guest_once_in(g, 9) ? guest_roll(g) % 99 : (uint64_t)CU_STREAM_ATOMIC_REDUCTION_OP_OR) | 8ull << 32;
		words[2] = some_address(g, true) + (guest_once_in(g, 9) ? guest_roll(g) % 64 : 0);
		words[3] = guest_roll(g);
	}
	return count * 32;
}

/* The arrays of a tensor, as long as its rank and its kind say. */
static void tensor_length(const struct guest *g, const struct field *f, size_t *length)
{
	static const char *const names[] = { "sizes", "strides", "steps", "box", "lower", "upper", "map", NULL };
	size_t rank = g->tensor.rank ? g->tensor.rank : 1, corners = g->tensor.how == 2 ? 1 : rank > 2 ? rank - 2 : 0;
	size_t lengths[] = { 8 * rank, 8 * (rank - 1), 4 * rank, g->tensor.how ? 0 : 4 * rank, 0, 0, 128 };

	lengths[4] = lengths[5] = g->tensor.how ? 4 * corners : 0;
	for (size_t i = 0; names[i]; i++) {
		if (!strcmp(f->name, names[i])) {
			*length = lengths[i];
			return;
		}
	}
}

static void put_bytes(struct guest *g, const struct field *f)
{
	static const char *const names[] = { "kernel", "variable", "missing", "other" };
	uint64_t words[64];
	size_t length = 24;

	if (f->kind == FIELD_STRING) {
		const char *name = names[g->known ? 0 : guest_roll(g) % 4];

		put_blob(g, name, strlen(name) + 1);
		return;
	}
	for (int i = 0; i < 64; i++)
		words[i] = guest_roll(g) % 20;
	if (!strcmp(f->name, "value")) {
		memset(words, 0, sizeof(words));
		words[0] = guest_roll(g) % 2;
		length = 64;
	}
	if (!strcmp(f->name, "options"))
		length = guest_once_in(g, 3) ? 16 * (guest_roll(g) % 3) : 0;
	if (!strcmp(f->name, "parts"))
		length = some_parts(g, words);
	tensor_length(g, f, &length);
	if (!strcmp(f->name, "operations"))
		length = some_operations(g, words);
	if (!strcmp(f->name, "dependencies") || !strcmp(f->name, "edges")) {
		for (int i = 0; i < 64; i++)
			words[i] = guest_roll(g) % 2 << 32 | guest_roll(g) % 2;
		length = f->name[0] == 'e' ? 8 * (guest_roll(g) % 3) : 4 * (guest_roll(g) % 2);
	}
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
		word = strstr(o->name, "_destroy") || !strcmp(f->name, "child") ? known_handle(g, f->handle) : some_handle(g, f->handle);
		break;
	case FIELD_MINT:
		word = new_handle(g, f->handle);
		if (o->id == VG_OP_graph_create || o->id == VG_OP_capture_graph || o->id == VG_OP_graph_instantiate || o->id == VG_OP_array_create ||
		    o->id == VG_OP_mipmap_create)
			g->usual[f->handle] = word;
		if (o->id == VG_OP_cuStreamCreateWithPriority)
			g->newest.stream = word, g->newest.context = g->context;
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
	g->unit = guest_roll(g) % GUEST_UNITS;
	pthread_mutex_lock(&g->lane.lock);
	g->near = g->space;
	pthread_mutex_unlock(&g->lane.lock);
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
	if ((strstr(o->name, "_2d") || o->id == VG_OP_copy_to_array || o->id == VG_OP_copy_from_array) && !guest_once_in(g, 20) && g->width * g->height <= LANE_BULK)
		g->bulk = g->width * g->height;
	if (g->spoil && g->length && guest_once_in(g, 2))
		g->length = guest_roll(g) % g->length;
}
