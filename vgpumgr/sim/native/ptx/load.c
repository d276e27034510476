/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: a module's top level is parsed, then linked. */
#include "parse.h"
#include "simd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_LIMIT = 1 << 30, PARAM_LIMIT = 32764 };

static struct function *function_add(struct parser *p, struct text name, bool entry)
{
	struct ptx_module *m = p->module;
	struct symbol *s = symbol_add(p, name);
	struct function *f = s->function = arena_alloc(&m->arena, sizeof *f);

	s->kind = SYMBOL_FUNCTION;
	f->symbol = s;
	f->entry = entry;
	f->n_slots = 1; /* cell 0 is never an operand: 0 means "none" */
	f->line = p->token.line;
	f->code_index = m->n_functions;
	*ARENA_PUSH(&m->arena, m->functions, m->n_functions, m->cap_functions) = f;
	return f;
}

static struct function *function_named(struct parser *p, struct text name, bool entry)
{
	struct symbol *s = symbol_declared(p, name);

	if (s && s->kind != SYMBOL_FUNCTION)
		fail(p, PTX_SYNTAX, p->token.line, "%.*s is a variable already", (int)name.n, name.s);
	if (s && s->function->entry != entry)
		fail(p, PTX_SYNTAX, p->token.line, "%.*s is declared twice, differently", (int)name.n, name.s);
	return s ? s->function : function_add(p, name, entry);
}

/* Of several weak definitions in different units the first one is taken. */
static bool may_define_again(const struct parser *p, const struct symbol *s)
{
	return p->weak && s->weak && s->born != p->module->unit;
}

static uint32_t place(struct parser *p, uint32_t *total, const struct declaration *d)
{
	uint64_t offset = ((uint64_t)*total + d->align - 1) & ~(uint64_t)(d->align - 1);

	if (offset + d->size > PARAM_LIMIT)
		fail(p, PTX_SYNTAX, d->line, "parameters take more than %d bytes", PARAM_LIMIT);
	*total = (uint32_t)(offset + d->size);
	return (uint32_t)offset;
}

/* ( .param ..., ... ): their places from *total on. A redeclaration replaces what an earlier one said. */
static void parse_params(struct parser *p, uint32_t *total, struct param_var **list, uint32_t *n, uint32_t *cap)
{
	*n = 0;
	expect(p, '(');
	while (!at_punct(p, ')')) {
		struct declaration d = { .line = p->token.line };
		struct param_var v;

		if (at_name(p, ".reg"))
			fail(p, PTX_UNSUPPORTED, d.line, "register parameters");
		if (!accept_name(p, ".param"))
			fail(p, PTX_SYNTAX, d.line, ".param is expected");
		d.space = SPACE_PARAM;
		parse_declaration(p, &d);
		if (d.unsized)
			fail(p, PTX_UNSUPPORTED, d.line, "variable argument lists");
		v = (struct param_var){ d.name, place(p, total, &d), (uint32_t)d.size, d.align };
		*ARENA_PUSH(&p->module->arena, *list, *n, *cap) = v;
		if (!at_punct(p, ')'))
			expect(p, ',');
	}
	advance(p);
}

static void parse_limit(struct parser *p, uint32_t dims[3])
{
	uint64_t v;
	int n = 0;

	do {
		v = expect_int(p);
		if (n == 3 || v > UINT32_MAX)
			fail(p, PTX_SYNTAX, p->token.line, "bad launch bound");
		dims[n++] = (uint32_t)v;
	} while (accept(p, ','));
}

static uint32_t volume(const uint32_t d[3])
{
	uint64_t v = (uint64_t)(d[0] ? d[0] : 1) * (d[1] ? d[1] : 1);

	if (v > MAX_REGISTERS)
		return MAX_REGISTERS;
	v *= d[2] ? d[2] : 1;
	return v > MAX_REGISTERS ? MAX_REGISTERS : (uint32_t)v;
}

static void limit_registers(struct ptx_kernel *k, uint64_t most)
{
	if (most && (!k->max_registers || most < k->max_registers))
		k->max_registers = most < MAX_REGISTERS ? (uint32_t)most : MAX_REGISTERS;
}

/* The number behind the words, 0 if it is another text. */
static uint64_t read_max_registers(struct text t)
{
	const size_t n = sizeof(PTX_MAX_REGISTERS) - 1;
	uint64_t most = 0;

	if (t.n <= n || memcmp(t.s, PTX_MAX_REGISTERS, n))
		return 0;
	for (size_t i = n; i < t.n && i < n + 9 && t.s[i] >= '0' && t.s[i] <= '9'; i++)
		most = most * 10 + (uint64_t)(t.s[i] - '0');
	return most;
}

/* A pragma that is not known is nothing. Ours is the driver's, at the end of a unit: an option of its compiler. */
static void parse_pragma(struct parser *p)
{
	struct ptx_module *m = p->module;
	uint64_t most = p->token.kind == TOKEN_STRING ? read_max_registers(p->token.text) : 0;

	for (uint32_t i = m->first_kernel; i < m->n_kernels; i++)
		limit_registers(&m->kernels[i], most);
	skip_statement(p);
}

/* The performance-tuning directives between a function's header and its body. */
static void parse_tuning(struct parser *p, struct ptx_kernel *k)
{
	while (p->token.kind == TOKEN_NAME) {
		struct text name = expect_name(p);
		uint32_t dims[3] = { 0 };

		if (text_is(name, ".maxntid") || text_is(name, ".reqntid")) {
			parse_limit(p, dims);
			k->max_threads = volume(dims);
			for (int i = 0; text_is(name, ".reqntid") && i < 3; i++)
				k->req[i] = dims[i] ? dims[i] : 1;
		} else if (text_is(name, ".maxnreg")) {
			limit_registers(k, expect_int(p));
		} else if (text_is(name, ".minnctapersm") || text_is(name, ".maxnctapersm")) {
			expect_int(p);
		} else if (text_is(name, ".reqnctapercluster")) {
			parse_limit(p, dims);
			for (int i = 0; i < 3; i++)
				k->req_cluster[i] = dims[i] ? dims[i] : 1;
		} else if (text_is(name, ".maxclusterrank")) {
			k->max_cluster = (uint32_t)expect_int(p);
		} else if (text_is(name, ".explicitcluster")) {
			k->explicit_cluster = true;
		} else if (text_is(name, ".pragma")) {
			skip_statement(p);
		} else if (!text_is(name, ".noreturn")) {
			fail(p, PTX_UNSUPPORTED, p->token.line, "directive %.*s", (int)name.n, name.s);
		}
	}
}

static void add_kernel(struct parser *p, struct function *f, const struct ptx_kernel *tuning, uint32_t bytes)
{
	struct ptx_module *m = p->module;
	struct ptx_kernel *k = ARENA_PUSH(&m->arena, m->kernels, m->n_kernels, m->cap_kernels);

	*k = *tuning;
	k->module = m;
	k->function = f;
	k->param_bytes = bytes;
	k->name = arena_alloc(&m->arena, f->symbol->name.n + 1);
	memcpy(k->name, f->symbol->name.s, f->symbol->name.n);
	k->params = arena_alloc(&m->arena, (f->n_params + 1) * sizeof *k->params);
	for (uint32_t i = 0; i < f->n_params; i++)
		k->params[i] = (struct ptx_param){ f->params[i].offset, f->params[i].size, f->params[i].align };
}

static void parse_function(struct parser *p, bool entry)
{
	struct ptx_kernel tuning = { .max_threads = 1024 };
	struct param_var *returns = NULL;
	uint32_t total = 0, n_returns = 0, cap_returns = 0;
	struct function *f, *defined = NULL;

	if (!entry && at_punct(p, '('))
		parse_params(p, &total, &returns, &n_returns, &cap_returns);
	f = function_named(p, expect_name(p), entry);
	if (f->has_body) {
		/* declared once more, or a second definition that nobody will see */
		defined = f;
		f = function_add(p, defined->symbol->name, entry);
		f->symbol->unit = UNIT_NONE;
	}
	f->returns = returns;
	f->n_returns = n_returns;
	f->n_params = 0;
	if (at_punct(p, '('))
		parse_params(p, &total, &f->params, &f->n_params, &f->cap_params);
	f->frame_bytes = entry ? 0 : total;
	parse_tuning(p, &tuning);
	if (accept(p, ';')) {
		if (defined)
			defined->declared = f;
		return;
	}
	if (defined && !may_define_again(p, defined->symbol))
		fail(p, PTX_SYNTAX, p->token.line, "%.*s has a body already", (int)f->symbol->name.n, f->symbol->name.s);
	f->has_body = true;
	f->symbol->weak = p->weak;
	if (entry && !defined)
		add_kernel(p, f, &tuning, total);
	parse_body(p, f);
}

static void parse_version(struct parser *p)
{
	struct text t = p->token.text;
	unsigned major = 0, minor = 0;
	size_t i = 0;

	for (; i < t.n && i < 3 && t.s[i] != '.'; i++)
		major = major * 10 + (unsigned)(t.s[i] - '0');
	for (i++; i < t.n && i < 6; i++)
		minor = minor * 10 + (unsigned)(t.s[i] - '0');
	if (p->token.kind != TOKEN_F64 || major < 1 || major > 99 || minor > 9)
		fail(p, PTX_SYNTAX, p->token.line, "bad version");
	p->module->version = major * 10 + minor;
	p->module->unit++;
	p->module->first_kernel = p->module->n_kernels;
	advance(p);
}

static void parse_target(struct parser *p)
{
	do {
		struct text name = expect_name(p);

		if (name.n > 3 && !memcmp(name.s, "sm_", 3)) {
			p->module->target = 0;
			for (size_t i = 3; i < name.n && i < 6 && name.s[i] >= '0' && name.s[i] <= '9'; i++)
				p->module->target = p->module->target * 10 + (uint32_t)(name.s[i] - '0');
		}
	} while (accept(p, ','));
}

static void parse_variable(struct parser *p, enum space space, bool is_extern)
{
	do {
		struct declaration d = { .space = space, .is_extern = is_extern, .line = p->token.line };

		parse_declaration(p, &d);
		parse_initialiser(p, declare_variable(p, &d), &d);
		if (at_punct(p, ','))
			fail(p, PTX_UNSUPPORTED, p->token.line, "several variables in one declaration");
	} while (accept(p, ','));
	expect(p, ';');
}

static void parse_directive(struct parser *p, bool is_extern)
{
	uint32_t line = p->token.line;
	struct text name = p->token.text;
	enum space space = space_named(name);

	if (text_is(name, ".loc") || text_is(name, ".file")) {
		lex_skip_line(&p->lexer);
		advance(p);
		return;
	}
	expect_name(p);
	if (text_is(name, ".version"))
		parse_version(p);
	else if (text_is(name, ".target"))
		parse_target(p);
	else if (text_is(name, ".entry") || text_is(name, ".func"))
		parse_function(p, text_is(name, ".entry"));
	else if (text_is(name, ".section"))
		expect_name(p), skip_braces(p);
	else if (text_is(name, ".pragma"))
		parse_pragma(p);
	else if (text_is(name, ".alias"))
		fail(p, PTX_UNSUPPORTED, line, "aliases");
	else if (text_is(name, ".address_size")) {
		if (expect_int(p) != 64)
			fail(p, PTX_UNSUPPORTED, line, "addresses that are not of 64 bits");
	} else if (space == SPACE_GLOBAL || space == SPACE_CONST || space == SPACE_SHARED)
		parse_variable(p, space, is_extern);
	else if (text_is(name, ".texref") || text_is(name, ".samplerref") || text_is(name, ".surfref") ||
		 text_is(name, ".tex"))
		fail(p, PTX_UNSUPPORTED, line, "textures and surfaces");
	else
		fail(p, PTX_SYNTAX, line, "unknown directive '%.*s'", (int)(name.n < 60 ? name.n : 60), name.s);
}

static void parse_module(struct parser *p)
{
	advance(p);
	if (!at_name(p, ".version"))
		fail(p, PTX_SYNTAX, p->token.line, "a module starts with .version");
	while (p->token.kind != TOKEN_END) {
		bool is_extern = false;

		p->external = p->weak = false;
		while (at_name(p, ".visible") || at_name(p, ".extern") || at_name(p, ".weak") || at_name(p, ".common")) {
			p->external = true;
			p->weak |= at_name(p, ".weak") || at_name(p, ".common");
			is_extern |= at_name(p, ".extern");
			advance(p);
		}
		if (accept(p, ';'))
			continue;
		parse_directive(p, is_extern);
	}
	if (!p->module->target)
		fail(p, PTX_SYNTAX, 1, "a module names its .target");
}

/* The parts of loading that may longjmp. */
static int load(struct parser *p, const char *text, size_t length, bool link)
{
	struct ptx_module *m = p->module;
	char *copy;

	if (setjmp(p->failure)) {
		if (p->status == PTX_OK) {
			p->error->status = PTX_NO_MEMORY;
			snprintf(p->error->message, sizeof p->error->message, "no memory for the module");
		}
		return p->error->status;
	}
	m->arena.failure = &p->failure;
	copy = arena_alloc(&m->arena, length + 1);
	memcpy(copy, text, length);
	m->text = copy;
	m->length = length;
	lex_init(&p->lexer, copy, length);
	parse_module(p);
	if (link)
		link_module(p);
	return PTX_OK;
}

static int make(const char *text, size_t length, const struct ptx_host *host, struct ptx_module **out,
		struct ptx_error *err)
{
	struct ptx_module *m = calloc(1, sizeof *m);
	struct parser *p = calloc(1, sizeof *p);
	int status = PTX_NO_MEMORY;

	*out = NULL;
	*err = (struct ptx_error){ PTX_NO_MEMORY, "no memory for the module" };
	if (m && p) {
		*err = (struct ptx_error){ PTX_OK, "" };
		if (host)
			m->host = *host;
		m->arena.limit = ARENA_LIMIT;
		p->module = m;
		p->error = err;
		status = load(p, text, length, host);
		m->arena.failure = NULL;
	}
	free(p);
	if (status == PTX_OK)
		*out = m;
	else if (m)
		ptx_module_unload(m);
	return status;
}

int ptx_module_load(const char *text, size_t length, const struct ptx_host *host, struct ptx_module **out,
		    struct ptx_error *err)
{
	return make(text, length, host, out, err);
}

uint32_t ptx_module_lane_instructions(const struct ptx_module *module)
{
	uint32_t lacks = 0;

	for (uint32_t n = 0; n < module->n_functions; n++)
		lacks += simd_lacks(module->functions[n]);
	return lacks;
}

int ptx_check(const char *text, size_t length, struct ptx_error *err)
{
	struct ptx_module *module;
	int status = make(text, length, NULL, &module, err);

	if (status == PTX_OK)
		ptx_module_unload(module);
	return status;
}
