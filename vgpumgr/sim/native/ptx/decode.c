/* SPDX-License-Identifier: Apache-2.0 */
/* What the decoders of instructions share. */
#include "decode.h"
#include "simd.h"

#include <string.h>

bool take(struct statement *s, const char *modifier)
{
	for (uint32_t i = 0; i < s->n_modifiers; i++)
		if (!(s->used & 1u << i) && text_is(s->modifiers[i], modifier)) {
			s->used |= 1u << i;
			return true;
		}
	return false;
}

int take_one(struct statement *s, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (take(s, names[i]))
			return i;
	return -1;
}

enum type take_type(struct statement *s)
{
	for (uint32_t i = 0; i < s->n_modifiers; i++) {
		enum type type = type_named(s->modifiers[i]);

		if (!(s->used & 1u << i) && type != T_NONE) {
			s->used |= 1u << i;
			return type;
		}
	}
	return T_NONE;
}

enum space take_space(struct statement *s)
{
	static const char *const names[] = { "global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "param::func", NULL };
	static const enum space spaces[] = { SPACE_GLOBAL, SPACE_CONST, SPACE_SHARED, SPACE_SHARED, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM, SPACE_PARAM, SPACE_PARAM };
	int n = take_one(s, names);

	return n < 0 ? SPACE_GENERIC : spaces[n];
}

bool all_taken(const struct statement *s)
{
	return s->used == (1u << s->n_modifiers) - 1;
}

enum rounding take_rounding(struct statement *s)
{
	static const char *const names[] = { "rn", "rz", "rm", "rp", NULL };
	int n = take_one(s, names);

	return n < 0 ? ROUND_RN : (enum rounding)n;
}

void bad_operand(struct body *b, const struct statement *s, uint32_t n, const char *want)
{
	fail(b->parser, PTX_SYNTAX, s->line, "operand %u: %s is expected", n + 1, want);
}

void operands(struct body *b, struct statement *s, uint32_t least, uint32_t most)
{
	if (s->n < least || s->n > most)
		fail(b->parser, PTX_SYNTAX, s->line, "wrong number of operands");
}

/* A literal as the bits of a type. */
static bool literal_bits(const struct operand *o, enum type type, uint64_t *bits)
{
	union { uint32_t u; float f; } f32 = { .u = (uint32_t)o->bits };
	union { uint64_t u; double f; } f64 = { .u = o->bits };

	*bits = o->bits;
	if (o->kind == O_INT)
		return type == T_PRED ? true : !type_float(type) || type == T_F16 || type == T_BF16 || type == T_F16X2 || type == T_BF16X2;
	if (type == T_PRED || (!type_float(type) && type >= T_U8)) /* bits may be written as a float, numbers not */
		return false;
	if (o->kind == O_F32) {
		if (type_size(type) == 8) {
			f64.f = (double)f32.f;
			*bits = f64.u;
		}
		return type_size(type) >= 4;
	}
	if (type_size(type) == 4) {
		f32.f = (float)f64.f;
		*bits = f32.u;
	}
	return type_size(type) >= 4;
}

static uint32_t symbol_slot(struct body *b, const struct operand *o)
{
	struct symbol *s = o->symbol;

	body_uses(b, s);
	if (s->kind == SYMBOL_VARIABLE && s->space == SPACE_SHARED)
		return slot_const(b, INIT_SHARED, (uint64_t)o->offset, s);
	return slot_const(b, INIT_ADDRESS, (uint64_t)o->offset, s);
}

static void check_width(struct body *b, const struct statement *s, const struct operand *o, enum type type, bool wide)
{
	uint32_t have = type_size(o->type), want = type_size(type);

	if ((type == T_PRED) != (o->type == T_PRED) || have < want || (have != want && !wide))
		fail(b->parser, PTX_SYNTAX, s->line, "%.*s has the wrong type", (int)o->name.n, o->name.s);
}

uint32_t operand_src(struct body *b, struct statement *s, const struct operand *o, enum type type, bool wide)
{
	uint64_t bits;

	if (o->negated && o->kind != O_REG)
		fail(b->parser, PTX_SYNTAX, s->line, "'!' stands before a predicate");
	switch (o->kind) {
	case O_REG:
		if (o->offset)
			fail(b->parser, PTX_SYNTAX, s->line, "a sum is no operand");
		if (o->selector != SELECT_ALL)
			fail(b->parser, PTX_SYNTAX, s->line, "%.*s is a part of a register", (int)o->name.n, o->name.s);
		check_width(b, s, o, type, wide);
		if (o->negated)
			fail(b->parser, PTX_SYNTAX, s->line, "'!' cannot stand here");
		return o->slot;
	case O_INT:
	case O_F32:
	case O_F64:
		if (!literal_bits(o, type, &bits))
			fail(b->parser, PTX_SYNTAX, s->line, "literal of the wrong type");
		return slot_const(b, INIT_VALUE, bits, NULL);
	case O_SYMBOL:
		return symbol_slot(b, o);
	case O_FRAME:
		return slot_const(b, INIT_FRAME, o->bits + (uint64_t)o->offset, NULL);
	case O_KERNEL_PARAM:
		return slot_const(b, INIT_VALUE, o->bits + (uint64_t)o->offset, NULL);
	default:
		fail(b->parser, PTX_SYNTAX, s->line, "an operand that can be read is expected");
	}
}

uint32_t operand_dst(struct body *b, struct statement *s, const struct operand *o, enum type type, bool wide)
{
	if (o->kind == O_SINK)
		return b->sink;
	if (o->kind != O_REG || o->negated || o->offset || o->name.n == 0 || o->selector != SELECT_ALL)
		fail(b->parser, PTX_SYNTAX, s->line, "a register is expected as destination");
	for (uint32_t i = 0; i < b->function->n_inits; i++)
		if (b->function->inits[i].kind == INIT_SPECIAL && b->function->inits[i].slot == o->slot)
			fail(b->parser, PTX_SYNTAX, s->line, "special registers are read-only");
	check_width(b, s, o, type, wide);
	return o->slot;
}

static const struct operand *operand(struct body *b, struct statement *s, uint32_t n)
{
	if (n >= s->n)
		fail(b->parser, PTX_SYNTAX, s->line, "too few operands");
	return &s->operands[n];
}

uint32_t src(struct body *b, struct statement *s, uint32_t n, enum type type)
{
	return operand_src(b, s, operand(b, s, n), type, false);
}

uint32_t src_wide(struct body *b, struct statement *s, uint32_t n, enum type type)
{
	return operand_src(b, s, operand(b, s, n), type, true);
}

uint32_t dst(struct body *b, struct statement *s, uint32_t n, enum type type)
{
	return operand_dst(b, s, operand(b, s, n), type, false);
}

uint32_t dst_wide(struct body *b, struct statement *s, uint32_t n, enum type type)
{
	return operand_dst(b, s, operand(b, s, n), type, true);
}

uint32_t dst_pair(struct body *b, struct statement *s, uint32_t n)
{
	const struct operand *o = operand(b, s, n);

	return o->has_pair ? o->pair : b->sink;
}

const struct insn *run_not_predicate(struct thread *t, uint64_t *r, const struct insn *i)
{
	(void)t;
	r[i->d] = !(r[i->a] & 1);
	return i + 1;
}
WIDE_PURE(run_not_predicate, r[i->d] = !(r[i->a] & 1))

uint32_t src_predicate(struct body *b, struct statement *s, uint32_t n)
{
	struct operand o = *operand(b, s, n);
	struct insn *i;
	uint32_t negative;

	if (!o.negated)
		return operand_src(b, s, &o, T_PRED, false);
	o.negated = false;
	negative = slot_new(b);
	i = emit(b, s, run_not_predicate);
	i->a = operand_src(b, s, &o, T_PRED, false);
	i->d = negative;
	return negative;
}

void address(struct body *b, struct statement *s, uint32_t n, struct insn *i)
{
	const struct operand *o = operand(b, s, n);
	struct operand base = *o;

	if (o->kind != O_ADDRESS || o->base == O_NONE)
		bad_operand(b, s, n, "an address");
	base.kind = o->base;
	base.offset = 0;
	if (o->base == O_REG && (type_size(o->type) < 4 || o->type == T_PRED))
		bad_operand(b, s, n, "an address");
	if (o->base == O_NAME || o->base == O_SINK)
		fail(b->parser, PTX_SYNTAX, s->line, "unknown name %.*s", (int)o->name.n, o->name.s);
	i->a = operand_src(b, s, &base, o->base == O_REG ? o->type : T_B64, true);
	i->offset = o->offset;
	if (o->base == O_REG && type_size(o->type) == 4)
		i->flags |= FLAG_ADDRESS32;
}

struct insn *emit(struct body *b, const struct statement *s, handler *run)
{
	struct function *f = b->function;
	struct insn *i = ARENA_PUSH(b->arena, f->code, f->n_code, f->cap_code);

	*i = (struct insn){ .run = run, .line = s->line & 0xffffff, .span = 1 };
	return i;
}

struct insn *emit_visible(struct body *b, const struct statement *s, handler *run)
{
	struct insn *i = emit(b, s, run);

	i->span = 0;
	return i;
}

bool emit_simple(struct body *b, struct statement *s, handler *run, enum type type, uint32_t n)
{
	struct insn *i;
	uint32_t slots[3] = { 0 };
	uint32_t d;

	if (!run)
		return false;
	operands(b, s, n + 1, n + 1);
	for (uint32_t k = 0; k < n; k++)
		slots[k] = src(b, s, k + 1, type);
	d = dst(b, s, 0, type);
	i = emit(b, s, run);
	i->d = d;
	i->a = slots[0];
	i->b = slots[1];
	i->c = slots[2];
	return true;
}
