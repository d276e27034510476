/* SPDX-License-Identifier: Apache-2.0 */
/* atom and red, with the host's own atomic operations: blocks run in parallel, and other kernels may, too. */
#include "async.h"
#include "checks.h"
#include "rounding.h"

enum atomic { A_AND, A_OR, A_XOR, A_CAS, A_EXCH, A_ADD, A_INC, A_DEC, A_MIN, A_MAX };

typedef u64 combine(u64 old, u64 b, enum atomic op);

static u64 combine_bits(u64 old, u64 b, enum atomic op)
{
	switch (op) {
	case A_AND:
		return old & b;
	case A_OR:
		return old | b;
	case A_XOR:
		return old ^ b;
	case A_EXCH:
		return b;
	default:
		return old + b;
	}
}
static u64 combine_u32(u64 old, u64 b, enum atomic op)
{
	u32 x = (u32)old, y = (u32)b;

	switch (op) {
	case A_INC:
		return x >= y ? 0 : x + 1;
	case A_DEC:
		return x == 0 || x > y ? y : x - 1;
	default:
		return (x < y) == (op == A_MIN) ? x : y;
	}
}
static u64 combine_s32(u64 old, u64 b, enum atomic op)
{
	return ((s32)old < (s32)b) == (op == A_MIN) ? old : b;
}
static u64 combine_u64(u64 old, u64 b, enum atomic op)
{
	return (old < b) == (op == A_MIN) ? old : b;
}
static u64 combine_s64(u64 old, u64 b, enum atomic op)
{
	return ((s64)old < (s64)b) == (op == A_MIN) ? old : b;
}
/* Single-precision addition in memory flushes nothing here: global memory keeps subnormal numbers. */
static u64 combine_f32(u64 old, u64 b, enum atomic op)
{
	(void)op;
	return put_f32_result(get_f32(old) + get_f32(b));
}
static u64 combine_f64(u64 old, u64 b, enum atomic op)
{
	(void)op;
	return put_f64(get_f64(old) + get_f64(b));
}
static u64 combine_f16(u64 old, u64 b, enum atomic op)
{
	(void)op;
	return encode_half((long double)half_to_float((u16)old) + (long double)half_to_float((u16)b), ROUND_RN);
}
static u64 combine_bf16(u64 old, u64 b, enum atomic op)
{
	(void)op;
	return encode_bfloat((long double)get_f32((u64)(u16)old << 16) + (long double)get_f32((u64)(u16)b << 16), ROUND_RN);
}
static u64 combine_f16x2(u64 old, u64 b, enum atomic op)
{
	return combine_f16(old, b, op) | combine_f16(old >> 16, b >> 16, op) << 16;
}
static u64 combine_bf16x2(u64 old, u64 b, enum atomic op)
{
	return combine_bf16(old, b, op) | combine_bf16(old >> 16, b >> 16, op) << 16;
}

static combine *choose(enum atomic op, enum type type)
{
	bool b32 = type == T_B32 || type == T_U32 || type == T_S32, b64 = type == T_B64 || type == T_U64 || type == T_S64;
	static combine *const order[T_COUNT] = { [T_U32] = combine_u32, [T_S32] = combine_s32, [T_U64] = combine_u64, [T_S64] = combine_s64 };
	static combine *const sum[T_COUNT] = {
		[T_U32] = combine_bits, [T_S32] = combine_bits, [T_U64] = combine_bits, [T_S64] = combine_bits,
		[T_F32] = combine_f32, [T_F64] = combine_f64, [T_F16] = combine_f16, [T_F16X2] = combine_f16x2,
		[T_BF16] = combine_bf16, [T_BF16X2] = combine_bf16x2,
	};

	switch (op) {
	case A_MIN:
	case A_MAX:
		return order[type];
	case A_ADD:
		return sum[type];
	case A_INC:
	case A_DEC:
		return type == T_U32 ? combine_u32 : NULL;
	case A_CAS:
		return b32 || b64 || type == T_B16 ? combine_bits : NULL;
	default:
		return b32 || b64 ? combine_bits : NULL;
	}
}

/* One handler for each width; `imm` is taken by the address, so the operation's function is found by flags. */
enum { FLAG_OP_SHIFT = 4, FLAG_TYPE_SHIFT = 8 };

#define ATOMIC(T)                                                                                                    \
	static HANDLER(atom_##T)                                                                                     \
	{                                                                                                            \
		enum atomic op = (enum atomic)(i->flags >> FLAG_OP_SHIFT & 15);                                      \
		combine *fn = choose(op, (enum type)(i->flags >> FLAG_TYPE_SHIFT));                                  \
		T *at = (T *)(void *)reach(t, i, (enum space)i->space, effective(r, i), sizeof(T), true);            \
		T old, want;                                                                                         \
                                                                                                                     \
		if (!at)                                                                                             \
			return NULL;                                                                                 \
		t->fuel = t->fuel > FUEL_ATOMIC ? t->fuel - FUEL_ATOMIC : 1;                                         \
		old = op == A_CAS ? (T)r[i->b] : __atomic_load_n(at, __ATOMIC_RELAXED);                              \
		if (op == A_CAS)                                                                                     \
			__atomic_compare_exchange_n(at, &old, (T)r[i->c], false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		else                                                                                                 \
			do                                                                                           \
				want = (T)fn(old, r[i->b], op);                                                      \
			while (!__atomic_compare_exchange_n(at, &old, want, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
		r[i->d] = old;                                                                                       \
		return i + 1;                                                                                        \
	}
ATOMIC(u16)
ATOMIC(u32)
ATOMIC(u64)

static bool is_atom(const struct insn *i)
{
	return i->run == atom_u16 || i->run == atom_u32 || i->run == atom_u64;
}

static bool is_atomic(const struct insn *i)
{
	return is_atom(i) || is_mbarrier(i) || is_ordered(i);
}

static bool is_exchange(const struct insn *i)
{
	return (is_atom(i) && (i->flags >> FLAG_OP_SHIFT & 15) == A_EXCH) || is_ordered(i);
}

const struct insn_facts insn_facts = { is_atomic, is_exchange, store_value };

static bool take_qualifiers(struct statement *s, enum atomic op, enum type type)
{
	static const char *const names[] = { "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", NULL };
	bool half = type == T_F16 || type == T_F16X2 || type == T_BF16 || type == T_BF16X2;

	while (take_one(s, names) >= 0)
		;
	/* without it the half-precision forms do not exist */
	return !half || op != A_ADD || take(s, "noftz");
}

static bool decode_atomic(struct body *b, struct statement *s, bool result)
{
	static const char *const names[] = { "and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max", NULL };
	enum space space = take_space(s);
	int op = take_one(s, names);
	enum type type = take_type(s), width;
	uint32_t first = result ? 1 : 0;
	struct insn *i;

	if (op < 0 || !choose((enum atomic)op, type) || !take_qualifiers(s, (enum atomic)op, type) ||
	    (!result && (op == A_CAS || op == A_EXCH)) ||
	    (space != SPACE_GLOBAL && space != SPACE_SHARED && space != SPACE_GENERIC))
		return false;
	take_policy(b, s);
	operands(b, s, first + (op == A_CAS ? 3 : 2), first + (op == A_CAS ? 3 : 2));
	width = type_size(type) == 2 ? T_B16 : type_size(type) == 4 ? T_B32 : T_B64;
	i = emit_visible(b, s, width == T_B16 ? atom_u16 : width == T_B32 ? atom_u32 : atom_u64);
	i->space = (uint8_t)space;
	i->flags = (uint16_t)((uint32_t)op << FLAG_OP_SHIFT | (uint32_t)type << FLAG_TYPE_SHIFT);
	address(b, s, first, i);
	i->b = src(b, s, first + 1, width);
	if (op == A_CAS)
		i->c = src(b, s, first + 2, width);
	i->d = result ? dst(b, s, 0, width) : b->sink;
	return true;
}

/*
 * .v2 to .v8 of floating-point numbers: each element is an operation by itself, as the ISA says. The results reach their
 * registers afterwards, for these may be sources, too.
 */
static bool decode_vector(struct body *b, struct statement *s, bool result)
{
	static const char *const names[] = { "v2", "v4", "v8", NULL };
	enum type type = s->n_modifiers ? type_named(s->modifiers[s->n_modifiers - 1]) : T_NONE;
	uint32_t n = 2u << take_one(s, names), first = result ? 1 : 0, results[8];
	struct statement one = *s;
	struct insn *i;

	if (!type_float(type) || type == T_F64)
		return false;
	operands(b, s, first + 2, first + 3);
	for (uint32_t k = 0; k < n; k++) {
		one = *s;
		for (uint32_t o = 0; o <= first + 1; o++) {
			if (o == first)
				continue;
			if (s->operands[o].kind != O_VECTOR || s->operands[o].n != n)
				bad_operand(b, s, o, "a vector of this length");
			one.operands[o] = s->operands[o].elements[k];
		}
		if (!decode_atomic(b, &one, result))
			return false;
		i = &b->function->code[b->function->n_code - 1];
		i->offset += (int64_t)(k * type_size(type));
		results[k] = i->d;
		i->d = result ? slot_new(b) : i->d;
	}
	for (uint32_t k = 0; k < n && result; k++) {
		i = emit(b, s, run_mov);
		i->d = results[k];
		i->a = b->function->code[b->function->n_code - 1 - n].d;
	}
	s->used = one.used;
	return true;
}

static bool is_vector(const struct statement *s)
{
	for (uint32_t k = 0; k < s->n_modifiers; k++)
		if (text_is(s->modifiers[k], "v2") || text_is(s->modifiers[k], "v4") || text_is(s->modifiers[k], "v8"))
			return true;
	return false;
}

DECODER(atom)
{
	return is_vector(s) ? decode_vector(b, s, true) : decode_atomic(b, s, true);
}

bool decode_reduction(struct body *b, struct statement *s)
{
	return is_vector(s) ? decode_vector(b, s, false) : decode_atomic(b, s, false);
}
