/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that device code may call without anybody defining them: those of CUDA's device run time we have. */
#include "control.h"
#include "ops.h"

#include <stdio.h>

static bool has_arguments(const struct insn *i, uint32_t n)
{
	return ((const struct call *)i->ext)->n_args == n;
}

static const struct insn *bad_call(struct thread *t, const struct insn *i)
{
	return fault(t, i, PTX_TRAP, "built-in function declared with other parameters");
}

/* int vprintf(const char *format, void *arguments) */
static HANDLER(call_vprintf)
{
	int32_t printed;

	if (!has_arguments(i, 2))
		return bad_call(t, i);
	if (!format_print(t, i, call_argument(t, i, 0), call_argument(t, i, 1), &printed))
		return NULL;
	call_return(t, i, (uint64_t)(int64_t)printed);
	return i + 1;
}

/* The form is that of the CUDA C++ Programming Guide, "Assertion". The first thread that fails is the one that is shown. */
static void write_assertion(const struct thread *t, u32 line, const char *message, const char *file, const char *function)
{
	struct grid *g = t->worker->grid;
	const uint32_t *block = t->worker->ctaid;

	pthread_mutex_lock(&g->lock);
	if (!g->stop)
		snprintf(g->error->assertion, sizeof g->error->assertion,
			 "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.", file, line, function,
			 block[0], block[1], block[2], t->tid[0], t->tid[1], t->tid[2], message);
	pthread_mutex_unlock(&g->lock);
}

/* void __assertfail(message, file, line, function, character size) */
static HANDLER(call_assertfail)
{
	char message[256], file[256], function[256];

	if (!has_arguments(i, 5))
		return bad_call(t, i);
	if (!read_string(t, i, call_argument(t, i, 0), message, sizeof message) ||
	    !read_string(t, i, call_argument(t, i, 1), file, sizeof file) ||
	    !read_string(t, i, call_argument(t, i, 3), function, sizeof function))
		return NULL;
	write_assertion(t, (u32)call_argument(t, i, 2), message, file, function);
	return fault(t, i, PTX_ASSERT, "%s:%u: %s: assertion `%s' failed", file, (u32)call_argument(t, i, 2), function,
		     message);
}

/* The heap is the host's memory: what is not freed lives as long as the context. */
static HANDLER(call_malloc)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	uint64_t size;

	if (!has_arguments(i, 1))
		return bad_call(t, i);
	size = call_argument(t, i, 0);
	call_return(t, i, size ? h->alloc(h->ctx, size, 16) : 0);
	return i + 1;
}

static HANDLER(call_free)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	uint64_t addr, base;

	if (!has_arguments(i, 1))
		return bad_call(t, i);
	addr = call_argument(t, i, 0);
	if (addr && (!h->translate(h->ctx, addr, 1, true, &base, NULL) || base != addr))
		return fault(t, i, PTX_TRAP, "free of 0x%llx, which malloc did not give", (unsigned long long)addr);
	if (addr)
		h->free(h->ctx, addr);
	memset(t->worker->cache, 0, sizeof t->worker->cache);
	return i + 1;
}

handler *builtin_named(struct text name)
{
	static const struct {
		const char *name;
		handler *run;
	} list[] = {
		{ "vprintf", call_vprintf },
		{ "__assertfail", call_assertfail },
		{ "malloc", call_malloc },
		{ "free", call_free },
	};

	for (unsigned k = 0; k < sizeof list / sizeof *list; k++)
		if (text_is(name, list[k].name))
			return list[k].run;
	return grid_function_named(name);
}
