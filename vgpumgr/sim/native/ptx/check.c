/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of the checks: kept for a launch, once for each instruction and kind, and printed where the kernel's are new. */
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>

enum { FINDINGS = 256 };

struct place {
	char text[500];
	size_t used;
};

struct finding {
	struct finding *next;
	const struct insn *insn;
	enum finding_kind kind;
	uint64_t count;
	char *text;
	size_t length;
	FILE *out;
};

/* ---- the places of instructions */

static bool begins(const char *line, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - line) > n && !memcmp(line, word, n);
}

static const char *line_before(const char *text, const char *line)
{
	if (line == text)
		return NULL;
	for (line--; line > text && line[-1] != '\n';)
		line--;
	return line;
}

static const char *skip_space(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	return at;
}

/* The name of file `number` of the unit that `from` is in: its .file lines may stand anywhere. */
static bool file_name(const struct ptx_module *m, const char *from, unsigned number, char name[200])
{
	const char *end = m->text + m->length, *line = from, *at;
	unsigned found;

	while ((at = line_before(m->text, line)) && !begins(line, end, ".version"))
		line = at;
	for (bool first = true; line && line < end; first = false) {
		at = skip_space(line, end);
		if (!first && begins(at, end, ".version") && at > from)
			return false;
		if (begins(at, end, ".file") && sscanf(at, ".file %u \"%199[^\"\n]", &found, name) == 2 && found == number)
			return true;
		line = memchr(line, '\n', (size_t)(end - line));
		line = line ? line + 1 : NULL;
	}
	return false;
}

static void put_source(const struct ptx_module *m, const char *from, unsigned file, unsigned line, const char *how, struct place *p)
{
	char name[200];
	const char *base;
	int n;

	if (!file_name(m, from, file, name))
		return;
	base = strrchr(name, '/');
	n = snprintf(p->text + p->used, sizeof p->text - p->used, "%s%s:%u, ", how, base ? base + 1 : name, line);
	p->used += n < 0 ? 0 : (size_t)n < sizeof p->text - p->used ? (size_t)n : sizeof p->text - p->used - 1;
}

/* The line of the source that the last .loc before the instruction names, and where that was inlined; empty: there is none. */
static void source_place(const struct ptx_module *m, uint32_t line, struct place *p)
{
	const char *end = m->text + m->length, *at = lex_line(m->text, m->length, line).s;
	unsigned file, number;

	while (at > m->text && at[-1] != '\n')
		at--;
	for (; at; at = line_before(m->text, at)) {
		const char *word = skip_space(at, end);

		if (begins(word, end, ".entry") || begins(word, end, ".visible") || begins(word, end, ".func"))
			return;
		if (!begins(word, end, ".loc") || sscanf(word, ".loc %u %u", &file, &number) != 2)
			continue;
		put_source(m, at, file, number, "", p);
		if (sscanf(word, ".loc %*u %*u %*u, function_name %*[^,], inlined_at %u %u", &file, &number) == 2)
			put_source(m, at, file, number, "inlined at ", p);
		return;
	}
}

void finding_place(FILE *out, const struct worker *w, uint32_t thread, const char *what, const struct insn *i)
{
	const struct ptx_module *m = w->grid->kernel->module;
	const uint32_t *tid = w->threads[thread].tid;
	struct text line = lex_line(m->text, m->length, i->line);
	struct place source = { .used = 0 };

	source_place(m, i->line, &source);
	fprintf(out, "=========     thread (%u,%u,%u) %s, at %sPTX line %u: %.*s\n", tid[0], tid[1], tid[2], what, source.text, i->line,
		(int)(line.n < 120 ? line.n : 120), line.s);
}

/* ---- findings of a launch */

FILE *finding_open(struct thread *t, const struct insn *i, enum finding_kind kind)
{
	struct grid *g = t->worker->grid;
	struct finding *f;
	uint32_t n = 0;

	for (f = g->findings; f; f = f->next, n++) {
		if (f->insn != i || f->kind != kind)
			continue;
		f->count++;
		return NULL;
	}
	f = n < FINDINGS ? calloc(1, sizeof *f) : NULL;
	if (!f)
		return NULL;
	*f = (struct finding){ .next = g->findings, .insn = i, .kind = kind, .count = 1 };
	f->out = open_memstream(&f->text, &f->length);
	if (!f->out) {
		free(f);
		return NULL;
	}
	g->findings = f;
	return f->out;
}

void finding_close(struct thread *t)
{
	struct finding *f = t->worker->grid->findings;
	const uint32_t *block = t->worker->ctaid;

	fprintf(f->out, "=========     in kernel %s, block (%u,%u,%u)", t->worker->grid->kernel->name, block[0], block[1], block[2]);
	fclose(f->out);
	f->out = NULL;
}

/* ---- findings of the process */

struct known {
	struct known *next;
	uint32_t line;
	enum finding_kind kind;
	char kernel[];
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *known;
static uint64_t n_known;

static bool is_new(const char *kernel, const struct finding *f)
{
	struct known *k;

	for (k = known; k; k = k->next)
		if (k->line == f->insn->line && k->kind == f->kind && !strcmp(k->kernel, kernel))
			return false;
	k = malloc(sizeof *k + strlen(kernel) + 1);
	if (k) {
		*k = (struct known){ known, f->insn->line, f->kind };
		strcpy(k->kernel, kernel);
		known = k;
	}
	n_known++;
	return true;
}

uint64_t ptx_findings(void)
{
	uint64_t n;

	pthread_mutex_lock(&known_lock);
	n = n_known;
	pthread_mutex_unlock(&known_lock);
	return n;
}

/* In the order in which they were found. */
static void print_list(const char *kernel, struct finding *f)
{
	if (!f)
		return;
	print_list(kernel, f->next);
	if (f->text && is_new(kernel, f))
		fprintf(stderr, "%s; %llu time%s in this launch\n", f->text, (unsigned long long)f->count, f->count == 1 ? "" : "s");
	free(f->text);
	free(f);
}

void findings_print(struct grid *g)
{
	if (!g->findings)
		return;
	pthread_mutex_lock(&known_lock);
	print_list(g->kernel->name, g->findings);
	fflush(stderr);
	pthread_mutex_unlock(&known_lock);
	g->findings = NULL;
}

/* ---- checkers */

struct checker *checker_new(const struct grid *g, const struct insn_facts *facts)
{
	struct checker *c = calloc(1, sizeof *c);
	uint32_t n = g->n_threads;

	if (!c)
		return NULL;
	c->facts = facts;
	c->checks = g->launch->checks;
	c->n_threads = n;
	c->clock = calloc(n, sizeof *c->clock);
	c->seen = calloc(n, sizeof *c->seen);
	c->acts = calloc(n, sizeof *c->acts);
	c->acts_then = calloc(n, sizeof *c->acts_then);
	c->bytes = calloc(g->shared_bytes + 1u, sizeof *c->bytes);
	c->written = calloc(g->shared_bytes + 1u, 1);
	if (c->clock && c->seen && c->acts && c->acts_then && c->bytes && c->written)
		return c;
	checker_free(c);
	return NULL;
}

void checker_free(struct checker *c)
{
	if (!c)
		return;
	order_mbarrier_free(c);
	for (uint32_t k = 0; k < BARRIERS; k++)
		free(c->arrived[k]);
	free(c->clock);
	free(c->seen);
	free(c->far);
	free(c->acts);
	free(c->acts_then);
	free(c->bytes);
	free(c->written);
	free(c);
}

/* A block begins. Its epoch is a new one, so that what the block before has done to these bytes is of the past. */
void checker_start(struct worker *w)
{
	struct checker *c = w->checker;

	order_mbarrier_free(c);
	order_all(c);
	c->checks = w->grid->launch->checks;
	memset(c->written, 0, w->grid->shared_bytes);
	memset(c->acts, 0, c->n_threads * sizeof *c->acts);
	memset(c->counts, 0, sizeof c->counts);
	memset(c->first, 0, sizeof c->first);
}
