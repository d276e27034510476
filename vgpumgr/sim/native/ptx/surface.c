/* SPDX-License-Identifier: Apache-2.0 */
/* suld and sust of unformatted data. x counts bytes; what lies outside is a fault, the nearest texel, or nothing. */
#include "texture.h"

enum boundary { BOUNDARY_TRAP, BOUNDARY_CLAMP, BOUNDARY_ZERO };

/* A coordinate in [0, size), or that it is outside. */
static bool bound(enum boundary boundary, int64_t *at, int64_t size, bool *outside)
{
	if (*at >= 0 && *at < size)
		return true;
	*outside = true;
	*at = *at < 0 ? 0 : size - 1;
	return boundary == BOUNDARY_CLAMP;
}

/*
 * Where the access goes; NULL: nowhere, or after a fault. x is a number of bytes, and what is accessed must lie within the
 * row.
 */
static uint8_t *find_texel(struct thread *t, const uint64_t *r, const struct insn *i, bool write, bool *faulted)
{
	const struct texel_access *x = i->ext;
	const struct ptx_image *m = image_find(t, i, r[x->object], true);
	uint32_t bytes = x->count * x->size;
	int64_t at[3] = { 0 };
	bool outside = false, reached = true;
	const struct ptx_level *l;
	uint8_t *memory;

	*faulted = true;
	if (!m)
		return NULL;
	if (m->rank != x->rank || m->layered != x->layered) {
		fault(t, i, PTX_ILLEGAL_ADDRESS, "the surface has another geometry");
		return NULL;
	}
	l = &m->levels[0];
	for (uint32_t k = 0; k < x->rank; k++)
		at[k] = (s32)r[x->coordinates[k]];
	if (at[0] % bytes) {
		fault(t, i, PTX_MISALIGNED, "x is %lld bytes, of %u each", (long long)at[0], bytes);
		return NULL;
	}
	at[0] = at[0] / bytes;
	reached &= bound(x->boundary, &at[0], (int64_t)l->width * m->channels * ptx_texel_bytes(m->texel) / bytes, &outside);
	if (x->rank > 1)
		reached &= bound(x->boundary, &at[1], l->height, &outside);
	if (x->rank > 2)
		reached &= bound(x->boundary, &at[2], l->depth, &outside);
	if (x->layered) {
		at[2] = (u32)r[x->layer];
		reached &= bound(x->boundary, &at[2], l->depth, &outside);
	}
	if (outside && x->boundary == BOUNDARY_TRAP) {
		fault(t, i, PTX_ILLEGAL_ADDRESS, "outside of the surface");
		return NULL;
	}
	*faulted = false;
	if (!reached || at[0] < 0)
		return NULL;
	memory = reach_global(t, i, l->base + (uint64_t)at[2] * l->slice + (uint64_t)at[1] * l->pitch + (uint64_t)at[0] * bytes,
			      bytes, write);
	*faulted = !memory;
	return memory;
}

static HANDLER(run_suld)
{
	const struct texel_access *x = i->ext;
	bool faulted;
	const uint8_t *at = find_texel(t, r, i, false, &faulted);
	uint64_t values[4] = { 0 };

	if (faulted)
		return NULL;
	for (uint32_t k = 0; at && k < x->count; k++)
		memcpy(&values[k], at + k * x->size, x->size);
	for (uint32_t k = 0; k < x->count; k++)
		r[x->results[k]] = values[k];
	return i + 1;
}

static HANDLER(run_sust)
{
	const struct texel_access *x = i->ext;
	bool faulted;
	uint8_t *at = find_texel(t, r, i, true, &faulted);

	if (faulted)
		return NULL;
	for (uint32_t k = 0; at && k < x->count; k++)
		memcpy(at + k * x->size, &r[x->results[k]], x->size);
	return i + 1;
}

static bool decode_surface(struct body *b, struct statement *s, uint32_t value, uint32_t texel, handler *run)
{
	static const char *const boundaries[] = { "trap", "clamp", "zero", NULL };
	static const char *const caches[] = { "ca", "cg", "cs", "cv", "wb", "wt", NULL };
	struct texel_access *x = arena_alloc(b->arena, sizeof *x);
	const struct operand *v = &s->operands[value];
	int boundary;
	enum type type;

	if (!take(s, "b") || !access_take_rank(s, x))
		return false;
	while (take_one(s, caches) >= 0)
		;
	x->count = take(s, "v2") ? 2 : take(s, "v4") ? 4 : 1;
	type = take_type(s);
	boundary = take_one(s, boundaries);
	if (boundary < 0 || type < T_B8 || type > T_B64 || x->count * type_size(type) > 16)
		return false;
	operands(b, s, 2, 2);
	x->size = type_size(type);
	x->boundary = (uint32_t)boundary;
	if (!access_geometry(b, s, texel, T_B32, x))
		return false;
	if (v->kind == O_VECTOR ? v->n != x->count : x->count != 1)
		bad_operand(b, s, value, "a vector of this length");
	for (uint32_t k = 0; k < x->count; k++) {
		const struct operand *o = v->kind == O_VECTOR ? &v->elements[k] : v;

		x->results[k] = value ? operand_src(b, s, o, type, true) : operand_dst(b, s, o, type, true);
	}
	emit_visible(b, s, run)->ext = x;
	return true;
}

DECODER(suld)
{
	return decode_surface(b, s, 0, 1, run_suld);
}

DECODER(sust)
{
	return decode_surface(b, s, 1, 0, run_sust);
}
