/* SPDX-License-Identifier: Apache-2.0 */
/* How a thread of a kernel ends its grid. */
#include "ops.h"

#include <stdarg.h>
#include <stdio.h>

const struct insn *fault(struct thread *t, const struct insn *i, enum ptx_status status, const char *format, ...)
{
	struct grid *g = t->worker->grid;
	const struct ptx_module *m = g->kernel->module;
	struct text line = lex_line(m->text, m->length, i->line);
	char message[256];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	pthread_mutex_lock(&g->lock);
	if (!g->stop) {
		g->error->status = status;
		snprintf(g->error->message, sizeof g->error->message,
			 "kernel %.100s, block (%u,%u,%u), thread (%u,%u,%u), line %u: %s: %.*s", g->kernel->name,
			 t->worker->ctaid[0], t->worker->ctaid[1], t->worker->ctaid[2], t->tid[0], t->tid[1], t->tid[2],
			 i->line, message, (int)(line.n < 100 ? line.n : 100), line.s);
		g->stop = true;
	}
	pthread_mutex_unlock(&g->lock);
	t->pc = i;
	return NULL;
}

HANDLER(run_unsupported)
{
	return fault(t, i, PTX_UNSUPPORTED, "instruction is not supported");
}
