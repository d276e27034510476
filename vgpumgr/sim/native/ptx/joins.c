/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the warp-wide engine knows of a function before it runs: the wide form of each instruction, and for each one at which
 * lanes may part its immediate post-dominator, by the algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance
 * Algorithm") on the reversed graph of its instructions.
 */
#include "control.h"
#include "ops.h"

#include <stdlib.h>

enum { FORM_BUCKETS = 4096 };
static const struct wide_form *forms[FORM_BUCKETS];
static bool vectors;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* by the linker */
extern const struct wide_form *const __start_ptx_wide[] __attribute__((visibility("hidden")));
extern const struct wide_form *const __stop_ptx_wide[] __attribute__((visibility("hidden")));

static uint32_t form_bucket(handler *run)
{
	return (uint32_t)((uintptr_t)run * 0x9e3779b97f4a7c15u >> 52) % FORM_BUCKETS;
}

static void read_forms(void)
{
	const char *wish = getenv("VGPUMGR_SIM_ENGINE");

#ifdef __x86_64__
	__builtin_cpu_init();
	/* all that SIMD_VECTOR names */
	vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
		  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("popcnt");
#endif
	vectors &= !wish || strcmp(wish, "baseline");
	for (const struct wide_form *const *f = __start_ptx_wide; f < __stop_ptx_wide; f++) {
		uint32_t n = form_bucket((*f)->run);

		while (forms[n])
			n = (n + 1) % FORM_BUCKETS;
		forms[n] = *f;
	}
}

static wide_handler *wide_of(handler *run)
{
	for (uint32_t n = form_bucket(run); forms[n]; n = (n + 1) % FORM_BUCKETS)
		if (forms[n]->run == run)
			return vectors ? forms[n]->vector : forms[n]->plain;
	return simd_each;
}

uint32_t simd_lacks(const struct function *f)
{
	uint32_t lacks = 0;

	for (uint32_t n = 0; n < f->n_code; n++) /* the cells of operands lie in instructions that never run */
		lacks += f->code[n].wide == simd_each && f->code[n].run != run_unsupported;
	return lacks;
}

/* ---- post-dominators; node n_code is the end of the function */

struct graph {
	const struct function *f;
	uint32_t n;
	uint32_t *first, *from; /* predecessors of node v: from[first[v]] to from[first[v + 1] - 1] */
	uint32_t *order;        /* nodes in the order in which the walk from the end leaves them */
	uint32_t *place;        /* of a node in it, from 1 on; 0: the end is not reached from there */
	uint32_t *up;           /* immediate post-dominator; n_code + 1: not known yet */
	uint32_t walked;
};

static uint32_t successors(const struct graph *g, uint32_t v, uint32_t k)
{
	const struct insn *i = &g->f->code[v], *const *targets;
	uint32_t n;

	switch (flow_of(i, &targets, &n)) {
	case FLOW_GUARD:
		return k == 0 ? v + 1 : k == 1 ? v + (uint32_t)i->imm : UINT32_MAX;
	case FLOW_JUMP:
		return k ? UINT32_MAX : (uint32_t)(i->target - g->f->code);
	case FLOW_TABLE:
		return k < n ? (uint32_t)(targets[k] - g->f->code) : UINT32_MAX;
	case FLOW_END:
		return k ? UINT32_MAX : g->n;
	default:
		return k ? UINT32_MAX : v + 1;
	}
}

static void find_predecessors(struct graph *g, struct arena *arena)
{
	uint32_t total = 0, to;

	g->first = arena_alloc(arena, (g->n + 2) * sizeof *g->first);
	for (uint32_t v = 0; v < g->n; v++)
		for (uint32_t k = 0; (to = successors(g, v, k)) != UINT32_MAX; k++)
			g->first[to]++;
	for (uint32_t v = 0; v <= g->n; v++) {
		total += g->first[v];
		g->first[v] = total;
	}
	g->first[g->n + 1] = total;
	g->from = arena_alloc(arena, (total + 1) * sizeof *g->from);
	for (uint32_t v = 0; v < g->n; v++)
		for (uint32_t k = 0; (to = successors(g, v, k)) != UINT32_MAX; k++)
			g->from[--g->first[to]] = v;
}

static void walk(struct graph *g, struct arena *arena)
{
	uint32_t *stack = arena_alloc(arena, (g->n + 1) * sizeof *stack), depth = 1;
	uint32_t *edge = arena_alloc(arena, (g->n + 1) * sizeof *edge);
	bool *seen = arena_alloc(arena, g->n + 1);

	stack[0] = g->n;
	seen[g->n] = true;
	while (depth) {
		uint32_t v = stack[depth - 1], at = g->first[v] + edge[v];

		if (at == g->first[v + 1]) {
			g->order[g->walked++] = v;
			g->place[v] = g->walked;
			depth--;
			continue;
		}
		edge[v]++;
		if (!seen[g->from[at]]) {
			seen[g->from[at]] = true;
			stack[depth++] = g->from[at];
		}
	}
}

static uint32_t meet(const struct graph *g, uint32_t a, uint32_t b)
{
	while (a != b)
		if (g->place[a] < g->place[b])
			a = g->up[a];
		else
			b = g->up[b];
	return a;
}

static bool lift(struct graph *g, uint32_t v)
{
	uint32_t up = g->n + 1, to;

	for (uint32_t k = 0; (to = successors(g, v, k)) != UINT32_MAX; k++)
		if (g->place[to] && g->up[to] != g->n + 1)
			up = up == g->n + 1 ? to : meet(g, up, to);
	if (up == g->up[v])
		return false;
	g->up[v] = up;
	return true;
}

static void find_joins(struct arena *arena, struct function *f)
{
	struct graph g = { .f = f, .n = f->n_code };
	bool changed = true;

	find_predecessors(&g, arena);
	g.order = arena_alloc(arena, (g.n + 1) * sizeof *g.order);
	g.place = arena_alloc(arena, (g.n + 1) * sizeof *g.place);
	g.up = arena_alloc(arena, (g.n + 1) * sizeof *g.up);
	walk(&g, arena);
	for (uint32_t v = 0; v < g.n; v++)
		g.up[v] = g.n + 1;
	g.up[g.n] = g.n;
	while (changed) {
		changed = false;
		for (uint32_t k = g.walked - 1; k--;)
			changed |= lift(&g, g.order[k]);
	}
	for (uint32_t v = 0; v < g.n; v++)
		if (g.place[v] && successors(&g, v, 1) != UINT32_MAX && g.up[v] < g.n)
			f->joins[v] = g.up[v];
}

void simd_prepare(struct arena *arena, struct function *f)
{
	bool branches = false;
	const struct insn *const *targets;
	uint32_t n;

	pthread_once(&once, read_forms);
	f->joins = arena_alloc(arena, f->n_code * sizeof *f->joins);
	for (uint32_t v = 0; v < f->n_code; v++) {
		enum flow flow = flow_of(&f->code[v], &targets, &n);

		f->code[v].wide = wide_of(f->code[v].run);
		branches |= flow == FLOW_GUARD || flow == FLOW_TABLE;
	}
	if (branches)
		find_joins(arena, f);
}
