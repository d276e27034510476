/* SPDX-License-Identifier: Apache-2.0 */
/* setp and set. A comparison is a function; what becomes of its result is the handler. */
#include "rounding.h"

enum comparison { EQ, NE, LT, LE, GT, GE, LO, LS, HI, HS, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_ };
static const char *const comparisons[] = { "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu",
					   "ltu", "leu", "gtu", "geu", "num", "nan", NULL };
enum { BOOL_NONE, BOOL_AND, BOOL_OR, BOOL_XOR };

/* The common form: one destination, no combination. */
#define SETP(name, T, get, op) PURE(name, T a = get(r[i->a]); T b = get(r[i->b]); r[i->d] = a op b)
#define U16(x) ((u16)(x))
#define U32(x) ((u32)(x))
#define U64(x) (x)
#define S16(x) ((s16)(x))
#define S32(x) ((s32)(x))
#define S64(x) ((s64)(x))
#define EQUALITY(T, get) SETP(eq_##T, T, get, ==) SETP(ne_##T, T, get, !=)
#define ORDER(T, get) SETP(lt_##T, T, get, <) SETP(le_##T, T, get, <=) SETP(gt_##T, T, get, >) SETP(ge_##T, T, get, >=)
EQUALITY(u16, U16) ORDER(u16, U16) EQUALITY(u32, U32) ORDER(u32, U32) EQUALITY(u64, U64) ORDER(u64, U64)
ORDER(s16, S16) ORDER(s32, S32) ORDER(s64, S64)
#define FLOATS(T, get)                                                                                               \
	PURE(eq_##T, r[i->d] = get(r[i->a]) == get(r[i->b]))                                                           \
	PURE(ne_##T, T a = get(r[i->a]); T b = get(r[i->b]); r[i->d] = islessgreater(a, b))                            \
	PURE(lt_##T, r[i->d] = isless(get(r[i->a]), get(r[i->b])))                                                     \
	PURE(le_##T, r[i->d] = islessequal(get(r[i->a]), get(r[i->b])))                                                \
	PURE(gt_##T, r[i->d] = isgreater(get(r[i->a]), get(r[i->b])))                                                  \
	PURE(ge_##T, r[i->d] = isgreaterequal(get(r[i->a]), get(r[i->b])))                                             \
	PURE(equ_##T, r[i->d] = !islessgreater(get(r[i->a]), get(r[i->b])))                                            \
	PURE(neu_##T, r[i->d] = get(r[i->a]) != get(r[i->b]))                                                          \
	PURE(ltu_##T, r[i->d] = !isgreaterequal(get(r[i->a]), get(r[i->b])))                                           \
	PURE(leu_##T, r[i->d] = !isgreater(get(r[i->a]), get(r[i->b])))                                                \
	PURE(gtu_##T, r[i->d] = !islessequal(get(r[i->a]), get(r[i->b])))                                              \
	PURE(geu_##T, r[i->d] = !isless(get(r[i->a]), get(r[i->b])))                                                   \
	PURE(num_##T, r[i->d] = !isunordered(get(r[i->a]), get(r[i->b])))                                              \
	PURE(nan_##T, r[i->d] = !!isunordered(get(r[i->a]), get(r[i->b])))
FLOATS(float, get_f32)
FLOATS(double, get_f64)

#define ORDERED(U, S) { eq_##U, ne_##U, lt_##S, le_##S, gt_##S, ge_##S }
#define UNSIGNED_ORDERED(U)                                                                                          \
	{ eq_##U, ne_##U, lt_##U, le_##U, gt_##U, ge_##U, [LO] = lt_##U, [LS] = le_##U, [HI] = gt_##U, [HS] = ge_##U }
#define FLOAT_ORDERED(T)                                                                                             \
	{ eq_##T, ne_##T, lt_##T, le_##T, gt_##T, ge_##T, [EQU] = equ_##T, neu_##T, ltu_##T, leu_##T, gtu_##T, geu_##T, \
	  num_##T, nan_##T }
static handler *const table[T_COUNT][NAN_ + 1] = {
	[T_B16] = { eq_u16, ne_u16 }, [T_B32] = { eq_u32, ne_u32 }, [T_B64] = { eq_u64, ne_u64 },
	[T_U16] = UNSIGNED_ORDERED(u16), [T_U32] = UNSIGNED_ORDERED(u32), [T_U64] = UNSIGNED_ORDERED(u64),
	[T_S16] = ORDERED(u16, s16), [T_S32] = ORDERED(u32, s32), [T_S64] = ORDERED(u64, s64),
	[T_F32] = FLOAT_ORDERED(float), [T_F64] = FLOAT_ORDERED(double),
};

OP(flush, float a = get_f32(r[i->a]); r[i->d] = fpclassify(a) == FP_SUBNORMAL ? r[i->a] & 0x80000000 : r[i->a])
/* d = c AND/OR/XOR a; the second destination has the comparison inverted */
OP(combine, bool a = r[i->a] & 1; bool c = i->flags == BOOL_NONE ? false : r[i->c] & 1; bool n = !a;
   if (i->flags == BOOL_AND) a = a && c, n = n && c;
   else if (i->flags == BOOL_OR) a = a || c, n = n || c;
   else if (i->flags == BOOL_XOR) a = a != c, n = n != c;
   r[i->d] = a; r[i->b] = n)
PURE(mask_of, r[i->d] = r[i->a] & 1 ? 0xffffffff : 0)
PURE(one_of_f32, r[i->d] = r[i->a] & 1 ? 0x3f800000 : 0)
OP(widen_f16, r[i->d] = put_f32(half_to_float((u16)r[i->a])))
OP(widen_bf16, r[i->d] = (u64)(u16)r[i->a] << 16)

static int take_comparison(struct statement *s)
{
	/* the comparison stands first: `.num` and the like are unambiguous there */
	return take_one(s, comparisons);
}

static uint32_t compare_source(struct body *b, struct statement *s, uint32_t n, enum type type, bool ftz)
{
	uint32_t from = src(b, s, n, type), to;
	struct insn *i;

	if (!ftz && type != T_F16 && type != T_BF16)
		return from;
	to = slot_new(b);
	i = emit(b, s, type == T_F16 ? widen_f16 : type == T_BF16 ? widen_bf16 : flush);
	i->a = from;
	i->d = to;
	return to;
}

/* Emits the comparison of operands n and n + 1 into a cell. */
static bool emit_comparison(struct body *b, struct statement *s, uint32_t n, int comparison, enum type type,
			    uint32_t into)
{
	bool half = type == T_F16 || type == T_BF16, ftz = take(s, "ftz");
	handler *run = comparison < 0 ? NULL : table[half ? T_F32 : type][comparison];
	uint32_t x, y;
	struct insn *i;

	if (!run || (ftz && type != T_F32))
		return false;
	x = compare_source(b, s, n, type, ftz);
	y = compare_source(b, s, n + 1, type, ftz);
	i = emit(b, s, run);
	i->a = x;
	i->b = y;
	i->d = into;
	return true;
}

static int take_boolean(struct statement *s)
{
	static const char *const names[] = { "and", "or", "xor", NULL };

	return take_one(s, names) + 1;
}

static void emit_combine(struct body *b, struct statement *s, int op, uint32_t from, uint32_t to, uint32_t inverse,
			 uint32_t n)
{
	uint32_t c = op == BOOL_NONE ? b->sink : src_predicate(b, s, n);
	struct insn *i = emit(b, s, combine);

	i->flags = (uint16_t)op;
	i->a = from;
	i->b = inverse;
	i->c = c;
	i->d = to;
}

/* The last modifier is the type that is compared, and before it stands that of the result. */
static enum type type_at(const struct statement *s, uint32_t from_end)
{
	return s->n_modifiers > from_end ? type_named(s->modifiers[s->n_modifiers - 1 - from_end]) : T_NONE;
}

DECODER(setp)
{
	int comparison, op;
	enum type type;
	uint32_t d, result;

	if (type_at(s, 0) == T_F16X2 || type_at(s, 0) == T_BF16X2)
		return decode_setp_pair(b, s, take_type(s));
	comparison = take_comparison(s);
	op = take_boolean(s);
	type = take_type(s);
	operands(b, s, op ? 4 : 3, op ? 4 : 3);
	d = dst(b, s, 0, T_PRED);
	if (!op && !s->operands[0].has_pair)
		return emit_comparison(b, s, 1, comparison, type, d);
	result = slot_new(b);
	if (!emit_comparison(b, s, 1, comparison, type, result))
		return false;
	emit_combine(b, s, op, result, d, dst_pair(b, s, 0), 3);
	return true;
}

static bool numeric(enum type to)
{
	return to == T_U32 || to == T_S32 || to == T_U16 || to == T_S16;
}

DECODER(set)
{
	enum type to = type_at(s, 1), type = type_at(s, 0);
	int comparison, op;
	uint32_t result;
	struct insn *i;

	if (s->n == 3 && type >= T_F16 && type <= T_BF16X2 && (to == type || numeric(to))) {
		take_type(s);
		take_type(s);
		return decode_set_half(b, s, to, type);
	}
	comparison = take_comparison(s);
	op = take_boolean(s);
	to = take_type(s);
	type = take_type(s);
	result = slot_new(b);
	if (to != T_U32 && to != T_S32 && to != T_F32)
		return false;
	operands(b, s, op ? 4 : 3, op ? 4 : 3);
	if (!emit_comparison(b, s, 1, comparison, type, result))
		return false;
	if (op)
		emit_combine(b, s, op, result, result, b->sink, 3);
	i = emit(b, s, to == T_F32 ? one_of_f32 : mask_of);
	i->a = result;
	i->d = dst(b, s, 0, to);
	return true;
}
