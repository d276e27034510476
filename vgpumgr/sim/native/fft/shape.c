/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be transformed: its types, sizes, and where its elements are. */
#include "fft.h"

/* What a plan may have in memory on one side, in elements: its sums stay numbers then. */
static const int64_t most = (int64_t)1 << 44;

bool ft_types(int type, struct ft_request *r)
{
	static const struct {
		int type, in, out;
	} types[] = { { FT_C2C, BL_C_32F, BL_C_32F }, { FT_R2C, BL_R_32F, BL_C_32F }, { FT_C2R, BL_C_32F, BL_R_32F },
		      { FT_Z2Z, BL_C_64F, BL_C_64F }, { FT_D2Z, BL_R_64F, BL_C_64F }, { FT_Z2D, BL_C_64F, BL_R_64F } };

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == type) {
			r->in_type = types[i].in;
			r->out_type = types[i].out;
			return true;
		}
	return false;
}

/* The complex type of the same precision; -1: there is none. */
static int complex_of(int type)
{
	switch (type) {
	case BL_R_32F: case BL_C_32F:
		return BL_C_32F;
	case BL_R_64F: case BL_C_64F:
		return BL_C_64F;
	case BL_R_16F: case BL_C_16F:
		return BL_C_16F;
	case BL_R_16BF: case BL_C_16BF:
		return BL_C_16BF;
	default:
		return -1;
	}
}

static bool types_fit(const struct ft_request *r)
{
	return complex_of(r->in_type) >= 0 && complex_of(r->in_type) == complex_of(r->out_type) &&
	       (bl_is_complex(r->in_type) || bl_is_complex(r->out_type));
}

int ft_shape_type(const struct ft_shape *s)
{
	bool wide = complex_of(s->in.type) == BL_C_64F;

	if (!wide && complex_of(s->in.type) != BL_C_32F)
		return 0;
	if (!bl_is_complex(s->in.type))
		return wide ? FT_D2Z : FT_R2C;
	if (!bl_is_complex(s->out.type))
		return wide ? FT_Z2D : FT_C2R;
	return wide ? FT_Z2Z : FT_C2C;
}

/* Halves have sizes that are powers of two. */
static int check_sizes(const struct ft_request *r)
{
	bool half = complex_of(r->in_type) == BL_C_16F || complex_of(r->in_type) == BL_C_16BF;
	int64_t all = r->batch;

	if (r->batch <= 0 || r->batch > most)
		return FT_INVALID_SIZE;
	for (int i = 0; i < r->rank; i++) {
		if (r->n[i] <= 0 || r->n[i] > most || (half && r->n[i] & (r->n[i] - 1)))
			return FT_INVALID_SIZE;
		if (__builtin_mul_overflow(all, r->n[i], &all) || all > most)
			return FT_INVALID_SIZE;
	}
	return FT_SUCCESS;
}

static void pack(struct ft_side *side)
{
	side->stride = 1;
	side->distance = side->sizes[0] * side->sizes[1] * side->sizes[2];
	for (int i = 0; i < FT_RANK; i++)
		side->embed[i] = side->sizes[i];
}

/* The last element's place must be a number, too. */
static bool extends(const struct ft_side *side, int64_t batch)
{
	__int128 last = (__int128)(side->sizes[0] - 1) * side->embed[1] + side->sizes[1] - 1;

	if (last > most)
		return false;
	last = last * side->embed[2] + side->sizes[2] - 1;
	return last <= most && last * side->stride <= most && (__int128)(batch - 1) * side->distance + last * side->stride <= most;
}

static int embed(struct ft_side *side, const struct ft_side *given, int rank, int64_t batch)
{
	int first = FT_RANK - rank;

	if (given->stride < 1 || given->stride > most || given->distance < 0 || given->distance > most)
		return FT_INVALID_VALUE;
	side->stride = given->stride;
	side->distance = given->distance;
	for (int i = 0; i < FT_RANK; i++) {
		side->embed[i] = i < first ? 1 : given->embed[i - first];
		if (i > first && (side->embed[i] < 1 || side->embed[i] > most))
			return FT_INVALID_VALUE;
	}
	return extends(side, batch) ? FT_SUCCESS : FT_INVALID_SIZE;
}

int ft_shape_make(const struct ft_request *r, struct ft_shape *s)
{
	int first = FT_RANK - r->rank, status;

	if (r->rank < 1 || r->rank > FT_RANK)
		return FT_INVALID_VALUE;
	if (!types_fit(r))
		return FT_INVALID_TYPE;
	status = check_sizes(r);
	if (status != FT_SUCCESS)
		return status;
	*s = (struct ft_shape){ .rank = r->rank, .batch = r->batch, .packed = !r->in_given || !r->out_given };
	for (int i = 0; i < FT_RANK; i++)
		s->n[i] = s->in.sizes[i] = s->out.sizes[i] = i < first ? 1 : r->n[i - first];
	s->in.type = r->in_type;
	s->out.type = r->out_type;
	if (!bl_is_complex(r->in_type))
		s->out.sizes[FT_RANK - 1] = s->n[FT_RANK - 1] / 2 + 1;
	if (!bl_is_complex(r->out_type))
		s->in.sizes[FT_RANK - 1] = s->n[FT_RANK - 1] / 2 + 1;
	pack(&s->in);
	pack(&s->out);
	if (s->packed)
		return FT_SUCCESS;
	status = embed(&s->in, &r->in, r->rank, r->batch);
	return status == FT_SUCCESS ? embed(&s->out, &r->out, r->rank, r->batch) : status;
}

static void pad(struct ft_side *side)
{
	if (bl_is_complex(side->type))
		return;
	side->embed[FT_RANK - 1] = (side->sizes[FT_RANK - 1] / 2 + 1) * 2;
	side->distance = side->sizes[0] * side->sizes[1] * side->embed[FT_RANK - 1];
}

void ft_shape_place(struct ft_shape *s, bool in_place)
{
	if (!s->packed || !in_place)
		return;
	pad(&s->in);
	pad(&s->out);
}

int64_t ft_side_index(const struct ft_side *s, int64_t batch, int64_t x, int64_t y, int64_t z)
{
	return batch * s->distance + ((x * s->embed[1] + y) * s->embed[2] + z) * s->stride;
}

int64_t ft_side_bytes(const struct ft_side *s, int64_t batch)
{
	return (ft_side_index(s, batch - 1, s->sizes[0] - 1, s->sizes[1] - 1, s->sizes[2] - 1) + 1) * (int64_t)bl_size(s->type);
}

/* Small powers of two need none; all else a copy. */
size_t ft_shape_area(const struct ft_shape *s)
{
	int64_t n = s->n[FT_RANK - 1];

	if (s->rank == 1 && n <= 4096 && !(n & (n - 1)))
		return 0;
	return (size_t)(s->batch * s->n[0] * s->n[1] * n) * bl_size(complex_of(s->in.type));
}
