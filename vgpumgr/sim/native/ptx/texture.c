/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tex, tld4, txq and suq. A texture is named by the 64-bit object of CUDA's unified mode. What an object stands for is
 * asked once for each worker of a grid: it must not change while a kernel uses it.
 */
#include "sample.h"
#include "texture.h"

#include <stdlib.h>

enum { IMAGES = 8 };

struct images {
	struct { uint64_t object; struct ptx_image image; } at[IMAGES];
	uint32_t used, next;
};

static const struct ptx_image *ask(struct thread *t, const struct insn *i, struct images *known, uint64_t object)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	uint32_t place = known->next;

	if (!h->image || !h->image(h->ctx, object, &known->at[place].image)) {
		known->at[place].object = 0;
		fault(t, i, PTX_ILLEGAL_ADDRESS, "0x%llx is no texture or surface object", (unsigned long long)object);
		return NULL;
	}
	known->at[place].object = object;
	known->next = (place + 1) % IMAGES;
	if (known->used < IMAGES)
		known->used++;
	return &known->at[place].image;
}

const struct ptx_image *image_find(struct thread *t, const struct insn *i, uint64_t object, bool surface)
{
	struct images **known = &t->worker->images;
	const struct ptx_image *image = NULL;

	if (!*known && !(*known = calloc(1, sizeof **known))) {
		fault(t, i, PTX_NO_MEMORY, "no memory for textures");
		return NULL;
	}
	for (uint32_t k = 0; object && k < (*known)->used && !image; k++)
		if ((*known)->at[k].object == object)
			image = &(*known)->at[k].image;
	if (!image)
		image = ask(t, i, *known, object);
	if (image && image->surface != surface) {
		fault(t, i, PTX_ILLEGAL_ADDRESS, "0x%llx is a %s object", (unsigned long long)object,
		      surface ? "texture" : "surface");
		return NULL;
	}
	return image;
}

/* What an instruction's geometry asks of the texture. */
static const struct ptx_image *find_texture(struct thread *t, const uint64_t *r, const struct insn *i,
					    const struct texel_access *x)
{
	const struct ptx_image *m = image_find(t, i, r[x->object], false);

	if (m && (m->rank != x->rank || m->layered != x->layered)) {
		fault(t, i, PTX_ILLEGAL_ADDRESS, "the texture has another geometry");
		return NULL;
	}
	return m;
}

static struct sample begin(struct thread *t, const uint64_t *r, const struct insn *i, const struct texel_access *x,
			   const struct ptx_image *m)
{
	struct sample s = { .thread = t, .insn = i, .image = m, .whole = x->whole };

	s.is_float = m->fractions || m->texel == PTX_F16 || m->texel == PTX_F32;
	if (x->layered)
		s.layer = (u32)r[x->layer];
	for (uint32_t k = 0; k < x->rank; k++) {
		s.index[k] = (s32)r[x->coordinates[k]];
		s.at[k] = get_f32(r[x->coordinates[k]]);
	}
	if (!x->whole && m->linear) {
		s.whole = true;
		s.index[0] = (s32)floorf(fmaxf(fminf(s.at[0], 0x1p30f), -0x1p30f));
	}
	return s;
}

/* The level of detail of two vectors of derivatives: the longer one, in texels. */
static float level_along(const uint64_t *r, const struct texel_access *x, const struct ptx_image *m)
{
	const uint32_t sizes[3] = { m->levels[0].width, m->levels[0].height, m->levels[0].depth };
	float longest = 0;

	for (int v = 0; v < 2; v++) {
		float sum = 0;

		for (uint32_t k = 0; k < x->rank; k++) {
			float d = get_f32(r[x->along[v][k]]) * (m->normalized ? (float)sizes[k] : 1);

			sum += d * d;
		}
		longest = fmaxf(longest, sqrtf(sum));
	}
	return log2f(longest);
}

static void put_results(uint64_t *r, const struct texel_access *x, const union texel *texel)
{
	for (int k = 0; k < 4; k++)
		r[x->results[k]] = texel->u[k];
	r[x->predicate] = 1; /* all is resident */
}

static HANDLER(run_tex)
{
	const struct texel_access *x = i->ext;
	const struct ptx_image *m = find_texture(t, r, i, x);
	union texel texel;
	struct sample s;
	float lod = 0;

	if (!m)
		return NULL;
	s = begin(t, r, i, x, m);
	if (x->leveled)
		lod = x->whole ? (float)(s32)r[x->lod] : get_f32(r[x->lod]);
	else if (x->graded)
		lod = level_along(r, x, m);
	if (!sample_texel(&s, lod, &texel))
		return NULL;
	put_results(r, x, &texel);
	return i + 1;
}

static HANDLER(run_tld4)
{
	const struct texel_access *x = i->ext;
	const struct ptx_image *m = find_texture(t, r, i, x);
	union texel texel;
	struct sample s;

	if (!m)
		return NULL;
	s = begin(t, r, i, x, m);
	if (!sample_gather(&s, x->component, &texel))
		return NULL;
	put_results(r, x, &texel);
	return i + 1;
}

/* .normalized_coords stands behind the sizes. */
static const char *const queries[] = { "width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords", NULL };

static HANDLER(run_txq)
{
	const struct ptx_image *m = image_find(t, i, r[i->a], i->flags);
	const struct ptx_level *l;

	if (!m)
		return NULL;
	l = &m->levels[0];
	const uint32_t answers[] = { l->width, m->rank > 1 ? l->height : 0, m->rank > 2 ? l->depth : 0,
				     m->layered ? l->depth : 0, m->n_levels, m->normalized };
	r[i->d] = answers[i->size];
	return i + 1;
}

/* ---- decoding */

bool access_take_rank(struct statement *s, struct texel_access *x)
{
	static const char *const geometries[] = { "1d", "2d", "3d", "a1d", "a2d", NULL };
	int n = take_one(s, geometries);

	x->rank = n < 3 ? (uint32_t)n + 1 : (uint32_t)n - 2;
	x->layered = n > 2;
	return n >= 0;
}

bool access_geometry(struct body *b, struct statement *s, uint32_t n, enum type coordinate, struct texel_access *x)
{
	const struct operand *o = &s->operands[n];
	struct operand object = *o;

	if (n >= s->n || o->kind != O_TEXEL)
		return false; /* a sampler of its own is not supported */
	if (o->base != O_REG || o->offset || o->n < x->rank + x->layered)
		bad_operand(b, s, n, "an object and its coordinates");
	object.kind = O_REG;
	x->object = operand_src(b, s, &object, T_B64, false);
	if (x->layered)
		x->layer = operand_src(b, s, &o->elements[0], T_B32, false);
	for (uint32_t k = 0; k < x->rank; k++)
		x->coordinates[k] = operand_src(b, s, &o->elements[x->layered + k], coordinate, false);
	return true;
}

/* Four results, and whether they are resident. */
static bool take_results(struct body *b, struct statement *s, struct texel_access *x, enum type type)
{
	const struct operand *v = &s->operands[0];

	if (!take(s, "v4") || (type != T_F32 && type != T_U32 && type != T_S32 && type != T_B32))
		return false;
	if (v->kind != O_VECTOR || v->n != 4)
		bad_operand(b, s, 0, "a vector of four");
	for (uint32_t k = 0; k < 4; k++)
		x->results[k] = operand_dst(b, s, &v->elements[k], type, false);
	x->predicate = dst_pair(b, s, 0);
	return true;
}

static bool take_vector(struct body *b, struct statement *s, uint32_t n, uint32_t rank, uint32_t slots[3])
{
	const struct operand *o = &s->operands[n];
	bool single = rank == 1 && o->kind != O_VECTOR;

	if (!single && (o->kind != O_VECTOR || o->n < rank))
		bad_operand(b, s, n, "a vector");
	for (uint32_t k = 0; k < rank; k++)
		slots[k] = operand_src(b, s, single ? o : &o->elements[k], T_F32, false);
	return true;
}

DECODER(tex)
{
	struct texel_access *x = arena_alloc(b->arena, sizeof *x);
	enum type type, coordinate;
	uint32_t extra;

	x->leveled = take(s, "level");
	x->graded = !x->leveled && take(s, "grad");
	if (!x->leveled && !x->graded)
		take(s, "base");
	if (!access_take_rank(s, x))
		return false;
	type = take_type(s);
	coordinate = take_type(s);
	x->whole = coordinate == T_S32;
	extra = x->leveled ? 1 : x->graded ? 2 : 0;
	if ((coordinate != T_F32 && !x->whole) || (x->graded && x->whole) || s->n != 2 + extra)
		return false; /* offsets and comparisons are not supported */
	if (!take_results(b, s, x, type) || !access_geometry(b, s, 1, coordinate, x))
		return false;
	if (x->leveled)
		x->lod = src(b, s, 2, coordinate);
	for (uint32_t v = 0; x->graded && v < 2; v++)
		take_vector(b, s, 2 + v, x->rank, x->along[v]);
	emit_visible(b, s, run_tex)->ext = x;
	return true;
}

DECODER(tld4)
{
	static const char *const components[] = { "r", "g", "b", "a", NULL };
	struct texel_access *x = arena_alloc(b->arena, sizeof *x);
	int component = take_one(s, components);
	enum type type;

	if (component < 0 || !access_take_rank(s, x) || x->rank != 2)
		return false;
	x->component = (uint32_t)component;
	type = take_type(s);
	if (take_type(s) != T_F32 || s->n != 2)
		return false;
	if (!take_results(b, s, x, type) || !access_geometry(b, s, 1, T_F32, x))
		return false;
	emit_visible(b, s, run_tld4)->ext = x;
	return true;
}

/* Variant 1 is suq. What else may be asked has numbers that only a language's header knows. */
DECODER(txq)
{
	int what = take_one(s, queries);
	struct insn *i;

	if (what < 0 || take_type(s) != T_B32 || (s->variant && what > 3))
		return false;
	operands(b, s, 2, 2);
	if (s->operands[1].kind != O_ADDRESS || s->operands[1].base != O_REG || s->operands[1].offset)
		return false;
	i = emit_visible(b, s, run_txq);
	address(b, s, 1, i);
	i->flags = (uint16_t)s->variant;
	i->size = (uint8_t)what;
	i->d = dst(b, s, 0, T_B32);
	return true;
}
