/* SPDX-License-Identifier: Apache-2.0 */
/* PTX text as tokens. */
#ifndef PTX_LEX_H
#define PTX_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	const char *s;
	size_t n;
};

enum token_kind {
	TOKEN_END,
	TOKEN_BAD,    /* a character or number that is not PTX */
	TOKEN_NAME,   /* identifier, register, opcode with its modifiers, or directive (starts with a dot) */
	TOKEN_INT,    /* value in `bits` */
	TOKEN_F32,    /* 0fXXXXXXXX: bits */
	TOKEN_F64,    /* 0dXXXXXXXXXXXXXXXX or a decimal fraction: bits */
	TOKEN_STRING, /* text between the quotes */
	TOKEN_PUNCT,  /* one character in `punct` */
};

struct token {
	enum token_kind kind;
	char punct;
	struct text text;
	uint64_t bits;
	uint32_t line;
};

struct lexer {
	const char *at, *end;
	uint32_t line;
};

void lex_init(struct lexer *lexer, const char *text, size_t length);
struct token lex_next(struct lexer *lexer);
/* .loc and .file end with their line, not with a semicolon. */
void lex_skip_line(struct lexer *lexer);
/* The source line with this number, without leading blanks. */
struct text lex_line(const char *text, size_t length, uint32_t line);

bool text_is(struct text text, const char *word);
bool text_same(struct text a, struct text b);

#endif
