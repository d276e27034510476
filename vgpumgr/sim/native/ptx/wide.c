/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-word arithmetic: a thread's CC.CF (PTX ISA 9.7.2, extended-precision integer arithmetic). Additions and subtractions
 * share the flag, and it is a carry: a - b is a + ~b + 1, so a subtraction without a borrow sets it. The manual
 * describes each of the two chains for itself; the division of __int128 that nvcc emits ends a subc.cc chain with addc and
 * takes 1 for "no borrow".
 */
#include "ops.h"

enum { CARRY_IN = 1, CARRY_OUT = 2 };

#define CARRY(T, wide)                                                                                               \
	static void sum_##T(struct thread *t, uint64_t *r, const struct insn *i, T a, T b)                           \
	{                                                                                                            \
		wide sum = (wide)a + b + (i->flags & CARRY_IN ? t->carry : 0);                                       \
                                                                                                                     \
		r[i->d] = (T)sum;                                                                                    \
		if (i->flags & CARRY_OUT)                                                                            \
			t->carry = sum >> 8 * sizeof(T) != 0;                                                        \
	}                                                                                                            \
	OP(add_cc_##T, sum_##T(t, r, i, (T)r[i->a], (T)r[i->b]))                                                     \
	OP(sub_cc_##T, T a = (T)r[i->a]; wide b = (wide)(T)r[i->b] + (i->flags & CARRY_IN ? !t->carry : 0);          \
	   r[i->d] = (T)(a - (T)b); if (i->flags & CARRY_OUT) t->carry = a >= b)                                     \
	OP(mad_lo_cc_##T, sum_##T(t, r, i, (T)((T)r[i->a] * (T)r[i->b]), (T)r[i->c]))                                \
	OP(mad_hi_cc_##T, sum_##T(t, r, i, (T)((wide)(T)r[i->a] * (T)r[i->b] >> 8 * sizeof(T)), (T)r[i->c]))
CARRY(u32, uint64_t)
CARRY(u64, unsigned __int128)

OP(mad_hi_cc_s32, uint64_t h = (uint64_t)((int64_t)(s32)r[i->a] * (s32)r[i->b] >> 32); sum_u32(t, r, i, (u32)h, (u32)r[i->c]))
OP(mad_hi_cc_s64, uint64_t h = (uint64_t)((__int128)(s64)r[i->a] * (s64)r[i->b] >> 64); sum_u64(t, r, i, h, r[i->c]))

#define WIDTHS(name) [T_U32] = name##_u32, [T_S32] = name##_u32, [T_U64] = name##_u64, [T_S64] = name##_u64
static handler *const table[2][T_COUNT] = { { WIDTHS(add_cc) }, { WIDTHS(sub_cc) } };
static handler *const mad_table[2][T_COUNT] = {
	{ WIDTHS(mad_lo_cc) },
	{ [T_U32] = mad_hi_cc_u32, [T_S32] = mad_hi_cc_s32, [T_U64] = mad_hi_cc_u64, [T_S64] = mad_hi_cc_s64 },
};

static bool finish(struct body *b, bool emitted, bool in, bool out)
{
	if (emitted)
		b->function->code[b->function->n_code - 1].flags = (uint16_t)((in ? CARRY_IN : 0) | (out ? CARRY_OUT : 0));
	return emitted;
}

bool decode_carry_out(struct body *b, struct statement *s, enum type type, uint32_t op)
{
	return finish(b, emit_simple(b, s, table[op][type], type, 2), false, true);
}

bool decode_mad_carry(struct body *b, struct statement *s, enum type type, int part, bool in, bool out)
{
	if (part < 0 || part > 1)
		return false;
	return finish(b, emit_simple(b, s, mad_table[part][type], type, 3), in, out);
}

/* addc, subc, madc: variants 1, 2, 3 */
DECODER(carry)
{
	static const char *const parts[] = { "lo", "hi", NULL };
	enum type type = take_type(s);
	bool out = take(s, "cc");

	if (s->variant == 3)
		return decode_mad_carry(b, s, type, take_one(s, parts), true, out);
	return finish(b, emit_simple(b, s, table[s->variant - 1][type], type, 2), true, out);
}
