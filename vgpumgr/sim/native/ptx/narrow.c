/* SPDX-License-Identifier: Apache-2.0 */
/* cvt to and from tf32 and the 8-bit floating-point formats, and cvt.pack. */
#include "matrix.h"

enum { TO_E5M2 = 0x1000, FROM_BF16 = 0x2000, TF32_AWAY = 0x4000, TF32_FINITE = 0x8000 };

/* tf32 is an f32 whose lowest 13 bits are zero. */
static u64 to_tf32(u64 cell, uint32_t flags)
{
	u32 bits = (u32)cell, sign = bits & 0x80000000, up;

	bits ^= sign;
	if (bits > 0x7f800000)
		return 0x7fffffff;
	if (flags & FLAG_RELU && sign)
		return 0;
	up = flags & TF32_AWAY ? 0x1000 : flag_rounding(flags & 0x3ff) == ROUND_RZ ? 0 : 0xfff + (bits >> 13 & 1);
	bits = (bits + up) & ~0x1fffu;
	if (bits >= 0x7f800000)
		bits = flags & TF32_FINITE ? 0x7f7fe000 : 0x7f800000;
	return bits | sign;
}

static u32 to_fp8(float v, uint32_t flags)
{
	if (flags & FLAG_RELU && v <= 0)
		v = 0;
	return encode_fp8((long double)v, flags & TO_E5M2);
}

static float half_of(u64 cell, uint32_t n, uint32_t flags)
{
	u16 bits = (u16)(cell >> 16 * n);

	return flags & FROM_BF16 ? get_f32((u64)bits << 16) : half_to_float(bits);
}

static u32 from_fp8(u64 cell, uint32_t n, uint32_t flags)
{
	float v = fp8_to_float((u8)(cell >> 8 * n), flags & TO_E5M2);

	if (flags & FLAG_RELU && v <= 0)
		v = 0;
	return flags & FROM_BF16 ? encode_bfloat((long double)v, ROUND_RN) : encode_half((long double)v, ROUND_RN);
}

OP(f32_to_tf32, r[i->d] = to_tf32(r[i->a], i->flags))
OP(f32_to_fp8, r[i->d] = to_fp8(get_f32(r[i->a]), i->flags) << 8 | to_fp8(get_f32(r[i->b]), i->flags))
OP(half_to_fp8, r[i->d] = to_fp8(half_of(r[i->a], 1, i->flags), i->flags) << 8 | to_fp8(half_of(r[i->a], 0, i->flags), i->flags))
OP(fp8_to_half, r[i->d] = from_fp8(r[i->a], 1, i->flags) << 16 | from_fp8(r[i->a], 0, i->flags))

static uint16_t take_relu(struct statement *s)
{
	return take(s, "relu") ? FLAG_RELU : 0;
}

/* cvt.{rna,rn,rz}{.satfinite}{.relu}.tf32.f32 */
static bool decode_tf32(struct body *b, struct statement *s)
{
	bool away = take(s, "rna");
	uint16_t flags = away ? TF32_AWAY : take(s, "rz") ? ROUND_RZ << FLAG_ROUND_SHIFT : 0;

	if ((!flags && !take(s, "rn")) || !take(s, "f32"))
		return false;
	flags |= take(s, "satfinite") ? TF32_FINITE : 0;
	flags |= away ? 0 : take_relu(s);
	if (!emit_simple(b, s, f32_to_tf32, T_B32, 1))
		return false;
	b->function->code[b->function->n_code - 1].flags = flags;
	return true;
}

/* The name of the format comes first or last: `to` says that it is the destination. */
static bool decode_fp8(struct body *b, struct statement *s, bool e5m2, bool to)
{
	uint16_t flags = e5m2 ? TO_E5M2 : 0;
	bool single = to && take(s, "f32");
	struct insn *i;

	if (!single && take(s, "bf16x2"))
		flags |= FROM_BF16;
	else if (!single && !take(s, "f16x2"))
		return false;
	flags |= take_relu(s);
	if (!take(s, "rn") || (to && !take(s, "satfinite")) || !all_taken(s))
		return false;
	operands(b, s, single ? 3 : 2, single ? 3 : 2);
	i = emit(b, s, single ? f32_to_fp8 : to ? half_to_fp8 : fp8_to_half);
	i->flags = flags;
	i->a = src(b, s, 1, to ? T_B32 : T_B16);
	i->b = single ? src(b, s, 2, T_B32) : 0;
	i->d = dst(b, s, 0, to ? T_B16 : T_B32);
	return true;
}

/* d = a, then b, then c's low bits, from the lowest bit on: b, a, c. flags: bits, 64: signed */
enum { PACK_SIGNED = 64 };
static u32 saturate(u64 cell, uint32_t flags)
{
	uint32_t bits = flags & (PACK_SIGNED - 1);
	s64 v = (s32)cell, most = flags & PACK_SIGNED ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
	s64 least = flags & PACK_SIGNED ? -most - 1 : 0;

	return (u32)(v < least ? least : v > most ? most : v) & ((1u << bits) - 1);
}
OP(pack, uint32_t bits = i->flags & (PACK_SIGNED - 1);
   r[i->d] = (u32)(r[i->c] << 2 * bits) | saturate(r[i->a], i->flags) << bits | saturate(r[i->b], i->flags))

/* cvt.pack.sat.{u16,s16}.s32 d, a, b; cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32 d, a, b, c */
static bool decode_pack(struct body *b, struct statement *s)
{
	static const char *const names[] = { "u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2", NULL };
	static const uint16_t bits[] = { 16, 16, 8, 8, 4, 4, 2, 2 };
	int n = take_one(s, names);
	struct insn *i;
	bool third = n > 1;

	if (n < 0 || !take(s, "sat") || !take(s, "s32") || (third && !take(s, "b32")) || !all_taken(s))
		return false;
	operands(b, s, third ? 4 : 3, third ? 4 : 3);
	i = emit(b, s, pack);
	i->flags = (uint16_t)(bits[n] | (n & 1 ? PACK_SIGNED : 0));
	i->a = src(b, s, 1, T_S32);
	i->b = src(b, s, 2, T_S32);
	i->c = third ? src(b, s, 3, T_B32) : slot_const(b, INIT_VALUE, 0, NULL);
	i->d = dst(b, s, 0, T_B32);
	return true;
}

bool decode_cvt_narrow(struct body *b, struct statement *s, bool *mine)
{
	static const char *const names[] = { "pack", "tf32", "e4m3x2", "e5m2x2", NULL };
	int n = take_one(s, names);

	*mine = n >= 0;
	if (n == 0)
		return decode_pack(b, s);
	if (n == 1)
		return decode_tf32(b, s);
	return n > 1 && decode_fp8(b, s, n == 3, !text_is(s->modifiers[s->n_modifiers - 1], names[n]));
}
