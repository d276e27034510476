/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of accesses: where they lie, whether what they read was ever written, and who else touches the same bytes. */
#include "checks.h"

/* ---- where an address lies */

static const struct symbol *shared_variable(const struct grid *g, uint64_t addr)
{
	const struct ptx_module *m = g->kernel->module;
	const struct symbol *best = NULL;

	for (uint32_t n = 0; n < m->n_functions; n++) {
		const struct function *f = m->functions[n];

		for (uint32_t k = 0; k < f->n_uses; k++) {
			const struct symbol *s = f->uses[k];
			uint32_t *offsets = g->kernel->shared_offset;

			if (s->kind != SYMBOL_VARIABLE || s->space != SPACE_SHARED || s->is_extern || offsets[s->shared_index] > addr ||
			    offsets[s->shared_index] + s->size > g->kernel->static_shared)
				continue;
			if (!best || offsets[s->shared_index] > offsets[best->shared_index])
				best = s;
		}
	}
	return best;
}

static void describe_shared(FILE *out, const struct grid *g, uint64_t addr)
{
	const struct symbol *s = shared_variable(g, addr);
	uint64_t offset = s ? addr - g->kernel->shared_offset[s->shared_index] : 0;

	fprintf(out, "=========     address 0x%llx of shared memory", (unsigned long long)addr);
	if (addr >= g->shared_bytes)
		fprintf(out, ", %llu bytes behind the block's %u", (unsigned long long)(addr - g->shared_bytes), g->shared_bytes);
	else if (g->launch->dynamic_shared_bytes && addr >= g->dynamic_offset)
		fprintf(out, ", byte %llu of the %u that the launch asked for", (unsigned long long)(addr - g->dynamic_offset),
			g->launch->dynamic_shared_bytes);
	if (s && offset < s->size)
		fprintf(out, ", byte %llu of %.*s (%llu bytes)", (unsigned long long)offset, (int)s->name.n, s->name.s,
			(unsigned long long)s->size);
	else if (s && addr >= g->shared_bytes)
		fprintf(out, ", %llu bytes behind %.*s (%llu bytes)", (unsigned long long)(offset - s->size), (int)s->name.n,
			s->name.s, (unsigned long long)s->size);
	fputc('\n', out);
}

static void describe_global(FILE *out, const struct grid *g, uint64_t addr, uint32_t size)
{
	const struct ptx_host *h = &g->kernel->module->host;
	char text[256] = "";

	if (h->describe)
		h->describe(h->ctx, addr, size, text, sizeof text);
	fprintf(out, "=========     address 0x%llx%s%s\n", (unsigned long long)addr, *text ? ", " : "", text);
}

static const char *verb(char *text, size_t length, const char *how, uint32_t size)
{
	snprintf(text, length, "%s %u byte%s", how, size, size == 1 ? "" : "s");
	return text;
}

static const char *access_verb(const struct thread *t, const struct insn *i, bool write)
{
	return t->worker->checker->facts->is_atomic(i) ? "changes" : write ? "writes" : "reads";
}

/* ---- memory */

void check_bad_access(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write, const char *where)
{
	const struct grid *g = t->worker->grid;
	char text[64];
	FILE *out;

	if (!(t->worker->checker->checks & PTX_CHECK_MEMORY))
		return;
	out = finding_open(t, i, FINDING_BOUNDS);
	if (!out)
		return;
	fprintf(out, "========= memory: access out of bounds%s\n", where);
	finding_place(out, t->worker, t->index, verb(text, sizeof text, access_verb(t, i, write), size), i);
	if (!*where)
		describe_global(out, g, addr, size);
	else if (strstr(where, "shared"))
		describe_shared(out, g, addr);
	else if (strstr(where, "local"))
		fprintf(out, "=========     address 0x%llx of local memory; the thread has %u bytes\n", (unsigned long long)addr, t->local_used);
	else
		fprintf(out, "=========     byte %llu of the kernel's %u bytes of parameters\n", (unsigned long long)addr,
			g->kernel->param_bytes);
	finding_close(t);
}

void check_misaligned(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size)
{
	char text[64];
	FILE *out;

	if (!(t->worker->checker->checks & PTX_CHECK_MEMORY))
		return;
	out = finding_open(t, i, FINDING_MISALIGNED);
	if (!out)
		return;
	fprintf(out, "========= memory: misaligned access\n");
	finding_place(out, t->worker, t->index, verb(text, sizeof text, "accesses", size), i);
	fprintf(out, "=========     address 0x%llx, which is no multiple of %u\n", (unsigned long long)addr, size);
	finding_close(t);
}

static void report_unwritten(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool shared)
{
	FILE *out = finding_open(t, i, FINDING_UNWRITTEN);
	char text[64];

	if (!out)
		return;
	fprintf(out, "========= memory: %s memory is read that was never written\n", shared ? "shared" : "global");
	finding_place(out, t->worker, t->index, verb(text, sizeof text, access_verb(t, i, false), size), i);
	if (shared)
		describe_shared(out, t->worker->grid, addr);
	else
		describe_global(out, t->worker->grid, addr, size);
	finding_close(t);
}

/* `written` has a byte for each of the memory's. */
static void check_written(struct thread *t, const struct insn *i, uint8_t *written, uint64_t addr, uint32_t size, bool write,
			  bool shared)
{
	const struct insn_facts *facts = t->worker->checker->facts;
	bool reads = !write || (facts->is_atomic(i) && !facts->is_exchange(i));

	for (uint32_t k = 0; k < size && reads; k++)
		if (!written[k]) {
			report_unwritten(t, i, addr + k, size, shared);
			break;
		}
	if (write)
		memset(written, 1, size);
}

void check_global(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	struct checker *c = t->worker->checker;
	uint8_t *written;

	c->acts[t->index]++;
	if (!(c->checks & PTX_CHECK_MEMORY) || !h->written)
		return;
	written = h->written(h->ctx, addr);
	if (written)
		check_written(t, i, written, addr, size, write, false);
}

/* ---- races */

static void report_race(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write, const struct touch *other,
			bool other_wrote)
{
	FILE *out = finding_open(t, i, FINDING_RACE);
	char text[64];

	if (!out)
		return;
	fprintf(out, "========= race: two threads access the same byte of shared memory, with no barrier between them\n");
	finding_place(out, t->worker, t->index, verb(text, sizeof text, access_verb(t, i, write), size), i);
	finding_place(out, t->worker, other->thread,
		      verb(text, sizeof text, other->atomic ? "changed" : other_wrote ? "wrote" : "read", other->size), other->insn);
	describe_shared(out, t->worker->grid, addr);
	finding_close(t);
}

/* Does it matter to `thread` what the other one did? */
static bool conflicts(const struct checker *c, uint32_t thread, bool atomic, const struct touch *other)
{
	return other->insn && !(atomic && other->atomic) && !order_known(c, thread, other);
}

/* Of the readers the same thread's goes, or one that this one has seen, or the first. */
static void add_reader(const struct checker *c, struct byte_state *b, const struct touch *reader)
{
	uint32_t place = 0;

	for (uint32_t k = READERS; k-- > 0;)
		if (!b->readers[k].insn || order_known(c, reader->thread, &b->readers[k]))
			place = k;
	if (b->readers[place].insn && !order_known(c, reader->thread, &b->readers[place]))
		memmove(&b->readers[0], &b->readers[1], (READERS - 1) * sizeof *b->readers), place = READERS - 1;
	b->readers[place] = *reader;
}

/* The other side of a race at this byte, if there is one. */
static const struct touch *rival(const struct checker *c, const struct byte_state *b, const struct touch *mine, bool write, bool same)
{
	if (!same && conflicts(c, mine->thread, mine->atomic, &b->writer))
		return &b->writer;
	for (uint32_t k = 0; k < READERS && write; k++)
		if (conflicts(c, mine->thread, mine->atomic, &b->readers[k]))
			return &b->readers[k];
	return NULL;
}

static void touch_byte(const struct checker *c, struct byte_state *b, const struct touch *mine, bool write)
{
	if (write)
		*b = (struct byte_state){ .writer = *mine };
	else
		add_reader(c, b, mine);
}

static void check_race(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	struct checker *c = t->worker->checker;
	struct touch mine = { i, c->epoch, c->clock[t->index], (uint16_t)t->index, c->facts->is_atomic(i), (uint8_t)size };
	uint8_t value[32];
	bool known = write && c->facts->store_value(i, t->r, value), found = false;

	for (uint32_t k = 0; k < size; k++) {
		struct byte_state *b = &c->bytes[addr + k];
		bool same = known && t->worker->shared[addr + k] == value[k];
		const struct touch *other = found ? NULL : rival(c, b, &mine, write, same);

		if (other) {
			report_race(t, i, addr + k, size, write, other, other == &b->writer);
			found = true;
		}
		touch_byte(c, b, &mine, write);
	}
}

void check_shared(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write)
{
	struct checker *c = t->worker->checker;

	c->acts[t->index]++;
	if (c->checks & PTX_CHECK_MEMORY)
		check_written(t, i, c->written + addr, addr, size, write, true);
	if (c->checks & PTX_CHECK_RACE)
		check_race(t, i, addr, size, write);
}

void check_remote(const struct worker *owner, uint64_t addr, uint32_t size, bool write)
{
	if (write && owner->checker->written)
		memset(owner->checker->written + addr, 1, size);
}
