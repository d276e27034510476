/* SPDX-License-Identifier: Apache-2.0 */
/* add, sub, mul and fma of two single-precision numbers in a 64-bit register, as compute capability 10.0 has them. */
#include "rounding.h"

enum { PACKED_ADD, PACKED_SUB, PACKED_MUL, PACKED_FMA };

static uint64_t packed_one(const struct insn *i, u64 x, u64 y, u64 z)
{
	volatile float a = in_f32(x, i->flags), b = in_f32(y, i->flags), c = in_f32(z, i->flags), out;

	round_begin(i->flags);
	switch (i->imm) {
	case PACKED_ADD:
		out = a + b;
		break;
	case PACKED_SUB:
		out = a - b;
		break;
	case PACKED_MUL:
		out = a * b;
		break;
	default:
		out = fmaf(a, b, c);
	}
	round_end(i->flags);
	return out_f32(out, i->flags);
}

OP(packed_run, u64 low = packed_one(i, r[i->a], r[i->b], r[i->c]);
   r[i->d] = low | packed_one(i, r[i->a] >> 32, r[i->b] >> 32, r[i->c] >> 32) << 32)

bool decode_packed_float(struct body *b, struct statement *s, uint32_t op)
{
	uint16_t flags = (uint16_t)(take_rounding(s) << FLAG_ROUND_SHIFT);
	struct insn *i;

	flags |= take(s, "ftz") ? FLAG_FTZ : 0;
	if (!emit_simple(b, s, packed_run, T_B64, op == PACKED_FMA ? 3 : 2))
		return false;
	i = &b->function->code[b->function->n_code - 1];
	i->flags = flags;
	i->imm = op;
	return true;
}
