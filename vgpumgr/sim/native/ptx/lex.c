/* SPDX-License-Identifier: Apache-2.0 */
#include "lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool text_is(struct text text, const char *word)
{
	return strlen(word) == text.n && !memcmp(text.s, word, text.n);
}

bool text_same(struct text a, struct text b)
{
	return a.n == b.n && !memcmp(a.s, b.s, a.n);
}

void lex_init(struct lexer *lexer, const char *text, size_t length)
{
	const char *nul = memchr(text, 0, length);

	*lexer = (struct lexer){ text, nul ? nul : text + length, 1 };
}

void lex_skip_line(struct lexer *lexer)
{
	while (lexer->at < lexer->end && *lexer->at != '\n')
		lexer->at++;
}

struct text lex_line(const char *text, size_t length, uint32_t line)
{
	const char *at = text, *end = text + length, *stop;

	while (line > 1 && at < end)
		if (*at++ == '\n')
			line--;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	for (stop = at; stop < end && *stop && *stop != '\n' && *stop != '\r';)
		stop++;
	return (struct text){ at, (size_t)(stop - at) };
}

/* Leaves `at` behind the comment; an unclosed one runs to the end. */
static bool skip_comment(struct lexer *l)
{
	if (l->end - l->at < 2 || l->at[0] != '/')
		return false;
	if (l->at[1] == '/') {
		lex_skip_line(l);
		return true;
	}
	if (l->at[1] != '*')
		return false;
	for (l->at += 2; l->at < l->end; l->at++) {
		if (*l->at == '\n')
			l->line++;
		if (*l->at == '*' && l->end - l->at > 1 && l->at[1] == '/') {
			l->at += 2;
			return true;
		}
	}
	return true;
}

static void skip_blank(struct lexer *l)
{
	while (l->at < l->end) {
		if (*l->at == '\n')
			l->line++;
		if (isspace((unsigned char)*l->at))
			l->at++;
		else if (!skip_comment(l))
			return;
	}
}

static bool name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/*
 * A name; `::` belongs to it inside a modifier such as .L2::128B. An opcode and its modifiers are one name; directives are
 * not, so that `.reg.b32` and `.reg .b32` are the same two (PTX ISA 4.3.1: a directive is a dot and a keyword).
 */
static void lex_name(struct lexer *l, struct token *t)
{
	const char *start = l->at;

	t->kind = TOKEN_NAME;
	for (;;) {
		if (l->at > start && l->at < l->end && *l->at == '.' && *start == '.')
			break;
		if (l->at < l->end && name_char(*l->at))
			l->at++;
		else if (l->end - l->at > 2 && l->at[0] == ':' && l->at[1] == ':' && name_char(l->at[2]))
			l->at += 2;
		else
			break;
	}
	t->text = (struct text){ start, (size_t)(l->at - start) };
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

static void lex_digits(struct lexer *l, struct token *t, int base, int exact)
{
	const char *start = l->at;

	while (l->at < l->end && digit(*l->at) < base) {
		if (t->bits > (UINT64_MAX - (uint64_t)digit(*l->at)) / (uint64_t)base)
			t->kind = TOKEN_BAD;
		t->bits = t->bits * (uint64_t)base + (uint64_t)digit(*l->at++);
	}
	if (l->at == start || (exact && l->at - start != exact))
		t->kind = TOKEN_BAD;
}

/* 1.5, .5e-3, 2e8: decimal fractions are double precision. */
static bool lex_fraction(struct lexer *l, struct token *t)
{
	char buffer[64];
	const char *p = l->at;
	bool fraction = false;
	double value;

	while (p < l->end && (isdigit((unsigned char)*p) || *p == '.' || *p == 'e' || *p == 'E' ||
			      ((*p == '-' || *p == '+') && (p[-1] == 'e' || p[-1] == 'E')))) {
		fraction |= !isdigit((unsigned char)*p);
		p++;
	}
	if (!fraction || (size_t)(p - l->at) >= sizeof buffer)
		return false;
	memcpy(buffer, l->at, (size_t)(p - l->at));
	buffer[p - l->at] = 0;
	value = strtod(buffer, NULL);
	memcpy(&t->bits, &value, sizeof value);
	t->kind = TOKEN_F64;
	l->at = p;
	return true;
}

static void lex_number(struct lexer *l, struct token *t)
{
	char second = l->end - l->at > 1 ? l->at[1] : 0;

	t->kind = TOKEN_INT;
	if (l->at[0] == '0' && second && strchr("xXbBfFdD", second)) {
		l->at += 2;
		if (second == 'f' || second == 'F')
			t->kind = TOKEN_F32, lex_digits(l, t, 16, 8);
		else if (second == 'd' || second == 'D')
			t->kind = TOKEN_F64, lex_digits(l, t, 16, 16);
		else
			lex_digits(l, t, second == 'x' || second == 'X' ? 16 : 2, 0);
	} else if (lex_fraction(l, t)) {
		return;
	} else {
		lex_digits(l, t, l->at[0] == '0' && isdigit((unsigned char)second) ? 8 : 10, 0);
	}
	if (t->kind == TOKEN_INT && l->at < l->end && *l->at == 'U')
		l->at++;
	if (l->at < l->end && name_char(*l->at))
		t->kind = TOKEN_BAD;
}

static void lex_string(struct lexer *l, struct token *t)
{
	const char *start = ++l->at;

	while (l->at < l->end && *l->at != '"' && *l->at != '\n')
		l->at += *l->at == '\\' && l->end - l->at > 1 && l->at[1] != '\n' ? 2 : 1;
	t->text = (struct text){ start, (size_t)(l->at - start) };
	t->kind = l->at < l->end && *l->at == '"' ? TOKEN_STRING : TOKEN_BAD;
	if (t->kind == TOKEN_STRING)
		l->at++;
}

struct token lex_next(struct lexer *l)
{
	struct token t = { TOKEN_END };
	const char *start;
	char c;

	skip_blank(l);
	t.line = l->line;
	start = l->at;
	if (l->at >= l->end) {
		t.text = (struct text){ l->end, 0 };
		return t;
	}
	c = *l->at;
	if (isdigit((unsigned char)c) || (c == '.' && l->end - l->at > 1 && isdigit((unsigned char)l->at[1]))) {
		lex_number(l, &t);
	} else if (name_char(c)) {
		lex_name(l, &t);
	} else if (c == '"') {
		lex_string(l, &t);
	} else if (strchr("{}[]()<>,;:+-*/!@|=&~^?", c)) {
		t.kind = TOKEN_PUNCT;
		t.punct = c;
		l->at++;
	} else {
		t.kind = TOKEN_BAD;
		l->at++;
	}
	if (t.kind != TOKEN_STRING && t.kind != TOKEN_NAME)
		t.text = (struct text){ start, (size_t)(l->at - start) };
	return t;
}
