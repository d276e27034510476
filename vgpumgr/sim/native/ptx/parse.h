/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser's own state. An error leaves through longjmp to ptx_module_load: everything the parser makes lives in the
 * module's arena, so there is nothing to unwind.
 */
#ifndef PTX_PARSE_H
#define PTX_PARSE_H

#include "module.h"

enum { MAX_MODIFIERS = 24, MAX_OPERANDS = 16, MAX_ELEMENTS = 64, MAX_REGISTERS = 1 << 20, MAX_DEPTH = 64 };

struct parser {
	struct ptx_module *module;
	struct lexer lexer;
	struct token token; /* the next one */
	struct ptx_error *error;
	jmp_buf failure;
	enum ptx_status status;
	bool external; /* what is declared now: other units see it, */
	bool weak;     /* and may define it, too */
};

/* parser basics: parse.c */
_Noreturn void fail(struct parser *p, enum ptx_status status, uint32_t line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The message of such an error: line, what is said of it, and the source line. */
char *describe(struct parser *p, uint32_t line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void advance(struct parser *p);
bool at_punct(const struct parser *p, char c);
bool at_name(const struct parser *p, const char *word);
bool accept(struct parser *p, char c);
bool accept_name(struct parser *p, const char *word);
void expect(struct parser *p, char c);
struct text expect_name(struct parser *p);
uint64_t expect_int(struct parser *p);
void skip_braces(struct parser *p);
void skip_statement(struct parser *p);
struct symbol *symbol_add(struct parser *p, struct text name);
/* What a declaration of that name is about, or NULL: not what another unit has under the same name, unless both share. */
struct symbol *symbol_declared(struct parser *p, struct text name);

/* declarations: declare.c */
struct declaration {
	struct text name;
	enum space space;
	enum type type;
	uint32_t align, vector, line;
	uint64_t size;  /* bytes in all */
	bool is_extern, managed;
	bool unsized;   /* name[] */
	uint32_t count; /* registers: name<count> */
};
/* Names the state space that the directive `text` stands for, else SPACE_NONE. */
enum space space_named(struct text text);
/* The rest of a declaration behind its state space, up to and including the name and its dimensions. */
void parse_declaration(struct parser *p, struct declaration *d);
struct symbol *declare_variable(struct parser *p, const struct declaration *d);
/* .global and .const variables: `= ...`, where present. */
void parse_initialiser(struct parser *p, struct symbol *symbol, const struct declaration *d);

/* Function bodies: function.c; their operands: operand.c. */
struct registers {
	struct text name; /* prefix, where count is not 0 */
	uint32_t count;
	enum type type;
	uint32_t *slots;  /* 0: not used yet */
	uint32_t scope;
};

struct local_name { /* a variable of the body: .local, .param, or a .shared or .global one */
	struct text name;
	uint32_t scope;
	struct symbol *symbol; /* NULL: in the frame, at `offset` */
	uint32_t offset, size;
	bool is_param, kernel_param;
	struct text *targets;  /* .branchtargets */
	uint32_t n_targets;
	struct function *prototype;
	bool is_list;
};

struct label {
	struct text name;
	uint32_t scope, index;
};

struct fixup { /* a branch whose label may come later */
	uint32_t insn, scope, line;
	struct text name;
	const struct insn **table_entry; /* brx.idx */
};

enum operand_kind { O_NONE, O_REG, O_INT, O_F32, O_F64, O_SYMBOL, O_FRAME, O_KERNEL_PARAM, O_ADDRESS, O_TEXEL, O_VECTOR, O_LIST, O_NAME, O_SINK };

/* A part of a register, as video instructions name it: %r1.b0 */
enum selector { SELECT_ALL, SELECT_B0, SELECT_B1, SELECT_B2, SELECT_B3, SELECT_H0, SELECT_H1 };

struct operand {
	enum operand_kind kind;
	enum selector selector;
	bool negated;          /* !p */
	bool has_pair;         /* d|p */
	uint32_t slot, pair;
	enum type type;        /* of the register */
	uint64_t bits;         /* literal; byte of the frame or of the parameters */
	int64_t offset;
	struct symbol *symbol;
	struct local_name *local;
	struct text name;
	enum operand_kind base; /* O_ADDRESS: what the address starts from */
	struct operand *elements;
	uint32_t n;
};

struct statement {
	struct text text;     /* whole opcode */
	struct text opcode;
	struct text modifiers[MAX_MODIFIERS];
	uint32_t n_modifiers, used;
	struct operand operands[MAX_OPERANDS];
	uint32_t n;
	uint32_t line, variant;
	bool guarded, guard_negated;
	uint32_t guard;
};

enum { CONST_BUCKETS = 512 };

struct body {
	struct parser *parser;
	struct ptx_module *module;
	struct arena *arena;
	struct function *function;
	struct registers *registers;
	uint32_t n_registers, cap_registers;
	struct local_name *names;
	uint32_t n_names, cap_names;
	struct label *labels;
	uint32_t n_labels, cap_labels;
	struct fixup *fixups;
	uint32_t n_fixups, cap_fixups;
	uint32_t *parents; /* of scopes */
	uint32_t n_scopes, cap_scopes;
	uint32_t scope;
	uint32_t total_registers;
	uint32_t constants[CONST_BUCKETS]; /* index + 1 of the newest init in the bucket */
	uint32_t *constant_next;
	uint32_t cap_constant_next;
	uint32_t sink;     /* slot for results that are not used */
	uint32_t guard_at; /* code index where the current statement starts */
};

void parse_body(struct parser *p, struct function *function);
void parse_statement_operands(struct body *b, struct statement *s);

/* what a body has: body.c */
uint32_t slot_new(struct body *b);
uint32_t slot_const(struct body *b, enum init_kind kind, uint64_t value, struct symbol *symbol);
void body_uses(struct body *b, struct symbol *symbol);
bool in_scope(const struct body *b, uint32_t scope, uint32_t from);
struct registers *find_register(struct body *b, struct text name, uint32_t *number);
struct local_name *find_local(struct body *b, struct text name);

/* linking: link.c */
void link_module(struct parser *p);

/* built-in functions: builtin.c */
handler *builtin_named(struct text name);

#endif
