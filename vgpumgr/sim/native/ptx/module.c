/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded module: its symbols by name, and its end. */
#include "module.h"

#include <stdlib.h>

uint32_t module_bucket(struct text name)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < name.n; i++)
		hash = (hash ^ (unsigned char)name.s[i]) * 16777619u;
	return hash % BUCKETS;
}

struct symbol *module_find(const struct ptx_module *module, struct text name)
{
	struct symbol *s = module->buckets[module_bucket(name)];

	while (s && (!text_same(s->name, name) || (s->unit && s->unit != module->unit)))
		s = s->next;
	return s;
}

void ptx_module_unload(struct ptx_module *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_symbols; i++)
		if (m->symbols[i]->kind == SYMBOL_VARIABLE && m->symbols[i]->address)
			m->host.free(m->host.ctx, m->symbols[i]->address);
	arena_free(&m->arena);
	free(m);
}
