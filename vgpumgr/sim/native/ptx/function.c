/* SPDX-License-Identifier: Apache-2.0 */
/* A function's body: declarations, labels and statements. */
#include "decode.h"
#include "simd.h"

#include <string.h>

enum { MAX_SPAN = 255 };

static void declare_registers(struct body *b)
{
	struct parser *p = b->parser;
	struct declaration d = { .space = SPACE_REG, .line = p->token.line };
	struct registers r;

	parse_declaration(p, &d);
	for (;;) {
		if (d.vector != 1)
			fail(p, PTX_UNSUPPORTED, d.line, "vector registers");
		b->total_registers += d.count ? d.count : 1;
		if (b->total_registers > MAX_REGISTERS)
			fail(p, PTX_SYNTAX, d.line, "too many registers");
		r = (struct registers){ d.name, d.count, d.type, NULL, b->scope };
		r.slots = arena_alloc(b->arena, (d.count ? d.count : 1) * sizeof *r.slots);
		*ARENA_PUSH(b->arena, b->registers, b->n_registers, b->cap_registers) = r;
		if (!accept(p, ','))
			break;
		d.name = expect_name(p);
		d.count = 0;
		if (accept(p, '<')) {
			uint64_t n = expect_int(p);

			if (!n || n > MAX_REGISTERS)
				fail(p, PTX_SYNTAX, d.line, "bad number of registers");
			d.count = (uint32_t)n;
			expect(p, '>');
		}
	}
	expect(p, ';');
}

/* Room in the frame for a .local or .param variable. */
static uint32_t frame_place(struct body *b, const struct declaration *d)
{
	struct function *f = b->function;
	uint64_t offset = ((uint64_t)f->frame_bytes + d->align - 1) & ~(uint64_t)(d->align - 1);

	if (d->size > 1 << 24 || offset + d->size > 1 << 24)
		fail(b->parser, PTX_UNSUPPORTED, d->line, "more than 16 MiB of local memory");
	f->frame_bytes = (uint32_t)(offset + d->size);
	return (uint32_t)offset;
}

static struct local_name *add_name(struct body *b, struct text name)
{
	struct local_name *l = ARENA_PUSH(b->arena, b->names, b->n_names, b->cap_names);

	*l = (struct local_name){ .name = name, .scope = b->scope };
	return l;
}

static void declare_local_variable(struct body *b, enum space space, bool is_extern)
{
	struct parser *p = b->parser;
	struct declaration d = { .space = space, .line = p->token.line, .is_extern = is_extern };
	struct local_name *l;
	struct symbol *s;

	parse_declaration(p, &d);
	l = add_name(b, d.name);
	if (space == SPACE_LOCAL || space == SPACE_PARAM) {
		l->offset = frame_place(b, &d);
		l->size = (uint32_t)d.size;
		l->is_param = space == SPACE_PARAM;
		if (at_punct(p, ','))
			fail(p, PTX_UNSUPPORTED, d.line, "several variables in one declaration");
	} else {
		s = arena_alloc(b->arena, sizeof *s);
		*s = (struct symbol){ .name = d.name, .space = space, .size = d.size, .align = d.align,
				      .is_extern = is_extern, .defined = !is_extern, .line = d.line };
		if (space == SPACE_SHARED)
			s->shared_index = b->module->n_shared++;
		*ARENA_PUSH(b->arena, b->module->symbols, b->module->n_symbols, b->module->cap_symbols) = s;
		l->symbol = s;
		parse_initialiser(p, s, &d);
	}
	expect(p, ';');
}

static void declare_label(struct body *b, struct text name)
{
	for (uint32_t i = 0; i < b->n_labels; i++)
		if (b->labels[i].scope == b->scope && text_same(b->labels[i].name, name))
			fail(b->parser, PTX_SYNTAX, b->parser->token.line, "label %.*s twice", (int)name.n, name.s);
	*ARENA_PUSH(b->arena, b->labels, b->n_labels, b->cap_labels) =
		(struct label){ name, b->scope, b->function->n_code };
}

/* name: .branchtargets L1, L2; */
static void declare_targets(struct body *b, struct text name)
{
	struct parser *p = b->parser;
	struct local_name *l = add_name(b, name);
	uint32_t cap = 0;

	l->is_list = true;
	do {
		struct text target = expect_name(p);

		*ARENA_PUSH(b->arena, l->targets, l->n_targets, cap) = target;
	} while (accept(p, ','));
	expect(p, ';');
}

static void prototype_list(struct body *b, struct param_var **list, uint32_t *n, uint32_t *cap, uint32_t *total)
{
	struct parser *p = b->parser;

	expect(p, '(');
	while (!at_punct(p, ')')) {
		struct declaration d = { .space = SPACE_PARAM, .line = p->token.line };

		if (!accept_name(p, ".param"))
			fail(p, PTX_UNSUPPORTED, d.line, "prototype without .param");
		parse_declaration(p, &d);
		if (d.unsized || d.size > 1 << 20)
			fail(p, PTX_UNSUPPORTED, d.line, "such a prototype");
		*total = (*total + d.align - 1) & ~(d.align - 1);
		*ARENA_PUSH(b->arena, *list, *n, *cap) =
			(struct param_var){ d.name, *total, (uint32_t)d.size, d.align };
		*total += (uint32_t)d.size;
		if (*total > 1 << 20)
			fail(p, PTX_UNSUPPORTED, d.line, "such a prototype");
		if (!at_punct(p, ')'))
			expect(p, ',');
	}
	advance(p);
}

/* name: .callprototype (.param .b32 _) _ (.param .b64 _); */
static void declare_prototype(struct body *b, struct text name)
{
	struct parser *p = b->parser;
	struct function *f = arena_alloc(b->arena, sizeof *f);
	uint32_t total = 0;

	if (at_punct(p, '('))
		prototype_list(b, &f->returns, &f->n_returns, &f->cap_returns, &total);
	expect_name(p);
	if (at_punct(p, '('))
		prototype_list(b, &f->params, &f->n_params, &f->cap_params, &total);
	accept_name(p, ".noreturn");
	expect(p, ';');
	add_name(b, name)->prototype = f;
}

/* Splits `add.rn.f32` at its dots. */
static void split_opcode(struct body *b, struct statement *s)
{
	const char *at = s->text.s, *end = at + s->text.n, *dot = memchr(at, '.', s->text.n);

	s->opcode = (struct text){ at, (size_t)((dot ? dot : end) - at) };
	while (dot) {
		at = dot + 1;
		dot = memchr(at, '.', (size_t)(end - at));
		if (s->n_modifiers == MAX_MODIFIERS)
			fail(b->parser, PTX_SYNTAX, s->line, "too many modifiers");
		s->modifiers[s->n_modifiers++] = (struct text){ at, (size_t)((dot ? dot : end) - at) };
	}
}

static void parse_guard(struct body *b, struct statement *s)
{
	struct registers *r;
	struct text name;
	uint32_t n;

	s->guarded = true;
	s->guard_negated = accept(b->parser, '!');
	name = expect_name(b->parser);
	r = find_register(b, name, &n);
	if (!r || r->type != T_PRED)
		fail(b->parser, PTX_SYNTAX, s->line, "%.*s is no predicate", (int)name.n, name.s);
	if (!r->slots[n])
		r->slots[n] = slot_new(b);
	s->guard = r->slots[n];
}

/* Keep the first thing that we cannot run: an error only if a kernel can reach it. */
static void note_unsupported(struct body *b, const struct statement *s)
{
	struct function *f = b->function;
	char *text;

	if (f->unsupported)
		return;
	text = arena_alloc(b->arena, s->text.n + 1);
	memcpy(text, s->text.s, s->text.n);
	f->unsupported = text;
	f->unsupported_line = s->line;
}

/* A false guard jumps over all that the statement became. */
static void decode_statement(struct body *b, struct statement *s)
{
	const struct opcode *op = opcode_find(s->opcode);
	uint32_t start = b->function->n_code;

	if (s->guarded) {
		struct insn *i = emit(b, s, s->guard_negated ? run_guard_not : run_guard);

		i->a = s->guard;
	}
	s->variant = op ? op->variant : 0;
	if (!op || !op->decode(b, s) || !all_taken(s)) {
		note_unsupported(b, s);
		b->function->n_code = start;
		emit_visible(b, s, run_unsupported);
		return;
	}
	if (s->guarded)
		b->function->code[start].imm = b->function->n_code - start;
}

static void parse_instruction(struct body *b)
{
	struct statement *s = arena_alloc(b->arena, sizeof *s);
	struct parser *p = b->parser;

	s->line = p->token.line;
	if (accept(p, '@'))
		parse_guard(b, s);
	s->line = p->token.line;
	s->text = expect_name(p);
	split_opcode(b, s);
	parse_statement_operands(b, s);
	decode_statement(b, s);
}

/* A name at the start of a statement: a label or an opcode. */
static void parse_named(struct body *b)
{
	struct lexer ahead = b->parser->lexer;
	struct token next = lex_next(&ahead);
	struct text name = b->parser->token.text;

	if (next.kind != TOKEN_PUNCT || next.punct != ':') {
		parse_instruction(b);
		return;
	}
	advance(b->parser);
	advance(b->parser);
	if (accept_name(b->parser, ".branchtargets"))
		declare_targets(b, name);
	else if (accept_name(b->parser, ".callprototype"))
		declare_prototype(b, name);
	else if (accept_name(b->parser, ".calltargets"))
		skip_statement(b->parser); /* a hint only */
	else
		declare_label(b, name);
}

static void parse_body_directive(struct body *b)
{
	struct parser *p = b->parser;
	struct text name = p->token.text;
	enum space space = space_named(name);
	uint32_t line = p->token.line;

	if (text_is(name, ".loc") || text_is(name, ".file")) {
		lex_skip_line(&p->lexer);
		advance(p);
		return;
	}
	expect_name(p);
	if (space == SPACE_REG)
		declare_registers(b);
	else if (space != SPACE_NONE)
		declare_local_variable(b, space, false);
	else if (text_is(name, ".extern") && accept_name(p, ".shared"))
		declare_local_variable(b, SPACE_SHARED, true);
	else if (text_is(name, ".pragma"))
		skip_statement(p);
	else
		fail(p, PTX_UNSUPPORTED, line, "directive %.*s in a body", (int)(name.n < 60 ? name.n : 60), name.s);
}

static void open_scope(struct body *b)
{
	uint32_t parent = b->scope;

	b->scope = b->n_scopes;
	*ARENA_PUSH(b->arena, b->parents, b->n_scopes, b->cap_scopes) = parent;
}

/* What the scope declared is no longer found by name; its labels stay for the branches inside it. */
static void close_scope(struct body *b)
{
	while (b->n_registers && b->registers[b->n_registers - 1].scope == b->scope)
		b->n_registers--;
	while (b->n_names && b->names[b->n_names - 1].scope == b->scope)
		b->n_names--;
	b->scope = b->parents[b->scope];
}

static void resolve_fixups(struct body *b)
{
	for (uint32_t i = 0; i < b->n_fixups; i++) {
		struct fixup *fix = &b->fixups[i];
		const struct label *found = NULL;

		for (uint32_t k = 0; k < b->n_labels; k++)
			if (text_same(b->labels[k].name, fix->name) && in_scope(b, b->labels[k].scope, fix->scope) &&
			    (!found || b->labels[k].scope > found->scope))
				found = &b->labels[k];
		if (!found)
			fail(b->parser, PTX_SYNTAX, fix->line, "no label %.*s", (int)fix->name.n, fix->name.s);
		if (fix->table_entry) {
			*fix->table_entry = &b->function->code[found->index];
			continue;
		}
		b->function->code[fix->insn].target = &b->function->code[found->index];
		if (found->index <= fix->insn && b->function->code[fix->insn].run == run_bra)
			b->function->code[fix->insn].run = run_bra_back;
	}
}

/*
 * How far a thread may run from each instruction without another one noticing. A guard belongs to what it guards: the
 * instructions that it may skip.
 */
static void measure_spans(struct function *f)
{
	for (uint32_t n = f->n_code - 1; n--;) {
		struct insn *i = &f->code[n];
		uint32_t behind = i[1].span;

		if ((i->run == run_guard || i->run == run_guard_not) && i->imm - 1 > behind)
			i->span = 0;
		else if (i->span)
			i->span = behind < MAX_SPAN ? behind + 1 : 1;
	}
}

static void declare_formals(struct body *b)
{
	struct function *f = b->function;

	for (uint32_t i = 0; i < f->n_returns + f->n_params; i++) {
		const struct param_var *v = i < f->n_returns ? &f->returns[i] : &f->params[i - f->n_returns];
		struct local_name *l = add_name(b, v->name);

		l->offset = v->offset;
		l->size = v->size;
		l->is_param = true;
		l->kernel_param = f->entry;
	}
}

void parse_body(struct parser *p, struct function *function)
{
	struct body *b = arena_alloc(&p->module->arena, sizeof *b);
	struct statement end = { .line = p->token.line };
	uint32_t depth = 1;

	b->parser = p;
	b->module = p->module;
	b->arena = &p->module->arena;
	b->function = function;
	open_scope(b);
	b->sink = slot_new(b);
	declare_formals(b);
	expect(p, '{');
	while (depth) {
		if (p->token.kind == TOKEN_END)
			fail(p, PTX_SYNTAX, p->token.line, "no closing brace");
		if (accept(p, '{'))
			open_scope(b), depth++;
		else if (at_punct(p, '}'))
			close_scope(b), depth--, advance(p);
		else if (at_punct(p, '@'))
			parse_instruction(b);
		else if (accept(p, ';'))
			continue;
		else if (p->token.kind == TOKEN_NAME && p->token.text.s[0] == '.')
			parse_body_directive(b);
		else if (p->token.kind == TOKEN_NAME)
			parse_named(b);
		else
			fail(p, PTX_SYNTAX, p->token.line, "an instruction is expected");
	}
	emit_visible(b, &end, function->entry ? run_exit : run_ret);
	resolve_fixups(b);
	measure_spans(function);
	simd_prepare(b->arena, function);
}
