/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Video instructions: vadd to vset on one value, on two halves or on four bytes of a register (PTX ISA 9.7.18 and 9.7.19).
 * Values are extended to 64 bits first, so that nothing overflows before the result is saturated or cut off.
 */
#include "ops.h"

enum video { V_ADD, V_SUB, V_ABSDIFF, V_MIN, V_MAX, V_AVRG, V_SET, V_SHL, V_SHR, V_MAD };
enum second { SECOND_NONE, SECOND_ADD, SECOND_MIN, SECOND_MAX, SECOND_MERGE };
enum compare { C_EQ, C_NE, C_LT, C_LE, C_GT, C_GE };

struct video_form {
	enum video op;
	enum second second;
	enum compare compare;
	uint32_t parts; /* 1, 2 or 4 */
	bool d_signed, a_signed, b_signed, saturate, wrap;
	uint32_t shift;    /* of vmad's result */
	uint8_t selected[3]; /* of d, a and b: enum selector */
};

static int64_t extend(uint64_t v, uint32_t bits, bool is_signed)
{
	uint32_t shift = 64 - bits;

	return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)(v << shift >> shift);
}

static uint32_t selector_bits(enum selector n)
{
	return n == SELECT_ALL ? 32 : n >= SELECT_H0 ? 16 : 8;
}

static uint32_t selector_shift(enum selector n)
{
	return n == SELECT_ALL ? 0 : n >= SELECT_H0 ? 16u * (n - SELECT_H0) : 8u * (n - SELECT_B0);
}

static int64_t selected(const struct video_form *f, int operand, uint64_t cell, bool is_signed)
{
	enum selector n = f->selected[operand];

	return extend((u32)cell >> selector_shift(n), selector_bits(n), is_signed);
}

static bool compare(enum compare c, int64_t a, int64_t b)
{
	const bool results[] = { a == b, a != b, a < b, a <= b, a > b, a >= b };

	return results[c];
}

static int64_t combine(const struct video_form *f, int64_t a, int64_t b, int64_t c)
{
	uint32_t n = f->wrap ? b & 31 : b > 32 ? 32 : (uint32_t)b;

	switch (f->op) {
	case V_ADD:
		return a + b;
	case V_SUB:
		return a - b;
	case V_ABSDIFF:
		return a > b ? a - b : b - a;
	case V_MIN:
		return a < b ? a : b;
	case V_MAX:
		return a > b ? a : b;
	case V_AVRG:
		return (a + b + (a + b >= 0)) >> 1;
	case V_SET:
		return compare(f->compare, a, b);
	case V_SHL:
		return (int64_t)((uint64_t)a << n);
	case V_SHR:
		return a >> n;
	default:
		return (a * b + c) >> f->shift;
	}
}

static int64_t clamp(int64_t v, uint32_t bits, bool is_signed)
{
	int64_t most = ((int64_t)1 << (bits - is_signed)) - 1, least = is_signed ? -most - 1 : 0;

	return v < least ? least : v > most ? most : v;
}

OP(video_scalar, const struct video_form *f = i->ext; int64_t a = selected(f, 1, r[i->a], f->a_signed);
   int64_t b = selected(f, 2, r[i->b], f->b_signed); int64_t c = extend(r[i->c], 32, f->d_signed);
   uint32_t bits = selector_bits(f->selected[0]); u32 mask = (u32)(((u64)1 << bits) - 1);
   uint32_t shift = selector_shift(f->selected[0]); int64_t v = combine(f, a, b, c);
   if (f->saturate) v = clamp(v, bits, f->d_signed); u32 x = (u32)v;
   int64_t y = extend(x, 32, f->d_signed);
   switch (f->second) {
	case SECOND_ADD: x += (u32)c; break;
	case SECOND_MIN: x = (u32)(y < c ? y : c); break;
	case SECOND_MAX: x = (u32)(y > c ? y : c); break;
	case SECOND_MERGE: x = ((u32)r[i->c] & ~(mask << shift)) | (x & mask) << shift; break;
	default: break;
   } r[i->d] = x)

/* Without .add the parts are put together; a mask would choose others of c. */
OP(video_simd, const struct video_form *f = i->ext; uint32_t bits = 32 / f->parts; u32 out = f->second ? (u32)r[i->c] : 0;
   for (uint32_t k = 0; k < 32; k += bits) {
	int64_t v = combine(f, extend(r[i->a] >> k, bits, f->a_signed), extend(r[i->b] >> k, bits, f->b_signed), 0);
	if (f->saturate)
		v = clamp(v, bits, f->d_signed);
	out += f->second ? (u32)v : (u32)((u64)v & (((u64)1 << bits) - 1)) << k;
   } r[i->d] = out)

static bool take_number(struct statement *s, bool *is_signed)
{
	enum type type = take_type(s);

	*is_signed = type == T_S32;
	return type == T_S32 || type == T_U32;
}

static bool take_form(struct statement *s, struct video_form *f)
{
	static const char *const compares[] = { "eq", "ne", "lt", "le", "gt", "ge", NULL };
	static const char *const seconds[] = { "add", "min", "max", NULL };
	int n;

	if (f->op == V_SET) {
		n = take_one(s, compares);
		f->compare = (enum compare)n;
		if (n < 0)
			return false;
	} else if (!take_number(s, &f->d_signed)) {
		return false;
	}
	if (!take_number(s, &f->a_signed) || !take_number(s, &f->b_signed))
		return false;
	if (f->op == V_SHL || f->op == V_SHR) {
		f->wrap = take(s, "wrap");
		if ((!f->wrap && !take(s, "clamp")) || f->b_signed)
			return false;
	}
	if (f->op == V_MAD)
		f->shift = take(s, "shr7") ? 7 : take(s, "shr15") ? 15 : 0;
	if (f->op != V_SET)
		f->saturate = take(s, "sat");
	if (f->op == V_MAD)
		return true;
	n = f->parts == 1 ? take_one(s, seconds) : take(s, "add") ? 0 : -1;
	f->second = (enum second)(n + 1);
	return true;
}

static uint32_t source(struct body *b, struct statement *s, uint32_t n, struct video_form *f)
{
	f->selected[n] = (uint8_t)s->operands[n].selector;
	s->operands[n].selector = SELECT_ALL;
	if (f->selected[n] != SELECT_ALL && f->parts > 1)
		bad_operand(b, s, n, "a register without a selector");
	return src(b, s, n, T_B32);
}

/* variant: the operation, and 16 or 32 for two or four parts */
DECODER(video)
{
	struct video_form *f = arena_alloc(b->arena, sizeof *f);
	uint32_t least, a, c = 0, d;
	bool merge;
	struct insn *i;

	f->op = (enum video)(s->variant & 15);
	f->parts = s->variant & 16 ? 2 : s->variant & 32 ? 4 : 1;
	if (!take_form(s, f) || !all_taken(s))
		return false;
	operands(b, s, 3, 4);
	merge = s->operands[0].selector != SELECT_ALL;
	least = f->parts > 1 || f->second || merge || f->op == V_MAD ? 4 : 3;
	operands(b, s, least, least);
	if (merge && (f->parts > 1 || f->second || f->op == V_MAD))
		bad_operand(b, s, 0, "a register without a selector");
	f->selected[0] = (uint8_t)s->operands[0].selector;
	s->operands[0].selector = SELECT_ALL;
	if (merge)
		f->second = SECOND_MERGE;
	a = source(b, s, 1, f);
	if (s->n == 4)
		c = src(b, s, 3, T_B32);
	d = dst(b, s, 0, T_B32);
	least = source(b, s, 2, f);
	i = emit(b, s, f->parts > 1 ? video_simd : video_scalar);
	i->a = a;
	i->b = least;
	i->c = c;
	i->d = d;
	i->ext = f;
	return true;
}
