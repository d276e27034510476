/* SPDX-License-Identifier: Apache-2.0 */
/* Which decoder an opcode has. */
#include "decode.h"

#include <stdlib.h>
#include <string.h>

/* Sorted by name. Variants mean something to the decoder only. */
static const struct opcode opcodes[] = {
	{ "abs", decode_abs, 0 },
	{ "activemask", decode_activemask, 0 },
	{ "add", decode_add, 0 },
	{ "addc", decode_carry, 1 },
	{ "and", decode_logic, 0 },
	{ "atom", decode_atom, 0 },
	{ "bar", decode_bar, 0 },
	{ "barrier", decode_bar, 1 },
	{ "bfe", decode_bitfield, 0 },
	{ "bfi", decode_bitfield, 1 },
	{ "bfind", decode_count, 2 },
	{ "bmsk", decode_bmsk, 0 },
	{ "bra", decode_bra, 0 },
	{ "brev", decode_count, 3 },
	{ "brkpt", decode_trap, 1 },
	{ "brx", decode_brx, 0 },
	{ "call", decode_call, 0 },
	{ "clz", decode_count, 1 },
	{ "cnot", decode_cnot, 0 },
	{ "copysign", decode_copysign, 0 },
	{ "cos", decode_approx, 1 },
	{ "cp", decode_cp_async, 0 },
	{ "cvt", decode_cvt, 0 },
	{ "cvta", decode_cvta, 0 },
	{ "discard", decode_prefetch, 0 },
	{ "div", decode_div, 0 },
	{ "dp2a", decode_dot, 1 },
	{ "dp4a", decode_dot, 0 },
	{ "elect", decode_elect, 0 },
	{ "ex2", decode_approx, 3 },
	{ "exit", decode_exit, 0 },
	{ "fence", decode_fence, 0 },
	{ "fma", decode_fma, 0 },
	{ "fns", decode_fns, 0 },
	{ "isspacep", decode_isspacep, 0 },
	{ "ld", decode_ld, 0 },
	{ "ldu", decode_ld, 1 },
	{ "lg2", decode_approx, 2 },
	{ "lop3", decode_lop3, 0 },
	{ "mad", decode_mad, 0 },
	{ "mad24", decode_mul24, 1 },
	{ "madc", decode_carry, 3 },
	{ "match", decode_match, 0 },
	{ "max", decode_minmax, 1 },
	{ "membar", decode_fence, 1 },
	{ "min", decode_minmax, 0 },
	{ "mov", decode_mov, 0 },
	{ "mul", decode_mul, 0 },
	{ "mul24", decode_mul24, 0 },
	{ "nanosleep", decode_nanosleep, 0 },
	{ "neg", decode_neg, 0 },
	{ "not", decode_not, 0 },
	{ "or", decode_logic, 1 },
	{ "popc", decode_count, 0 },
	{ "prefetch", decode_prefetch, 0 },
	{ "prefetchu", decode_prefetch, 0 },
	{ "prmt", decode_permute, 0 },
	{ "rcp", decode_approx, 4 },
	{ "red", decode_red, 0 },
	{ "redux", decode_redux, 0 },
	{ "rem", decode_rem, 0 },
	{ "ret", decode_ret, 0 },
	{ "rsqrt", decode_approx, 6 },
	{ "sad", decode_sad, 0 },
	{ "selp", decode_selp, 0 },
	{ "set", decode_set, 0 },
	{ "setp", decode_setp, 0 },
	{ "shf", decode_funnel, 0 },
	{ "shfl", decode_shfl, 0 },
	{ "shl", decode_shift, 0 },
	{ "shr", decode_shift, 1 },
	{ "sin", decode_approx, 0 },
	{ "slct", decode_slct, 0 },
	{ "sqrt", decode_approx, 5 },
	{ "st", decode_st, 0 },
	{ "sub", decode_sub, 0 },
	{ "subc", decode_carry, 2 },
	{ "szext", decode_szext, 0 },
	{ "tanh", decode_approx, 7 },
	{ "testp", decode_testp, 0 },
	{ "trap", decode_trap, 0 },
	{ "vote", decode_vote, 0 },
	{ "xor", decode_logic, 2 },
};

static int compare_opcode(const void *key, const void *element)
{
	const struct text *name = key;
	const struct opcode *op = element;
	size_t length = strlen(op->name);
	int order = memcmp(name->s, op->name, name->n < length ? name->n : length);

	return order ? order : (name->n > length) - (name->n < length);
}

const struct opcode *opcode_find(struct text name)
{
	return bsearch(&name, opcodes, sizeof opcodes / sizeof *opcodes, sizeof *opcodes, compare_opcode);
}
