/* SPDX-License-Identifier: Apache-2.0 */
/* setp of pairs of f16 and bf16, and set whose result is of these types or of one half for each of a pair. */
#include "rounding.h"

enum { OF_BF16 = 0x1000, OF_PAIR = 0x2000, AS_ONE = 0x4000, AS_WORD = 0x8000 };
enum { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_ };
static const char *const names[] = { "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", NULL };

static float value(u64 cell, uint32_t n, uint32_t flags)
{
	u16 bits = (u16)(cell >> 16 * n), exponent = flags & OF_BF16 ? 0x7f80 : 0x7c00;

	if (flags & FLAG_FTZ && !(bits & exponent))
		bits &= 0x8000;
	return flags & OF_BF16 ? get_f32((u64)bits << 16) : half_to_float(bits);
}

static bool holds(const struct insn *i, const uint64_t *r, uint32_t n)
{
	float a = value(r[i->a], n, i->flags), b = value(r[i->b], n, i->flags);
	const bool ordered[] = { a == b, islessgreater(a, b), isless(a, b), islessequal(a, b), isgreater(a, b), isgreaterequal(a, b) };

	if (i->imm == NUM || i->imm == NAN_)
		return isunordered(a, b) == (i->imm == NAN_);
	return i->imm < EQU ? ordered[i->imm] : isunordered(a, b) || ordered[i->imm - EQU];
}

static u32 result(const struct insn *i, bool yes)
{
	u32 one = !(i->flags & AS_ONE) ? i->flags & AS_WORD ? 0xffffffff : 0xffff : i->flags & OF_BF16 ? 0x3f80 : 0x3c00;

	return yes ? one : 0;
}

OP(set_half, u32 out = result(i, holds(i, r, 0)); if (i->flags & OF_PAIR) out |= result(i, holds(i, r, 1)) << 16; r[i->d] = out)
OP(setp_pair, bool low = holds(i, r, 0); r[i->c] = holds(i, r, 1); r[i->d] = low)

static bool emit_compare(struct body *b, struct statement *s, handler *run, enum type type, uint32_t flags, uint32_t d, uint32_t c)
{
	int comparison = take_one(s, names);
	struct insn *i;
	uint32_t x, y;

	if (take(s, "ftz"))
		flags |= FLAG_FTZ;
	if (comparison < 0 || !all_taken(s) || (flags & FLAG_FTZ && flags & OF_BF16))
		return false;
	operands(b, s, 3, 3);
	x = src(b, s, 1, type);
	y = src(b, s, 2, type);
	i = emit(b, s, run);
	i->a = x;
	i->b = y;
	i->c = c;
	i->d = d;
	i->flags = (uint16_t)flags;
	i->imm = (uint64_t)comparison;
	return true;
}

static bool is_half(enum type type)
{
	return type == T_F16 || type == T_BF16;
}

static bool is_pair(enum type type)
{
	return type == T_F16X2 || type == T_BF16X2;
}

static uint32_t brain(enum type type)
{
	return type == T_BF16 || type == T_BF16X2 ? OF_BF16 : 0;
}

bool decode_set_half(struct body *b, struct statement *s, enum type to, enum type type)
{
	uint32_t flags = brain(type), size = type_size(to);

	if (to == type)
		flags |= AS_ONE;
	else if (is_pair(type) ? size != 4 : size != 4 && size != 2)
		return false;
	else if (is_half(type) && size == 4)
		flags |= AS_WORD;
	flags |= is_pair(type) ? OF_PAIR : 0;
	operands(b, s, 3, 3);
	return emit_compare(b, s, set_half, type, flags, dst(b, s, 0, to), b->sink);
}

bool decode_setp_pair(struct body *b, struct statement *s, enum type type)
{
	operands(b, s, 3, 3);
	return emit_compare(b, s, setp_pair, type, OF_PAIR | brain(type), dst(b, s, 0, T_PRED), dst_pair(b, s, 0));
}
