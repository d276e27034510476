/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a texture answers for coordinates: CUDA C++ programming guide, "Texture Fetching". The weights of linear filtering
 * are of 8 fractional bits.
 */
#include "rounding.h"
#include "sample.h"

enum { REACH = 1 << 28 }; /* what lies farther out is as far out */

static bool read_channels(const struct sample *s, const uint8_t *at, union texel *out)
{
	const struct ptx_image *m = s->image;
	uint32_t bytes = ptx_texel_bytes(m->texel);

	for (uint32_t k = 0; k < m->channels; k++, at += bytes) {
		uint32_t raw = 0;

		memcpy(&raw, at, bytes);
		switch (m->texel) {
		case PTX_U8:
		case PTX_U16:
			if (m->fractions)
				out->f[k] = (float)raw / (float)(bytes == 1 ? UINT8_MAX : UINT16_MAX);
			else
				out->u[k] = raw;
			break;
		case PTX_S8:
		case PTX_S16: {
			s32 value = bytes == 1 ? (s8)raw : (s16)raw;

			if (m->fractions)
				out->f[k] = fmaxf((float)value / (float)(bytes == 1 ? INT8_MAX : INT16_MAX), -1.0f);
			else
				out->u[k] = (uint32_t)value;
			break;
		}
		case PTX_F16:
			out->f[k] = half_to_float((u16)raw);
			break;
		default:
			out->u[k] = raw;
		}
	}
	return true;
}

/* The texel's number in one dimension; false: it is outside, so it has the border's colour. */
static bool resolve(enum ptx_address mode, int32_t *index, uint32_t size)
{
	int32_t n = (int32_t)size, i = *index;

	switch (mode) {
	case PTX_WRAP:
		i %= n;
		*index = i < 0 ? i + n : i;
		return true;
	case PTX_MIRROR:
		i %= 2 * n;
		i = i < 0 ? i + 2 * n : i;
		*index = i < n ? i : 2 * n - 1 - i;
		return true;
	case PTX_BORDER:
		return i >= 0 && i < n;
	default:
		*index = i < 0 ? 0 : i < n ? i : n - 1;
		return true;
	}
}

static void put_border(const struct sample *s, union texel *out)
{
	for (int k = 0; k < 4; k++) {
		if (s->is_float)
			out->f[k] = s->image->border[k];
		else
			out->u[k] = (uint32_t)(int32_t)fmaxf(fminf(s->image->border[k], 0x1.fffffep+30f), -0x1p31f);
	}
}

/* Wrap and mirror exist for normalised coordinates only; with others they are clamp. */
static enum ptx_address address_mode(const struct sample *s, int dimension)
{
	enum ptx_address mode = s->image->address[dimension];

	return (mode == PTX_WRAP || mode == PTX_MIRROR) && (!s->image->normalized || s->whole) ? PTX_CLAMP : mode;
}

static bool read_texel(const struct sample *s, const struct ptx_level *l, const int32_t at[3], union texel *out)
{
	const struct ptx_image *m = s->image;
	const uint32_t sizes[3] = { l->width, l->height, l->depth };
	uint32_t bytes = m->channels * ptx_texel_bytes(m->texel);
	int32_t index[3] = { 0 };
	const uint8_t *memory;
	bool inside = true;

	*out = (union texel){ { 0 } };
	for (uint32_t k = 0; k < m->rank; k++) {
		index[k] = at[k];
		inside &= resolve(m->linear ? PTX_BORDER : address_mode(s, (int)k), &index[k], sizes[k]);
	}
	if (!inside) {
		if (!m->linear)
			put_border(s, out);
		return true;
	}
	if (m->layered)
		index[2] = (int32_t)(s->layer < l->depth ? s->layer : l->depth - 1);
	memory = reach_global(s->thread, s->insn,
			      l->base + (uint64_t)index[2] * l->slice + (uint64_t)index[1] * l->pitch + (uint64_t)index[0] * bytes,
			      bytes, false);
	return memory && read_channels(s, memory, out);
}

/* Where a coordinate lies among the texels. */
static float position(const struct sample *s, int dimension, uint32_t size)
{
	float x = s->at[dimension];

	if (!(x == x))
		x = 0;
	if (s->image->normalized && s->image->address[dimension] == PTX_WRAP)
		x -= floorf(x);
	if (s->image->normalized && s->image->address[dimension] == PTX_MIRROR)
		x = fmodf(x, 2); /* the texel's number is mirrored */
	if (s->image->normalized)
		x *= (float)size;
	return fmaxf(fminf(x, REACH), -REACH);
}

/* In 256ths, halves upwards, as an H200 does. */
static float round_weight(float weight)
{
	return floorf(weight * 256.0f + 0.5f) / 256.0f;
}

/* The lower one of the two texels in one dimension, and the upper one's weight. */
static int32_t lower(float position, float *weight)
{
	float from = position - 0.5f, below = floorf(from);

	*weight = round_weight(from - below);
	return (int32_t)below;
}

static bool point_of_level(const struct sample *s, const struct ptx_level *l, union texel *out)
{
	const uint32_t sizes[3] = { l->width, l->height, l->depth };
	int32_t at[3];

	for (int k = 0; k < 3; k++)
		at[k] = s->whole ? s->index[k] : (int32_t)floorf(position(s, k, sizes[k]));
	return read_texel(s, l, at, out);
}

static bool filter_level(const struct sample *s, const struct ptx_level *l, union texel *out)
{
	const uint32_t sizes[3] = { l->width, l->height, l->depth };
	uint32_t rank = s->image->rank;
	double sums[4] = { 0 };
	float weights[3] = { 0 };
	int32_t low[3] = { 0 };

	for (uint32_t k = 0; k < rank; k++)
		low[k] = lower(position(s, (int)k, sizes[k]), &weights[k]);
	for (uint32_t corner = 0; corner < 1u << rank; corner++) {
		int32_t at[3] = { 0 };
		double weight = 1;
		union texel texel;

		for (uint32_t k = 0; k < rank; k++) {
			bool up = corner >> k & 1;

			at[k] = low[k] + up;
			weight *= up ? (double)weights[k] : 1 - (double)weights[k];
		}
		if (weight == 0) /* not read: it may be infinite */
			continue;
		if (!read_texel(s, l, at, &texel))
			return false;
		for (int k = 0; k < 4; k++)
			sums[k] += weight * (double)texel.f[k];
	}
	for (int k = 0; k < 4; k++)
		out->f[k] = (float)sums[k];
	return true;
}

static bool sample_level(const struct sample *s, uint32_t level, union texel *out)
{
	const struct ptx_level *l = &s->image->levels[level];

	return s->image->filtered && s->is_float && !s->whole && !s->image->linear ? filter_level(s, l, out) :
										      point_of_level(s, l, out);
}

bool sample_texel(const struct sample *s, float lod, union texel *out)
{
	const struct ptx_image *m = s->image;
	float last = (float)(m->n_levels - 1), weight;
	union texel upper;
	uint32_t level;

	if (m->n_levels == 1)
		return sample_level(s, 0, out);
	lod = fmaxf(fminf(lod + m->bias, m->most), m->least);
	lod = fmaxf(fminf(lod == lod ? lod : 0, last), 0);
	if (!m->between_levels || !s->is_float)
		return sample_level(s, (uint32_t)floorf(lod + 0.5f), out);
	level = (uint32_t)floorf(lod);
	weight = round_weight(lod - floorf(lod));
	if (!sample_level(s, level, out))
		return false;
	if (weight == 0)
		return true;
	if (!sample_level(s, level + 1, &upper))
		return false;
	for (int k = 0; k < 4; k++)
		out->f[k] = (float)((1 - (double)weight) * (double)out->f[k] + (double)weight * (double)upper.f[k]);
	return true;
}

/* Counter-clockwise from the lower left one of the four that a filter would use. */
bool sample_gather(const struct sample *s, uint32_t component, union texel *out)
{
	static const int32_t corners[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };
	const struct ptx_level *l = &s->image->levels[0];
	union texel texel;
	float unused;

	for (int k = 0; k < 4; k++) {
		int32_t at[3] = { lower(position(s, 0, l->width), &unused) + corners[k][0],
				  lower(position(s, 1, l->height), &unused) + corners[k][1], 0 };

		if (!read_texel(s, l, at, &texel))
			return false;
		out->u[k] = texel.u[component];
	}
	return true;
}
