/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of variables: types, sizes, alignment and initial values. */
#include "parse.h"

#include <string.h>

static const struct {
	const char *name;
	enum type type;
	uint8_t size;
	bool is_signed, is_float;
} types[] = {
	{ "pred", T_PRED, 1 },
	{ "b8", T_B8, 1 }, { "b16", T_B16, 2 }, { "b32", T_B32, 4 }, { "b64", T_B64, 8 }, { "b128", T_B128, 16 },
	{ "u8", T_U8, 1 }, { "u16", T_U16, 2 }, { "u32", T_U32, 4 }, { "u64", T_U64, 8 },
	{ "s8", T_S8, 1, true }, { "s16", T_S16, 2, true }, { "s32", T_S32, 4, true }, { "s64", T_S64, 8, true },
	{ "f16", T_F16, 2, true, true }, { "f16x2", T_F16X2, 4, true, true },
	{ "bf16", T_BF16, 2, true, true }, { "bf16x2", T_BF16X2, 4, true, true },
	{ "f32", T_F32, 4, true, true }, { "f64", T_F64, 8, true, true },
	{ "u16x2", T_U16X2, 4 }, { "s16x2", T_S16X2, 4, true },
};

enum { N_TYPES = sizeof types / sizeof *types };

enum type type_named(struct text text)
{
	for (unsigned i = 0; i < N_TYPES; i++)
		if (text_is(text, types[i].name))
			return types[i].type;
	return T_NONE;
}

uint32_t type_size(enum type type)
{
	return type == T_NONE ? 0 : types[type - 1].size;
}

bool type_signed(enum type type)
{
	return type != T_NONE && types[type - 1].is_signed;
}

bool type_float(enum type type)
{
	return type != T_NONE && types[type - 1].is_float;
}

enum space space_named(struct text text)
{
	static const struct {
		const char *name;
		enum space space;
	} spaces[] = {
		{ ".reg", SPACE_REG }, { ".global", SPACE_GLOBAL }, { ".const", SPACE_CONST },
		{ ".shared", SPACE_SHARED }, { ".local", SPACE_LOCAL }, { ".param", SPACE_PARAM },
	};

	for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++)
		if (text_is(text, spaces[i].name))
			return spaces[i].space;
	return SPACE_NONE;
}

static uint32_t parse_align(struct parser *p)
{
	uint64_t align = expect_int(p);

	if (!align || (align & (align - 1)) || align > 65536)
		fail(p, PTX_SYNTAX, p->token.line, "bad alignment");
	return (uint32_t)align;
}

static void parse_attribute(struct parser *p, struct declaration *d)
{
	expect(p, '(');
	do {
		struct text name = expect_name(p);

		if (text_is(name, ".managed"))
			d->managed = true;
		else
			fail(p, PTX_UNSUPPORTED, d->line, "attribute %.*s", (int)name.n, name.s);
	} while (accept(p, ','));
	expect(p, ')');
}

/* .align N, vectors, .ptr and the type, in any order that PTX allows. */
static void parse_type(struct parser *p, struct declaration *d)
{
	bool pointer = false;

	for (d->vector = 1; p->token.kind == TOKEN_NAME && p->token.text.s[0] == '.';) {
		struct text name = expect_name(p);
		enum type type = type_named((struct text){ name.s + 1, name.n - 1 });

		if (text_is(name, ".align") && pointer)
			parse_align(p); /* of what the parameter points to */
		else if (text_is(name, ".align"))
			d->align = parse_align(p);
		else if (text_is(name, ".v2") || text_is(name, ".v4"))
			d->vector = (uint32_t)(name.s[2] - '0');
		else if (text_is(name, ".ptr"))
			pointer = true;
		else if (text_is(name, ".attribute"))
			parse_attribute(p, d);
		else if (type != T_NONE && d->type == T_NONE)
			d->type = type;
		else if (!pointer || space_named(name) == SPACE_NONE)
			fail(p, PTX_UNSUPPORTED, d->line, "declaration with %.*s", (int)name.n, name.s);
	}
	if (d->type == T_NONE)
		fail(p, PTX_SYNTAX, d->line, "a declaration names its type");
}

static void parse_dimensions(struct parser *p, struct declaration *d)
{
	while (accept(p, '[')) {
		uint64_t n = 0;

		if (at_punct(p, ']'))
			d->unsized = true;
		else if ((n = expect_int(p)) > (uint64_t)1 << 40 || (n && d->size > ((uint64_t)1 << 40) / n))
			fail(p, PTX_SYNTAX, d->line, "too large");
		d->size *= n;
		expect(p, ']');
	}
}

void parse_declaration(struct parser *p, struct declaration *d)
{
	uint64_t count;

	parse_type(p, d);
	d->name = expect_name(p);
	d->size = (uint64_t)type_size(d->type) * d->vector;
	if (!d->align)
		d->align = (uint32_t)d->size;
	if (d->space == SPACE_REG && accept(p, '<')) {
		count = expect_int(p);
		if (!count || count > MAX_REGISTERS)
			fail(p, PTX_SYNTAX, d->line, "bad number of registers");
		d->count = (uint32_t)count;
		expect(p, '>');
	}
	if (d->space != SPACE_REG)
		parse_dimensions(p, d);
	if (d->space != SPACE_REG && d->type == T_PRED)
		fail(p, PTX_SYNTAX, d->line, "predicates live in registers");
}

struct symbol *declare_variable(struct parser *p, const struct declaration *d)
{
	struct symbol *s = symbol_declared(p, d->name);
	bool again = s && s->defined && !d->is_extern && s->weak && p->weak && s->born != p->module->unit;

	if (again)
		s = NULL;
	if (s && (s->kind != SYMBOL_VARIABLE || (s->defined && !d->is_extern) || s->space != d->space))
		fail(p, PTX_SYNTAX, d->line, "%.*s is declared twice", (int)d->name.n, d->name.s);
	if (s && s->defined)
		return s;
	if (!s) {
		s = symbol_add(p, d->name);
		if (d->space == SPACE_SHARED)
			s->shared_index = p->module->n_shared++;
	}
	if (again)
		s->unit = UNIT_NONE;
	s->weak = p->weak;
	s->space = d->space;
	s->size = d->size;
	s->align = d->align;
	s->is_extern = d->is_extern;
	s->defined = !d->is_extern;
	s->line = d->line;
	return s;
}

struct image {
	struct parser *parser;
	struct symbol *symbol;
	const struct declaration *d;
	uint64_t at;
	uint32_t depth;
};

static void put(struct image *im, uint64_t bits)
{
	uint32_t size = type_size(im->d->type);

	if (im->at + size > im->symbol->size)
		fail(im->parser, PTX_SYNTAX, im->d->line, "more initial values than room");
	memcpy(im->symbol->image + im->at, &bits, size);
	im->at += size;
}

static uint64_t number(struct image *im, const struct token *t, bool negative)
{
	union { uint32_t u; float f; } f32 = { .u = (uint32_t)t->bits };
	union { uint64_t u; double f; } f64 = { .u = t->bits };

	if (t->kind == TOKEN_INT && !type_float(im->d->type))
		return negative ? -t->bits : t->bits;
	if (t->kind == TOKEN_INT)
		f64.f = (double)t->bits;
	if (t->kind == TOKEN_F32)
		f64.f = (double)f32.f;
	if (negative)
		f64.f = -f64.f;
	if (type_size(im->d->type) == 8)
		return f64.u;
	if (t->kind == TOKEN_F32)
		return f32.u ^ (negative ? 0x80000000u : 0);
	f32.f = (float)f64.f;
	if (type_size(im->d->type) != 4)
		fail(im->parser, PTX_UNSUPPORTED, im->d->line, "floating-point initial value of this type");
	return f32.u;
}

/* symbol or generic(symbol), and an addend. */
static void parse_reference(struct image *im, struct initialiser *fix)
{
	struct parser *p = im->parser;
	bool generic = accept_name(p, "generic"), minus;
	struct text name;

	if (generic)
		expect(p, '(');
	name = expect_name(p);
	fix->symbol = module_find(p->module, name);
	if (!fix->symbol)
		fail(p, PTX_UNRESOLVED, im->d->line, "%.*s is not declared", (int)name.n, name.s);
	if (fix->symbol->kind == SYMBOL_VARIABLE && fix->symbol->space != SPACE_GLOBAL && fix->symbol->space != SPACE_CONST)
		fail(p, PTX_UNSUPPORTED, im->d->line, "address of this state space as initial value");
	if (generic)
		expect(p, ')');
	minus = at_punct(p, '-');
	if (minus || at_punct(p, '+')) {
		advance(p);
		fix->addend = (int64_t)(minus ? -expect_int(p) : expect_int(p));
	}
}

/* An address, or one byte of it: 0xff00(address). */
static void put_address(struct image *im)
{
	struct parser *p = im->parser;
	struct initialiser *fix = ARENA_PUSH(&p->module->arena, im->symbol->fixups, im->symbol->n_fixups,
					     im->symbol->cap_fixups);
	bool masked = p->token.kind == TOKEN_INT;

	*fix = (struct initialiser){ .offset = (uint32_t)im->at, .size = type_size(im->d->type), .mask = UINT64_MAX };
	if (masked) {
		fix->mask = expect_int(p);
		fix->shift = fix->mask ? (uint32_t)__builtin_ctzll(fix->mask) : 0;
		expect(p, '(');
	}
	parse_reference(im, fix);
	if (masked)
		expect(p, ')');
	put(im, 0);
}

static void put_string(struct image *im, struct text text)
{
	for (size_t i = 0; i < text.n; i++) {
		if (text.s[i] == '\\')
			fail(im->parser, PTX_UNSUPPORTED, im->d->line, "escapes in strings");
		put(im, (unsigned char)text.s[i]);
	}
}

static void put_values(struct image *im)
{
	struct parser *p = im->parser;
	bool negative;

	if (accept(p, '{')) {
		if (++im->depth > MAX_DEPTH)
			fail(p, PTX_SYNTAX, im->d->line, "braces too deep");
		while (!at_punct(p, '}')) {
			put_values(im);
			if (!at_punct(p, '}'))
				expect(p, ',');
		}
		im->depth--;
		advance(p);
		return;
	}
	if (p->token.kind == TOKEN_STRING && type_size(im->d->type) == 1) {
		put_string(im, p->token.text);
		advance(p);
		return;
	}
	negative = accept(p, '-');
	if (p->token.kind == TOKEN_INT && !negative) {
		struct lexer ahead = p->lexer;
		struct token next = lex_next(&ahead);

		if (next.kind == TOKEN_PUNCT && next.punct == '(') {
			put_address(im);
			return;
		}
	}
	if (p->token.kind == TOKEN_NAME && !negative) {
		put_address(im);
		return;
	}
	if (p->token.kind != TOKEN_INT && p->token.kind != TOKEN_F32 && p->token.kind != TOKEN_F64)
		fail(p, PTX_SYNTAX, p->token.line, "a value is expected");
	put(im, number(im, &p->token, negative));
	advance(p);
}

void parse_initialiser(struct parser *p, struct symbol *symbol, const struct declaration *d)
{
	struct image im = { p, symbol, d, 0, 0 };

	if (!accept(p, '='))
		return;
	if (d->space != SPACE_GLOBAL && d->space != SPACE_CONST)
		fail(p, PTX_SYNTAX, d->line, "only .global and .const variables have initial values");
	if (d->unsized)
		fail(p, PTX_UNSUPPORTED, d->line, "array whose size comes from its initial values");
	symbol->image = arena_alloc(&p->module->arena, symbol->size);
	put_values(&im);
}
