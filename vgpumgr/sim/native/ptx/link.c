/* SPDX-License-Identifier: Apache-2.0 */
/* After parsing: what the kernels reach, where variables live, what constants are worth. */
#include "decode.h"

#include <stdio.h>
#include <string.h>

static void place_variable(struct parser *p, struct symbol *s)
{
	struct ptx_module *m = p->module;

	if (s->kind != SYMBOL_VARIABLE || s->space == SPACE_SHARED || !s->defined)
		return;
	s->address = m->host.alloc(m->host.ctx, s->size ? s->size : 1, s->align > 16 ? s->align : 16);
	if (!s->address)
		fail(p, PTX_NO_MEMORY, s->line, "no memory for variable %.*s", (int)s->name.n, s->name.s);
	if (s->space == SPACE_CONST)
		m->const_bytes += (uint32_t)s->size;
}

static uint64_t symbol_value(struct parser *p, const struct symbol *s, uint32_t line)
{
	if (s->kind == SYMBOL_FUNCTION)
		return WINDOW(WINDOW_CODE) + 1 + s->function->code_index;
	if (!s->address)
		fail(p, PTX_UNRESOLVED, line, "%.*s is declared here and defined nowhere", (int)s->name.n, s->name.s);
	return s->address;
}

static void fill_variable(struct parser *p, struct symbol *s)
{
	const struct ptx_host *h = &p->module->host;
	void *at;

	if (!s->image || !s->size)
		return;
	for (uint32_t i = 0; i < s->n_fixups; i++) {
		const struct initialiser *fix = &s->fixups[i];
		uint64_t value = symbol_value(p, fix->symbol, s->line) + (uint64_t)fix->addend;

		value = (value & fix->mask) >> fix->shift;
		memcpy(s->image + fix->offset, &value, fix->size);
	}
	at = h->translate(h->ctx, s->address, s->size, true, NULL, NULL);
	if (!at)
		fail(p, PTX_NO_MEMORY, s->line, "memory of variable %.*s cannot be written", (int)s->name.n, s->name.s);
	memcpy(at, s->image, s->size);
}

struct walk {
	struct parser *parser;
	struct ptx_kernel *kernel;
	bool *seen; /* by code_index */
	struct function **stack;
	uint32_t depth;
	uint64_t shared;
	uint32_t dynamic_align;
	uint64_t local;
};

static void place_shared(struct walk *w, const struct symbol *s)
{
	uint32_t *offset = &w->kernel->shared_offset[s->shared_index];

	if (s->is_extern) {
		if (s->align > w->dynamic_align)
			w->dynamic_align = s->align;
		return;
	}
	if (*offset != UINT32_MAX)
		return;
	w->shared = (w->shared + s->align - 1) & ~(uint64_t)(s->align - 1);
	*offset = (uint32_t)w->shared;
	w->shared += s->size;
	if (w->shared > 1 << 24)
		fail(w->parser, PTX_UNSUPPORTED, s->line, "more than 16 MiB of shared memory");
}

static void reach_function(struct walk *w, struct function *f)
{
	if (w->seen[f->code_index])
		return;
	w->seen[f->code_index] = true;
	w->stack[w->depth++] = f;
}

static void check_function(struct walk *w, struct function *f)
{
	f->reachable = true;
	if (f->unsupported && !w->kernel->refusal)
		w->kernel->refusal = describe(w->parser, f->unsupported_line, "%s is not supported", f->unsupported);
	if (!f->has_body && !f->builtin) {
		f->builtin = builtin_named(f->symbol->name);
		if (!f->builtin)
			fail(w->parser, PTX_UNRESOLVED, f->line, "function %.*s is declared and defined nowhere",
			     (int)f->symbol->name.n, f->symbol->name.s);
	}
}

/* Functions whose addresses lie in variables may be called by anybody. */
static void reach_initialisers(struct walk *w)
{
	const struct ptx_module *m = w->parser->module;

	for (uint32_t i = 0; i < m->n_symbols; i++)
		for (uint32_t k = 0; k < m->symbols[i]->n_fixups; k++) {
			struct symbol *target = m->symbols[i]->fixups[k].symbol;

			if (target->kind == SYMBOL_FUNCTION)
				reach_function(w, target->function);
		}
}

static void walk_kernel(struct parser *p, struct ptx_kernel *k)
{
	struct ptx_module *m = p->module;
	struct walk w = { .parser = p, .kernel = k };

	w.seen = arena_alloc(&m->arena, m->n_functions);
	w.stack = arena_alloc(&m->arena, m->n_functions * sizeof *w.stack);
	k->shared_offset = arena_alloc(&m->arena, (m->n_shared + 1) * sizeof *k->shared_offset);
	memset(k->shared_offset, 0xff, (m->n_shared + 1) * sizeof *k->shared_offset);
	reach_function(&w, k->function);
	reach_initialisers(&w);
	while (w.depth) {
		struct function *f = w.stack[--w.depth];

		check_function(&w, f);
		w.local += f->frame_bytes;
		for (uint32_t i = 0; i < f->n_uses; i++) {
			struct symbol *s = f->uses[i];

			if (s->kind == SYMBOL_FUNCTION)
				reach_function(&w, s->function);
			else if (s->space == SPACE_SHARED)
				place_shared(&w, s);
		}
	}
	k->static_shared = (uint32_t)w.shared;
	k->local_bytes = w.local > UINT32_MAX ? UINT32_MAX : (uint32_t)w.local;
	w.shared = (w.shared + 15) & ~(uint64_t)15;
	if (w.dynamic_align > 16)
		w.shared = (w.shared + w.dynamic_align - 1) & ~(uint64_t)(w.dynamic_align - 1);
	k->shared_offset[m->n_shared] = (uint32_t)w.shared;
	for (uint32_t i = 0; i < m->n_shared; i++)
		if (k->shared_offset[i] == UINT32_MAX)
			k->shared_offset[i] = (uint32_t)w.shared;
}

static void resolve_addresses(struct parser *p, struct function *f)
{
	for (uint32_t i = 0; i < f->n_inits; i++) {
		struct init *init = &f->inits[i];

		if (init->kind != INIT_ADDRESS)
			continue;
		init->value += symbol_value(p, init->symbol, f->line);
		init->kind = INIT_VALUE;
	}
}

/* A module whose kernels are all refused is refused itself, for the first one's reason. */
static void check_kernels(struct parser *p)
{
	struct ptx_module *m = p->module;

	for (uint32_t i = 0; i < m->n_kernels; i++)
		if (!m->kernels[i].refusal)
			return;
	if (!m->n_kernels)
		return;
	p->error->status = p->status = PTX_UNSUPPORTED;
	snprintf(p->error->message, sizeof p->error->message, "%s", m->kernels[0].refusal);
	longjmp(p->failure, 1);
}

void link_module(struct parser *p)
{
	struct ptx_module *m = p->module;

	for (uint32_t i = 0; i < m->n_kernels; i++)
		walk_kernel(p, &m->kernels[i]);
	check_kernels(p);
	for (uint32_t i = 0; i < m->n_symbols; i++)
		place_variable(p, m->symbols[i]);
	for (uint32_t i = 0; i < m->n_symbols; i++)
		fill_variable(p, m->symbols[i]);
	for (uint32_t i = 0; i < m->n_functions; i++)
		if (m->functions[i]->reachable)
			resolve_addresses(p, m->functions[i]);
}
