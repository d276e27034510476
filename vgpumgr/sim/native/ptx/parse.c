/* SPDX-License-Identifier: Apache-2.0 */
/* The parser's basics: one token ahead, errors, and a module's new symbols. */
#include "parse.h"

#include <stdarg.h>
#include <stdio.h>

enum { MESSAGE = sizeof ((struct ptx_error *)NULL)->message };

static void write_message(struct parser *p, char out[MESSAGE], uint32_t line, const char *format, va_list args)
{
	struct text source = lex_line(p->module->text, p->module->length, line);
	char message[320];

	vsnprintf(message, sizeof message, format, args);
	snprintf(out, MESSAGE, "line %u: %s: %.*s", line, message, (int)(source.n < 120 ? source.n : 120), source.s);
}

void fail(struct parser *p, enum ptx_status status, uint32_t line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_message(p, p->error->message, line, format, args);
	va_end(args);
	p->error->status = p->status = status;
	longjmp(p->failure, 1);
}

char *describe(struct parser *p, uint32_t line, const char *format, ...)
{
	char *message = arena_alloc(&p->module->arena, MESSAGE);
	va_list args;

	va_start(args, format);
	write_message(p, message, line, format, args);
	va_end(args);
	return message;
}

void advance(struct parser *p)
{
	p->token = lex_next(&p->lexer);
	if (p->token.kind == TOKEN_BAD)
		fail(p, PTX_SYNTAX, p->token.line, "not PTX: '%.*s'",
		     (int)(p->token.text.n < 40 ? p->token.text.n : 40), p->token.text.s);
}

bool at_punct(const struct parser *p, char c)
{
	return p->token.kind == TOKEN_PUNCT && p->token.punct == c;
}

bool at_name(const struct parser *p, const char *word)
{
	return p->token.kind == TOKEN_NAME && text_is(p->token.text, word);
}

bool accept(struct parser *p, char c)
{
	if (!at_punct(p, c))
		return false;
	advance(p);
	return true;
}

bool accept_name(struct parser *p, const char *word)
{
	if (!at_name(p, word))
		return false;
	advance(p);
	return true;
}

void expect(struct parser *p, char c)
{
	if (!accept(p, c))
		fail(p, PTX_SYNTAX, p->token.line, "'%c' expected before '%.*s'", c,
		     (int)(p->token.text.n < 40 ? p->token.text.n : 40), p->token.text.s);
}

struct text expect_name(struct parser *p)
{
	struct text name = p->token.text;

	if (p->token.kind != TOKEN_NAME)
		fail(p, PTX_SYNTAX, p->token.line, "a name is expected");
	advance(p);
	return name;
}

uint64_t expect_int(struct parser *p)
{
	uint64_t value = p->token.bits;

	if (p->token.kind != TOKEN_INT)
		fail(p, PTX_SYNTAX, p->token.line, "an integer is expected");
	advance(p);
	return value;
}

/* Debugging sections hold nothing that runs. */
void skip_braces(struct parser *p)
{
	uint32_t depth = 1, line = p->token.line;

	expect(p, '{');
	while (depth) {
		if (p->token.kind == TOKEN_END)
			fail(p, PTX_SYNTAX, line, "no closing brace");
		depth += at_punct(p, '{');
		depth -= at_punct(p, '}');
		advance(p);
	}
}

void skip_statement(struct parser *p)
{
	while (!at_punct(p, ';')) {
		if (p->token.kind == TOKEN_END)
			fail(p, PTX_SYNTAX, p->token.line, "no closing semicolon");
		advance(p);
	}
	advance(p);
}

struct symbol *symbol_add(struct parser *p, struct text name)
{
	struct ptx_module *m = p->module;
	struct symbol *s = arena_alloc(&m->arena, sizeof *s);
	uint32_t hash = module_bucket(name);

	s->name = name;
	s->line = p->token.line;
	s->born = m->unit;
	s->unit = p->external ? 0 : m->unit;
	s->next = m->buckets[hash];
	m->buckets[hash] = s;
	*ARENA_PUSH(&m->arena, m->symbols, m->n_symbols, m->cap_symbols) = s;
	return s;
}

struct symbol *symbol_declared(struct parser *p, struct text name)
{
	struct symbol *s = module_find(p->module, name);

	if (s && !p->external && s->born != p->module->unit)
		return NULL;
	if (s && p->external)
		s->unit = 0;
	return s;
}
