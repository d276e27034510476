/* SPDX-License-Identifier: Apache-2.0 */
/* What a function's body has: register cells, constants, and names in their scopes. */
#include "parse.h"

#include <string.h>

uint32_t slot_new(struct body *b)
{
	if (b->function->n_slots >= MAX_REGISTERS)
		fail(b->parser, PTX_SYNTAX, b->parser->token.line, "too many registers");
	return b->function->n_slots++ * WARP;
}

static uint32_t constant_hash(enum init_kind kind, uint64_t value, const struct symbol *symbol)
{
	uint64_t h = (value ^ (uintptr_t)symbol ^ (uint64_t)kind << 60) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(h >> 40) % CONST_BUCKETS;
}

uint32_t slot_const(struct body *b, enum init_kind kind, uint64_t value, struct symbol *symbol)
{
	struct function *f = b->function;
	uint32_t *bucket = &b->constants[constant_hash(kind, value, symbol)];
	uint32_t n = 0, count = f->n_inits;
	struct init *init;

	for (uint32_t i = *bucket; i; i = b->constant_next[i - 1]) {
		init = &f->inits[i - 1];
		if (init->kind == kind && init->value == value && init->symbol == symbol)
			return init->slot;
	}
	n = slot_new(b);
	*ARENA_PUSH(b->arena, f->inits, f->n_inits, f->cap_inits) = (struct init){ kind, n, value, symbol };
	*ARENA_PUSH(b->arena, b->constant_next, count, b->cap_constant_next) = *bucket;
	*bucket = f->n_inits;
	return n;
}

void body_uses(struct body *b, struct symbol *symbol)
{
	struct function *f = b->function;

	for (uint32_t i = 0; i < f->n_uses; i++)
		if (f->uses[i] == symbol)
			return;
	*ARENA_PUSH(b->arena, f->uses, f->n_uses, f->cap_uses) = symbol;
}

bool in_scope(const struct body *b, uint32_t scope, uint32_t from)
{
	for (;;) {
		if (from == scope)
			return true;
		if (!from)
			return false;
		from = b->parents[from];
	}
}

struct registers *find_register(struct body *b, struct text name, uint32_t *number)
{
	size_t stem = name.n;
	uint64_t n = 0;

	while (stem > 0 && name.s[stem - 1] >= '0' && name.s[stem - 1] <= '9')
		stem--;
	for (size_t i = stem; i < name.n && n < MAX_REGISTERS; i++)
		n = n * 10 + (uint64_t)(name.s[i] - '0');
	for (uint32_t i = b->n_registers; i--;) {
		struct registers *r = &b->registers[i];

		*number = 0;
		if (!r->count && text_same(r->name, name))
			return r;
		*number = (uint32_t)n;
		/* the number is what stands behind the prefix, which may end in digits itself */
		if (r->count && r->name.n <= name.n && r->name.n >= stem && !memcmp(r->name.s, name.s, r->name.n) &&
		    r->name.n < name.n) {
			for (n = 0, stem = r->name.n; stem < name.n && n < MAX_REGISTERS; stem++)
				n = n * 10 + (uint64_t)(name.s[stem] - '0');
			*number = (uint32_t)n;
			if (n < r->count)
				return r;
			return NULL;
		}
	}
	return NULL;
}

struct local_name *find_local(struct body *b, struct text name)
{
	for (uint32_t i = b->n_names; i--;)
		if (in_scope(b, b->names[i].scope, b->scope) && text_same(b->names[i].name, name))
			return &b->names[i];
	return NULL;
}
