/* SPDX-License-Identifier: Apache-2.0 */
/* mov with its packing forms, address conversion, and selection. */
#include "ops.h"

HANDLER(run_mov)
{
	r[i->d] = r[i->a];
	return i + 1;
}
WIDE_PURE(run_mov, r[i->d] = r[i->a])

/* Packing: flags holds the element's width in bits, `b` and `c` the later elements, imm the fourth. */
PURE(pack2, u64 mask = i->flags == 32 ? 0xffffffff : ((u64)1 << i->flags) - 1;
   r[i->d] = (r[i->a] & mask) | (r[i->b] & mask) << i->flags)
OP(pack4, u64 mask = ((u64)1 << i->flags) - 1;
   r[i->d] = (r[i->a] & mask) | (r[i->b] & mask) << i->flags | (r[i->c] & mask) << 2 * i->flags |
	     (r[i->imm] & mask) << 3 * i->flags)
PURE(unpack, r[i->d] = r[i->a] >> i->flags)

/* generic address from one of a state space's, and back */
PURE(cvta_window, r[i->d] = r[i->a] + i->imm)
PURE(isspacep, r[i->d] = r[i->a] >> WINDOW_SHIFT == i->imm)
static bool in_const(const struct ptx_module *m, uint64_t addr)
{
	for (uint32_t k = 0; k < m->n_symbols; k++)
		if (m->symbols[k]->space == SPACE_CONST && addr - m->symbols[k]->address < m->symbols[k]->size)
			return true;
	return false;
}
/* shared::cta: of this block, not of another one of its cluster */
OP(isspacep_cta, r[i->d] = r[i->a] >> WINDOW_SHIFT == WINDOW_SHARED && cluster_rank(t->worker, r[i->a]) == t->worker->rank)
OP(isspacep_const, r[i->d] = in_const(t->worker->grid->kernel->module, r[i->a]))

PURE(selp, r[i->d] = r[i->c] & 1 ? r[i->a] : r[i->b])
PURE(slct_s32, r[i->d] = (s32)r[i->c] >= 0 ? r[i->a] : r[i->b])
OP(slct_f32, float c = get_f32(r[i->c]); r[i->d] = c >= 0 || (i->flags && fpclassify(c) == FP_SUBNORMAL) ? r[i->a] : r[i->b])

static bool move_type(enum type type)
{
	return type == T_PRED || (type >= T_B16 && type <= T_B64) || (type >= T_U16 && type <= T_U64) ||
	       (type >= T_S16 && type <= T_S64) || type == T_F32 || type == T_F64;
}

static bool decode_pack(struct body *b, struct statement *s, enum type type)
{
	const struct operand *v = &s->operands[1];
	uint32_t width = type_size(type) * 8 / v->n, slots[4];
	enum type part = width == 8 ? T_B8 : width == 16 ? T_B16 : T_B32;
	struct insn *i;

	for (uint32_t k = 0; k < v->n; k++)
		slots[k] = operand_src(b, s, &v->elements[k], part, part == T_B8);
	i = emit(b, s, v->n == 2 ? pack2 : pack4);
	i->flags = (uint16_t)width;
	i->a = slots[0];
	i->b = slots[1];
	if (v->n == 4) {
		i->c = slots[2];
		i->imm = slots[3];
	}
	i->d = dst(b, s, 0, type);
	return true;
}

static bool decode_unpack(struct body *b, struct statement *s, enum type type)
{
	const struct operand *v = &s->operands[0];
	uint32_t width = type_size(type) * 8 / v->n, from = src(b, s, 1, type), keep = slot_new(b);
	enum type part = width == 8 ? T_B8 : width == 16 ? T_B16 : T_B32;
	struct insn *i = emit(b, s, run_mov);

	i->d = keep; /* the source may be one of the destinations */
	i->a = from;
	for (uint32_t k = 0; k < v->n; k++) {
		if (v->elements[k].kind == O_SINK)
			continue;
		i = emit(b, s, unpack);
		i->a = keep;
		i->d = operand_dst(b, s, &v->elements[k], part, part == T_B8);
		i->flags = (uint16_t)(k * width);
	}
	return true;
}

static bool can_pack(const struct operand *v, enum type type)
{
	uint32_t size = type_size(type);

	return (type == T_B16 || type == T_B32 || type == T_B64) && (v->n == 2 || v->n == 4) && size / v->n;
}

DECODER(mov)
{
	enum type type = take_type(s);
	struct insn *i;

	if (!move_type(type))
		return false;
	operands(b, s, 2, 2);
	if (s->operands[0].kind == O_VECTOR)
		return can_pack(&s->operands[0], type) && decode_unpack(b, s, type);
	if (s->operands[1].kind == O_VECTOR)
		return can_pack(&s->operands[1], type) && decode_pack(b, s, type);
	if (s->operands[1].kind == O_SYMBOL && s->operands[1].symbol->space != SPACE_SHARED && type_size(type) != 8)
		bad_operand(b, s, 1, "a register of 64 bits for this address");
	if (type == T_PRED) {
		uint32_t a = src_predicate(b, s, 1);

		i = emit(b, s, run_mov);
		i->a = a;
	} else {
		i = emit(b, s, run_mov);
		i->a = src_wide(b, s, 1, type);
	}
	i->d = dst(b, s, 0, type);
	return true;
}

static uint64_t window_of(enum space space)
{
	switch (space) {
	case SPACE_SHARED:
		return WINDOW(WINDOW_SHARED);
	case SPACE_LOCAL:
		return WINDOW(WINDOW_LOCAL);
	case SPACE_PARAM:
		return WINDOW(WINDOW_PARAM);
	default:
		return 0;
	}
}

DECODER(cvta)
{
	bool to = take(s, "to");
	enum space space = take_space(s);
	enum type type = take_type(s);
	struct insn *i;

	if (space == SPACE_GENERIC || type != T_U64)
		return false;
	if (space == SPACE_PARAM && !b->function->entry)
		space = SPACE_LOCAL; /* a function's parameters lie in its frame */
	operands(b, s, 2, 2);
	i = emit(b, s, window_of(space) ? cvta_window : run_mov);
	i->a = src(b, s, 1, type);
	i->d = dst(b, s, 0, type);
	i->imm = to ? 0 - window_of(space) : window_of(space);
	return true;
}

DECODER(isspacep)
{
	bool cluster = take(s, "shared::cluster");
	enum space space = cluster ? SPACE_SHARED : take_space(s);
	bool own = space == SPACE_SHARED && !cluster && b->module->target >= 90;
	struct insn *i;

	if (space == SPACE_GENERIC)
		return false;
	operands(b, s, 2, 2);
	i = emit(b, s, space == SPACE_CONST ? isspacep_const : own ? isspacep_cta : isspacep);
	i->a = src(b, s, 1, T_U64);
	i->d = dst(b, s, 0, T_PRED);
	i->imm = window_of(space) >> WINDOW_SHIFT;
	return true;
}

DECODER(selp)
{
	enum type type = take_type(s);
	uint32_t c;
	struct insn *i;

	if (!move_type(type) || type == T_PRED)
		return false;
	operands(b, s, 4, 4);
	c = src_predicate(b, s, 3);
	i = emit(b, s, selp);
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, type);
	i->c = c;
	i->d = dst(b, s, 0, type);
	return true;
}

DECODER(slct)
{
	enum type type = take_type(s), by = take_type(s);
	bool ftz = take(s, "ftz");
	struct insn *i;

	if (!move_type(type) || type == T_PRED || (by != T_S32 && by != T_F32) || (ftz && by != T_F32))
		return false;
	operands(b, s, 4, 4);
	i = emit(b, s, by == T_S32 ? slct_s32 : slct_f32);
	i->flags = ftz;
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, type);
	i->c = src(b, s, 3, by);
	i->d = dst(b, s, 0, type);
	return true;
}
