/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions on bits. */
#include "ops.h"

PURE(and, r[i->d] = r[i->a] & r[i->b])
PURE(or, r[i->d] = r[i->a] | r[i->b])
PURE(xor, r[i->d] = r[i->a] ^ r[i->b])
PURE(not_bits, r[i->d] = ~r[i->a])
OP(cnot_u16, r[i->d] = !(u16)r[i->a])
OP(cnot_u32, r[i->d] = !(u32)r[i->a])
OP(cnot_u64, r[i->d] = !r[i->a])

/* Shift counts are 32 bits, and clamp at the width. */
#define SHIFTS(T, ST, N)                                                                                             \
	PURE(shl_##T, u32 n = (u32)r[i->b]; r[i->d] = n < N ? (u64)(T)r[i->a] << n : 0)                                \
	PURE(shr_##T, u32 n = (u32)r[i->b]; r[i->d] = n < N ? (T)r[i->a] >> n : 0)                                     \
	PURE(shr_##ST, u32 n = (u32)r[i->b]; r[i->d] = (u64)((ST)r[i->a] >> (n < N ? n : N - 1)))
SHIFTS(u16, s16, 16)
SHIFTS(u32, s32, 32)
SHIFTS(u64, s64, 64)

PURE(shf_l_clamp, u32 n = (u32)r[i->c]; u64 v = r[i->b] << 32 | (u32)r[i->a]; r[i->d] = (u32)(v << (n < 32 ? n : 32) >> 32))
PURE(shf_l_wrap, u32 n = (u32)r[i->c] & 31; u64 v = r[i->b] << 32 | (u32)r[i->a]; r[i->d] = (u32)(v << n >> 32))
PURE(shf_r_clamp, u32 n = (u32)r[i->c]; u64 v = r[i->b] << 32 | (u32)r[i->a]; r[i->d] = (u32)(v >> (n < 32 ? n : 32)))
PURE(shf_r_wrap, u32 n = (u32)r[i->c] & 31; u64 v = r[i->b] << 32 | (u32)r[i->a]; r[i->d] = (u32)(v >> n))

PURE(lop3, u32 a = (u32)r[i->a]; u32 b = (u32)r[i->b]; u32 c = (u32)r[i->c]; u32 out = 0;
   if (i->imm & 1) out |= ~a & ~b & ~c; if (i->imm & 2) out |= ~a & ~b & c;
   if (i->imm & 4) out |= ~a & b & ~c; if (i->imm & 8) out |= ~a & b & c;
   if (i->imm & 16) out |= a & ~b & ~c; if (i->imm & 32) out |= a & ~b & c;
   if (i->imm & 64) out |= a & b & ~c; if (i->imm & 128) out |= a & b & c; r[i->d] = out)

PURE(popc_32, r[i->d] = (u64)__builtin_popcount((u32)r[i->a]))
OP(popc_64, r[i->d] = (u64)__builtin_popcountll(r[i->a]))
OP(clz_32, u32 a = (u32)r[i->a]; r[i->d] = a ? (u64)__builtin_clz(a) : 32)
OP(clz_64, u64 a = r[i->a]; r[i->d] = a ? (u64)__builtin_clzll(a) : 64)

static u64 reverse(u64 v)
{
	v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
	v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
	v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
	return __builtin_bswap64(v);
}
OP(brev_32, r[i->d] = reverse(r[i->a]) >> 32)
OP(brev_64, r[i->d] = reverse(r[i->a]))

/* Position of the highest bit that is no sign bit; flags 1: as a shift amount. */
static u64 find_bit(u64 v, int width, bool shift)
{
	int at = v ? 63 - __builtin_clzll(v) : -1;

	return at < 0 ? 0xffffffff : (u64)(shift ? width - 1 - at : at);
}
OP(bfind_u32, r[i->d] = find_bit((u32)r[i->a], 32, i->flags))
OP(bfind_s32, s32 a = (s32)r[i->a]; r[i->d] = find_bit((u32)(a < 0 ? ~a : a), 32, i->flags))
OP(bfind_u64, r[i->d] = find_bit(r[i->a], 64, i->flags))
OP(bfind_s64, s64 a = (s64)r[i->a]; r[i->d] = find_bit((u64)(a < 0 ? ~a : a), 64, i->flags))

static u64 extract(u64 v, u32 pos, u32 len, int width, bool is_signed)
{
	u64 mask = len >= 64 ? ~(u64)0 : ((u64)1 << len) - 1, sign;

	if (!len)
		return 0;
	sign = (u64)pos + len - 1 < (u64)width - 1 ? pos + len - 1 : (u64)width - 1;
	sign = is_signed ? v >> sign & 1 : 0;
	v = pos >= (u32)width ? 0 : v >> pos;
	if (sign) { /* what lies beyond the value is copies of its sign */
		if (pos >= (u32)width)
			v = ~(u64)0;
		else if (pos)
			v |= ~(u64)0 << (width - (int)pos);
		return (v & mask) | ~mask;
	}
	return v & mask;
}
PURE(bfe_u32, r[i->d] = extract((u32)r[i->a], r[i->b] & 255, r[i->c] & 255, 32, false))
PURE(bfe_s32, r[i->d] = extract((u32)r[i->a], r[i->b] & 255, r[i->c] & 255, 32, true))
OP(bfe_u64, r[i->d] = extract(r[i->a], r[i->b] & 255, r[i->c] & 255, 64, false))
OP(bfe_s64, r[i->d] = extract(r[i->a], r[i->b] & 255, r[i->c] & 255, 64, true))

static u64 insert(u64 from, u64 into, u32 pos, u32 len, u32 width)
{
	u64 mask;

	if (pos >= width || !len)
		return into;
	mask = (len >= 64 ? ~(u64)0 : ((u64)1 << len) - 1) << pos;
	return (into & ~mask) | (from << pos & mask);
}
OP(bfi_32, r[i->d] = (u32)insert((u32)r[i->a], (u32)r[i->b], r[i->c] & 255, r[i->imm] & 255, 32))
OP(bfi_64, r[i->d] = insert(r[i->a], r[i->b], r[i->c] & 255, r[i->imm] & 255, 64))

static u32 pick(u64 bytes, u32 selector)
{
	u32 byte = (u32)(bytes >> 8 * (selector & 7)) & 255;

	return selector & 8 ? (byte & 128 ? 255 : 0) : byte;
}
PURE(prmt, u64 v = r[i->b] << 32 | (u32)r[i->a]; u32 c = (u32)r[i->c]; u32 out = 0;
   for (int k = 0; k < 4; k++) out |= pick(v, c >> 4 * k & 15) << 8 * k; r[i->d] = out)
/* flags: which of the special modes, in PTX's order from f4e on */
static u32 permute_selector(u32 mode, u32 n)
{
	static const u16 table[6][4] = {
		{ 0x3210, 0x4321, 0x5432, 0x6543 }, { 0x5670, 0x6701, 0x7012, 0x0123 },
		{ 0x0000, 0x1111, 0x2222, 0x3333 }, { 0x3210, 0x3211, 0x3222, 0x3333 },
		{ 0x0000, 0x1110, 0x2210, 0x3210 }, { 0x1010, 0x3232, 0x1010, 0x3232 },
	};

	return table[mode][n & 3];
}
OP(prmt_mode, u64 v = r[i->b] << 32 | (u32)r[i->a]; u32 c = permute_selector(i->flags, (u32)r[i->c]); u32 out = 0;
   for (int k = 0; k < 4; k++) out |= pick(v, c >> 4 * k & 15) << 8 * k; r[i->d] = out)

/* The offset-th set bit from `base` on, upwards or downwards. */
static u32 find_nth(u32 mask, u32 base, s32 offset)
{
	s32 at = (s32)base, step = offset < 0 ? -1 : 1;
	s64 left = offset < 0 ? -(s64)offset : offset;

	if (offset == INT32_MIN)
		return 0; /* as an H200 answers */
	if (base > 31)
		return 0xffffffff;
	if (!offset)
		return mask >> base & 1 ? base : 0xffffffff;
	for (; at >= 0 && at < 32; at += step)
		if ((mask >> at & 1) && !--left)
			return (u32)at;
	return 0xffffffff;
}
OP(fns, r[i->d] = find_nth((u32)r[i->a], (u32)r[i->b], (s32)r[i->c]))

/* Sign- or zero-extend from bit `n` on; flags: 1 signed, 2 clamp. */
OP(szext, u32 a = (u32)r[i->a]; u32 n = (u32)r[i->b]; if (!(i->flags & 2)) n &= 31;
   r[i->d] = n >= 32 ? a : !n ? 0 : i->flags & 1 ? (u32)((s32)(a << (32 - n)) >> (32 - n)) : a & ((1u << n) - 1))
OP(bmsk, u32 a = (u32)r[i->a]; u32 n = (u32)r[i->b]; if (!i->flags) a &= 31, n &= 31;
   r[i->d] = a >= 32 || !n ? 0 : (n >= 32 ? 0xffffffffu : (1u << n) - 1) << a)

static bool is_bits(enum type type)
{
	return type == T_PRED || (type >= T_B16 && type <= T_B64);
}

DECODER(logic)
{
	static handler *const table[] = { and, or, xor };
	enum type type = take_type(s);
	uint32_t a, c;
	struct insn *i;

	if (!is_bits(type))
		return false;
	if (type != T_PRED)
		return emit_simple(b, s, table[s->variant], type, 2);
	operands(b, s, 3, 3);
	a = src_predicate(b, s, 1);
	c = src_predicate(b, s, 2);
	i = emit(b, s, table[s->variant]);
	i->a = a;
	i->b = c;
	i->d = dst(b, s, 0, type);
	return true;
}

DECODER(not)
{
	enum type type = take_type(s);

	if (!is_bits(type))
		return false;
	return emit_simple(b, s, type == T_PRED ? run_not_predicate : not_bits, type, 1);
}

DECODER(cnot)
{
	static handler *const table[T_COUNT] = { BITS_TABLE(cnot) };
	enum type type = take_type(s);

	return emit_simple(b, s, table[type], type, 1);
}

DECODER(shift)
{
	static handler *const table[2][T_COUNT] = { { BITS_TABLE(shl) }, { BITS_TABLE(shr), INTEGER_TABLE(shr) } };
	enum type type = take_type(s);
	handler *run = table[s->variant][type];
	struct insn *i;

	if (!run)
		return false;
	operands(b, s, 3, 3);
	i = emit(b, s, run);
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, T_U32);
	i->d = dst(b, s, 0, type);
	return true;
}

DECODER(funnel)
{
	static const char *const directions[] = { "l", "r", NULL }, *const modes[] = { "clamp", "wrap", NULL };
	static handler *const table[2][2] = { { shf_l_clamp, shf_l_wrap }, { shf_r_clamp, shf_r_wrap } };
	int direction = take_one(s, directions), mode = take_one(s, modes);

	if (direction < 0 || mode < 0 || take_type(s) != T_B32)
		return false;
	return emit_simple(b, s, table[direction][mode], T_B32, 3);
}

/* The table's bit stays in the instruction before: here a is its result, b the predicate; flags: .or, else .and */
OP(lop3_predicate, bool some = (u32)r[i->a]; bool q = r[i->b] & 1; r[i->d] = i->flags ? some || q : some && q)

/* lop3{.or,.and}.b32 d{|p}, a, b, c, table{, q} */
DECODER(lop3)
{
	bool either = take(s, "or"), with = either || take(s, "and");
	uint32_t q = 0, p = 0, d;
	struct insn *i;

	if (take_type(s) != T_B32)
		return false;
	operands(b, s, 5 + with, 5 + with);
	if (with) {
		q = src_predicate(b, s, 5);
		p = dst_pair(b, s, 0);
	}
	if (s->operands[4].kind != O_INT || s->operands[4].bits > 255)
		bad_operand(b, s, 4, "a table of eight bits");
	s->n = 4;
	if (!emit_simple(b, s, lop3, T_B32, 3))
		return false;
	i = &b->function->code[b->function->n_code - 1];
	i->imm = s->operands[4].bits;
	d = i->d;
	if (!with)
		return true;
	i = emit(b, s, lop3_predicate);
	i->a = d;
	i->b = q;
	i->d = p;
	i->flags = either;
	return true;
}

/* popc, clz, bfind, brev */
DECODER(count)
{
	static handler *const table[4][T_COUNT] = {
		{ [T_B32] = popc_32, [T_B64] = popc_64 },
		{ [T_B32] = clz_32, [T_B64] = clz_64 },
		{ [T_U32] = bfind_u32, [T_S32] = bfind_s32, [T_U64] = bfind_u64, [T_S64] = bfind_s64 },
		{ [T_B32] = brev_32, [T_B64] = brev_64 },
	};
	enum type type = take_type(s);
	handler *run = table[s->variant][type];
	struct insn *i;

	if (!run)
		return false;
	operands(b, s, 2, 2);
	i = emit(b, s, run);
	i->a = src(b, s, 1, type);
	i->d = dst(b, s, 0, s->variant == 3 ? type : T_U32);
	i->flags = s->variant == 2 && take(s, "shiftamt");
	return true;
}

DECODER(bitfield)
{
	static handler *const table[2][T_COUNT] = {
		{ [T_U32] = bfe_u32, [T_S32] = bfe_s32, [T_U64] = bfe_u64, [T_S64] = bfe_s64 },
		{ [T_B32] = bfi_32, [T_B64] = bfi_64 },
	};
	enum type type = take_type(s);
	handler *run = table[s->variant][type];
	struct insn *i;

	if (!run)
		return false;
	operands(b, s, 4 + s->variant, 4 + s->variant);
	i = emit(b, s, run);
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, s->variant ? type : T_U32);
	i->c = src(b, s, 3, T_U32);
	if (s->variant)
		i->imm = src(b, s, 4, T_U32);
	i->d = dst(b, s, 0, type);
	return true;
}

DECODER(permute)
{
	static const char *const modes[] = { "f4e", "b4e", "rc8", "ecl", "ecr", "rc16", NULL };
	int mode = take_one(s, modes);

	if (take_type(s) != T_B32 || !emit_simple(b, s, mode < 0 ? prmt : prmt_mode, T_B32, 3))
		return false;
	b->function->code[b->function->n_code - 1].flags = (uint16_t)(mode < 0 ? 0 : mode);
	return true;
}

DECODER(fns)
{
	return take_type(s) == T_B32 && emit_simple(b, s, fns, T_B32, 3);
}

DECODER(szext)
{
	static const char *const modes[] = { "wrap", "clamp", NULL };
	int mode = take_one(s, modes);
	enum type type = take_type(s);

	if (mode < 0 || (type != T_U32 && type != T_S32) || !emit_simple(b, s, szext, type, 2))
		return false;
	b->function->code[b->function->n_code - 1].flags = (uint16_t)((type == T_S32) | mode << 1);
	return true;
}

DECODER(bmsk)
{
	static const char *const modes[] = { "wrap", "clamp", NULL };
	int mode = take_one(s, modes);

	if (mode < 0 || take_type(s) != T_B32 || !emit_simple(b, s, bmsk, T_B32, 2))
		return false;
	b->function->code[b->function->n_code - 1].flags = (uint16_t)mode;
	return true;
}
