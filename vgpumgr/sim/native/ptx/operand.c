/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of an instruction, as they are written. */
#include "decode.h"

#include <string.h>

/* Special registers; the numbers are private to this file and block.c's special_value. */
static const char *const specials[] = {
	"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z",
	"%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid",
	"%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt", "%clock", "%clock_hi",
	"%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%dynamic_smem_size", "%total_smem_size",
	"%clusterid.x", "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z",
	"%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_nctaid.x", "%cluster_nctaid.y",
	"%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank", "WARP_SZ", "%aggr_smem_size", "%reserved_smem_offset_begin",
	"%is_explicit_cluster",
};

static bool special_number(struct text name, uint64_t *number)
{
	for (unsigned i = 0; i < sizeof specials / sizeof *specials; i++) {
		*number = i;
		if (text_is(name, specials[i]))
			return true;
	}
	if (name.n > 7 && !memcmp(name.s, "%envreg", 7)) {
		*number = SPECIAL_ENVREG + (name.n == 8 ? (uint64_t)(name.s[7] - '0') : 10);
		return true;
	}
	return false;
}

static enum type special_type(struct text name)
{
	if (text_is(name, "%is_explicit_cluster"))
		return T_PRED;
	return text_is(name, "%clock64") || text_is(name, "%globaltimer") || text_is(name, "%gridid") ? T_U64 : T_U32;
}

/* Clocks are read when the instruction runs: their cell is filled by an instruction of its own. */
handler run_read_special;

static bool parse_special(struct body *b, struct statement *s, struct text name, struct operand *o)
{
	uint64_t number;
	struct insn *i;

	if (!special_number(name, &number))
		return false;
	o->kind = O_REG;
	o->type = special_type(name);
	if (name.n > 5 && (!memcmp(name.s, "%clock", 6) || !memcmp(name.s, "%globa", 6))) {
		o->slot = slot_new(b);
		i = emit(b, s, run_read_special);
		i->d = o->slot;
		i->imm = number;
	} else {
		o->slot = slot_const(b, INIT_SPECIAL, number, NULL);
	}
	return true;
}

/* Takes .b0 to .b3, .h0 and .h1 from the end of a name. */
static enum selector take_selector(struct text *name)
{
	static const char *const selectors[] = { ".b0", ".b1", ".b2", ".b3", ".h0", ".h1" };

	for (uint32_t k = 0; name->n > 3 && k < sizeof selectors / sizeof *selectors; k++)
		if (!memcmp(name->s + name->n - 3, selectors[k], 3)) {
			name->n -= 3;
			return (enum selector)(k + SELECT_B0);
		}
	return SELECT_ALL;
}

/* A part of a 32-bit register, for video instructions. */
static bool parse_part(struct body *b, struct text name, struct operand *o)
{
	enum selector selector = take_selector(&name);
	struct registers *r;
	uint32_t n;

	if (selector == SELECT_ALL || !(r = find_register(b, name, &n)))
		return false;
	if (!r->slots[n])
		r->slots[n] = slot_new(b);
	*o = (struct operand){ .kind = O_REG, .name = o->name, .slot = r->slots[n], .type = r->type, .selector = selector,
			       .negated = o->negated };
	return true;
}

static void resolve_local(struct operand *o, struct local_name *l)
{
	o->local = l;
	o->bits = l->offset;
	o->symbol = l->symbol;
	o->kind = l->symbol	  ? O_SYMBOL
		  : l->prototype || l->is_list ? O_NAME
		  : l->kernel_param	  ? O_KERNEL_PARAM
					  : O_FRAME;
}

/* A register, a special one, a variable, a function or, if none of these, a label. */
static void parse_name(struct body *b, struct statement *s, struct operand *o)
{
	struct text name = expect_name(b->parser);
	struct local_name *l;
	struct registers *r;
	uint32_t n;

	o->name = name;
	if (text_is(name, "_")) {
		o->kind = O_SINK;
	} else if ((r = find_register(b, name, &n))) {
		if (!r->slots[n])
			r->slots[n] = slot_new(b);
		o->kind = O_REG;
		o->slot = r->slots[n];
		o->type = r->type;
	} else if ((l = find_local(b, name))) {
		resolve_local(o, l);
	} else if (!parse_part(b, name, o) && !parse_special(b, s, name, o)) {
		o->symbol = module_find(b->module, name);
		o->kind = o->symbol ? O_SYMBOL : O_NAME;
	}
}

static void parse_offset(struct parser *p, struct operand *o)
{
	while (at_punct(p, '+') || at_punct(p, '-')) {
		bool minus = at_punct(p, '-');

		advance(p);
		minus ^= accept(p, '-');
		o->offset = (int64_t)((uint64_t)o->offset + (minus ? -expect_int(p) : expect_int(p)));
	}
}

static void parse_literal(struct parser *p, struct operand *o)
{
	bool negative = accept(p, '-'), inverted = !negative && accept(p, '~');

	o->bits = p->token.bits;
	if (p->token.kind == TOKEN_INT)
		o->kind = O_INT, o->bits = negative ? -o->bits : inverted ? ~o->bits : o->bits;
	else if (p->token.kind == TOKEN_F32)
		o->kind = O_F32, o->bits ^= negative ? 0x80000000u : 0;
	else if (p->token.kind == TOKEN_F64)
		o->kind = O_F64, o->bits ^= negative ? (uint64_t)1 << 63 : 0;
	else
		fail(p, PTX_SYNTAX, p->token.line, "an operand is expected");
	advance(p);
}

static void parse_operand(struct body *b, struct statement *s, struct operand *o, uint32_t depth);

static void parse_elements(struct body *b, struct statement *s, struct operand *o, char close, uint32_t depth)
{
	uint32_t cap = 0;

	if (depth > 3)
		fail(b->parser, PTX_SYNTAX, s->line, "operand too deep");
	advance(b->parser);
	while (!at_punct(b->parser, close)) {
		struct operand element = { O_NONE };

		if (o->n == MAX_ELEMENTS)
			fail(b->parser, PTX_SYNTAX, s->line, "operand too long");
		parse_operand(b, s, &element, depth + 1);
		*ARENA_PUSH(b->arena, o->elements, o->n, cap) = element;
		if (!at_punct(b->parser, close))
			expect(b->parser, ',');
	}
	advance(b->parser);
}

/* [register+n], [symbol+n], [n], [register, {coordinates}]; more than that is refused by the decoder. */
static void parse_address(struct body *b, struct statement *s, struct operand *o, uint32_t depth)
{
	struct parser *p = b->parser;

	advance(p);
	if (p->token.kind == TOKEN_NAME)
		parse_name(b, s, o);
	else
		parse_literal(p, o);
	parse_offset(p, o);
	o->base = o->kind;
	o->kind = O_ADDRESS;
	if (accept(p, ',') && at_punct(p, '{')) {
		o->kind = O_TEXEL;
		parse_elements(b, s, o, '}', depth);
	}
	if (!at_punct(p, ']')) {
		o->base = O_NONE;
		while (!at_punct(p, ']')) {
			if (p->token.kind == TOKEN_END || at_punct(p, ';'))
				fail(p, PTX_SYNTAX, s->line, "']' is expected");
			advance(p);
		}
	}
	advance(p);
}

static void parse_operand(struct body *b, struct statement *s, struct operand *o, uint32_t depth)
{
	struct parser *p = b->parser;
	struct operand pair = { O_NONE };

	if (at_punct(p, '[')) {
		parse_address(b, s, o, depth);
	} else if (at_punct(p, '{')) {
		o->kind = O_VECTOR;
		parse_elements(b, s, o, '}', depth);
	} else if (at_punct(p, '(')) {
		o->kind = O_LIST;
		parse_elements(b, s, o, ')', depth);
	} else if (p->token.kind == TOKEN_NAME || at_punct(p, '!')) {
		o->negated = accept(p, '!');
		parse_name(b, s, o);
		parse_offset(p, o);
	} else {
		parse_literal(p, o);
	}
	if (accept(p, '|')) {
		if (at_punct(p, '[') || at_punct(p, '{') || at_punct(p, '('))
			fail(p, PTX_SYNTAX, s->line, "a register is expected behind '|'");
		parse_operand(b, s, &pair, depth + 1);
		if (depth > 3 || (pair.kind != O_REG && pair.kind != O_SINK))
			fail(p, PTX_SYNTAX, s->line, "a register is expected behind '|'");
		o->has_pair = true;
		o->pair = pair.kind == O_SINK ? b->sink : pair.slot;
	}
}

void parse_statement_operands(struct body *b, struct statement *s)
{
	while (!at_punct(b->parser, ';')) {
		if (s->n == MAX_OPERANDS)
			fail(b->parser, PTX_SYNTAX, s->line, "too many operands");
		parse_operand(b, s, &s->operands[s->n++], 0);
		if (!at_punct(b->parser, ';'))
			expect(b->parser, ',');
	}
	advance(b->parser);
}
