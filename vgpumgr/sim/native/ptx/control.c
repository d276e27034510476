/* SPDX-License-Identifier: Apache-2.0 */
/* Branches, calls and the ways to end. */
#include "control.h"
#include "ops.h"

HANDLER(run_guard)
{
	return r[i->a] & 1 ? i + 1 : i + i->imm;
}

HANDLER(run_guard_not)
{
	return r[i->a] & 1 ? i + i->imm : i + 1;
}

/* The lanes whose predicate is true. */
SIMD_INLINE uint32_t predicate_mask(const struct fragment *g, uint32_t slot)
{
	const uint64_t *cells = g->frame + slot;
	uint32_t mask = 0;

	for (uint32_t k = 0; k < WARP; k++)
		mask |= (uint32_t)(cells[k] & 1) << k;
	return mask & g->mask;
}

/*
 * What a guard skips is mostly an instruction or two that go on behind them: those lanes run them, and all are together
 * again. A branch behind the guard is where they part.
 */
static const struct insn *guard_lanes(struct fragment *g, const struct insn *i, uint32_t chosen)
{
	const struct insn *at = i + 1, *end = i + i->imm;
	struct fragment some;

	if (!chosen)
		return end;
	if (chosen == g->mask)
		return at;
	if (at->run == run_bra)
		return simd_part(g, i, chosen, at->target, end);
	if (at->run == run_bra_back)
		return simd_part(g, i, chosen, at, end);
	if (at->run == run_exit) {
		some = *g;
		some.mask = chosen;
		simd_each(&some, at);
		g->mask &= ~chosen;
		g->whole = !~(g->mask | g->warp->exited);
		return end;
	}
	if (at->span < i->imm - 1)
		return simd_part(g, i, chosen, at, end);
	some = *g;
	some.mask = chosen;
	some.whole = false;
	while (at < end)
		at = at->wide(&some, at);
	return end;
}

SIMD_INLINE const struct insn *guard_wide(struct fragment *g, const struct insn *i)
{
	return guard_lanes(g, i, predicate_mask(g, i->a));
}
SIMD_INLINE const struct insn *guard_not_wide(struct fragment *g, const struct insn *i)
{
	return guard_lanes(g, i, g->mask & ~predicate_mask(g, i->a));
}
WIDE_FORM(run_guard, guard_wide)
WIDE_FORM(run_guard_not, guard_not_wide)

HANDLER(run_bra)
{
	return i->target;
}

SIMD_INLINE const struct insn *bra_wide(struct fragment *g, const struct insn *i)
{
	(void)g;
	return i->target;
}
WIDE_FORM(run_bra, bra_wide)

/* Out of fuel: another thread gets its turn, so that a wait for its store ends. */
static const struct insn *go(struct thread *t, const struct insn *next)
{
	if (--t->fuel)
		return next;
	t->pc = next;
	return NULL;
}

HANDLER(run_bra_back)
{
	return go(t, i->target);
}

SIMD_INLINE const struct insn *bra_back_wide(struct fragment *g, const struct insn *i)
{
	return ++g->used < g->fuel ? i->target : simd_stop(g, i->target);
}
WIDE_FORM(run_bra_back, bra_back_wide)

struct branch_table {
	uint32_t n;
	const struct insn *targets[];
};

static HANDLER(run_brx)
{
	const struct branch_table *table = i->ext;
	uint32_t n = (u32)r[i->a];

	if (n >= table->n)
		return fault(t, i, PTX_TRAP, "branch index %u of %u", n, table->n);
	return go(t, table->targets[n]);
}

HANDLER(run_exit)
{
	t->state = THREAD_EXITED;
	t->worker->alive--;
	return NULL;
}

static HANDLER(run_trap)
{
	return fault(t, i, PTX_TRAP, "trap");
}

enum flow flow_of(const struct insn *i, const struct insn *const **targets, uint32_t *n)
{
	const struct branch_table *table = i->ext;

	if (i->run == run_guard || i->run == run_guard_not)
		return FLOW_GUARD;
	if (i->run == run_bra || i->run == run_bra_back)
		return FLOW_JUMP;
	if (i->run == run_exit || i->run == run_ret)
		return FLOW_END;
	if (i->run != run_brx)
		return FLOW_NEXT;
	*targets = table->targets;
	*n = table->n;
	return FLOW_TABLE;
}

uint64_t call_argument(const struct thread *t, const struct insn *i, uint32_t k)
{
	const struct call *call = i->ext;
	const struct call_value *v = &call->args[k];
	uint64_t value = 0;

	if (k >= call->n_args) /* declared with fewer than it has */
		return 0;
	if (!v->in_frame)
		return t->r[v->at];
	memcpy(&value, t->local + t->base + v->at, v->size < 8 ? v->size : 8);
	return value;
}

static void put_value(struct thread *t, uint32_t base, const struct call_value *v, const uint8_t *from, uint32_t size)
{
	uint64_t value = 0;

	if (v->in_frame) {
		memmove(t->local + base + v->at, from, size < v->size ? size : v->size);
		return;
	}
	memcpy(&value, from, size < 8 ? size : 8);
	t->r[v->at] = value;
}

void call_return(struct thread *t, const struct insn *i, uint64_t value)
{
	const struct call *call = i->ext;

	if (call->n_returns)
		put_value(t, t->base, &call->returns[0], (const uint8_t *)&value, 8);
}

static bool fits(const struct call *call, const struct function *f)
{
	if (call->n_args != f->n_params || call->n_returns != f->n_returns)
		return false;
	for (uint32_t k = 0; k < call->n_args; k++)
		if (call->args[k].size != f->params[k].size)
			return false;
	for (uint32_t k = 0; k < call->n_returns; k++)
		if (call->returns[k].size != f->returns[k].size)
			return false;
	return true;
}

/*
 * What a declaration and the definition, of another text perhaps, do not agree on is undefined, as on hardware: nothing
 * beyond what both have is read or written.
 */
static const struct insn *enter(struct thread *t, const struct insn *i, const struct call *call, const struct function *f)
{
	uint32_t base = t->base, old = (uint32_t)(t->r - t->stack);

	if (!push_frame(t, i, f))
		return NULL;
	for (uint32_t k = 0; k < call->n_args && k < f->n_params; k++) {
		const struct call_value *v = &call->args[k];
		uint32_t size = v->size < f->params[k].size ? v->size : f->params[k].size;
		const void *from = v->in_frame ? (const void *)(t->local + base + v->at) : &t->stack[old + v->at];

		memcpy(t->local + t->base + f->params[k].offset, from, size);
	}
	t->frames[t->depth - 1].call = call;
	return go(t, f->code);
}

static HANDLER(run_call)
{
	const struct call *call = i->ext;

	return enter(t, i, call, call->target);
}

/* A declared function without a body that is one of ours: known when the module is linked. */
static HANDLER(run_call_builtin)
{
	const struct call *call = i->ext;

	if (call->target->has_body)
		return enter(t, i, call, call->target);
	return call->target->builtin(t, r, i);
}

static HANDLER(run_call_indirect)
{
	const struct call *call = i->ext;
	const struct ptx_module *m = t->worker->grid->kernel->module;
	uint64_t n = r[i->a] - WINDOW(WINDOW_CODE) - 1;
	const struct function *f;

	if (n >= m->n_functions || m->functions[n]->entry || !m->functions[n]->reachable)
		return fault(t, i, PTX_ILLEGAL_ADDRESS, "call of 0x%llx, which is no function",
			     (unsigned long long)r[i->a]);
	f = m->functions[n];
	if (!fits(call, f))
		return fault(t, i, PTX_ILLEGAL_ADDRESS, "call of a function with other parameters");
	return f->has_body ? enter(t, i, call, f) : f->builtin(t, r, i);
}

HANDLER(run_ret)
{
	const struct call_frame *f;
	const struct call *call;
	const struct function *from = t->function;
	uint32_t base = t->base;

	if (!t->depth)
		return run_exit(t, r, i);
	f = &t->frames[--t->depth];
	call = f->call;
	t->function = f->function;
	t->stack_used -= from->n_slots;
	t->local_used = base;
	t->base = f->base;
	t->r = t->stack + f->r;
	for (uint32_t k = 0; k < call->n_returns && k < from->n_returns; k++)
		put_value(t, t->base, &call->returns[k], t->local + base + from->returns[k].offset, from->returns[k].size);
	return f->back;
}

static void add_fixup(struct body *b, struct statement *s, struct text name, const struct insn **entry)
{
	struct fixup *fix = ARENA_PUSH(b->arena, b->fixups, b->n_fixups, b->cap_fixups);

	*fix = (struct fixup){ b->function->n_code - 1, b->scope, s->line, name, entry };
}

DECODER(bra)
{
	take(s, "uni");
	operands(b, s, 1, 1);
	if (!s->operands[0].name.n)
		bad_operand(b, s, 0, "a label");
	emit_visible(b, s, run_bra);
	add_fixup(b, s, s->operands[0].name, NULL);
	return true;
}

DECODER(brx)
{
	const struct local_name *list;
	struct branch_table *table;
	struct insn *i;

	take(s, "uni");
	if (!take(s, "idx"))
		return false;
	operands(b, s, 2, 2);
	list = s->operands[1].local;
	if (!list || !list->is_list)
		bad_operand(b, s, 1, "a list of branch targets");
	table = arena_alloc(b->arena, sizeof *table + list->n_targets * sizeof *table->targets);
	table->n = list->n_targets;
	i = emit_visible(b, s, run_brx);
	i->a = src(b, s, 0, T_U32);
	i->ext = table;
	for (uint32_t k = 0; k < table->n; k++)
		add_fixup(b, s, list->targets[k], &table->targets[k]);
	return true;
}

static struct call_value *call_values(struct body *b, struct statement *s, const struct operand *list,
				      const struct param_var *formals, uint32_t n, bool returns)
{
	struct call_value *v = arena_alloc(b->arena, (n + 1) * sizeof *v);

	if ((list ? list->n : 0) != n)
		fail(b->parser, PTX_SYNTAX, s->line, "the call has %u %s, the function %u", list ? list->n : 0,
		     returns ? "return values" : "parameters", n);
	for (uint32_t k = 0; k < n; k++) {
		const struct operand *o = &list->elements[k];
		enum type type = formals[k].size == 8 ? T_B64 : formals[k].size == 4 ? T_B32 : T_B16;

		v[k].size = formals[k].size;
		v[k].in_frame = o->kind == O_FRAME;
		if (o->kind == O_FRAME) {
			if (o->local->size != formals[k].size || o->offset)
				fail(b->parser, PTX_SYNTAX, s->line, "%.*s has another size than the parameter",
				     (int)o->name.n, o->name.s);
			v[k].at = (uint32_t)o->bits;
		} else if (formals[k].size > 8) {
			fail(b->parser, PTX_SYNTAX, s->line, "a register cannot hold this parameter");
		} else {
			v[k].at = returns ? operand_dst(b, s, o, type, true) : operand_src(b, s, o, type, true);
		}
	}
	return v;
}

static void call_target(struct body *b, struct statement *s, struct call *call, uint32_t n)
{
	const struct operand *o = &s->operands[n];

	if (o->kind == O_SYMBOL && o->symbol->kind == SYMBOL_FUNCTION && !o->symbol->function->entry) {
		call->target = o->symbol->function;
		body_uses(b, o->symbol);
		return;
	}
	if (o->kind != O_REG)
		bad_operand(b, s, n, "a function");
	for (uint32_t k = n + 1; k < s->n; k++)
		if (s->operands[k].local && s->operands[k].local->prototype)
			call->prototype = s->operands[k].local->prototype;
	if (!call->prototype)
		fail(b->parser, PTX_UNSUPPORTED, s->line, "indirect call without a prototype");
}

DECODER(call)
{
	uint32_t target = s->n && s->operands[0].kind == O_LIST;
	const struct operand *args = s->n > target + 1 && s->operands[target + 1].kind == O_LIST ? &s->operands[target + 1] : NULL;
	struct call *call = arena_alloc(b->arena, sizeof *call);
	const struct function *shape;
	uint32_t a = 0;
	struct insn *i;

	take(s, "uni");
	operands(b, s, target + 1, target + 3);
	call_target(b, s, call, target);
	if (!call->target)
		a = src(b, s, target, T_B64);
	shape = call->target ? call->target : call->prototype;
	if (call->target && call->target->declared)
		shape = call->target->declared;
	call->n_args = shape->n_params;
	call->n_returns = shape->n_returns;
	call->returns = call_values(b, s, target ? &s->operands[0] : NULL, shape->returns, shape->n_returns, true);
	call->args = call_values(b, s, args, shape->params, shape->n_params, false);
	i = emit_visible(b, s, !call->target ? run_call_indirect : call->target->has_body ? run_call : run_call_builtin);
	i->a = a;
	i->ext = call;
	return true;
}

DECODER(ret)
{
	take(s, "uni");
	operands(b, s, 0, 0);
	emit_visible(b, s, b->function->entry ? run_exit : run_ret);
	return true;
}

DECODER(exit)
{
	operands(b, s, 0, 0);
	emit_visible(b, s, run_exit);
	return true;
}

/* trap; variant 1 is brkpt, which without a debugger ends the kernel as well */
DECODER(trap)
{
	operands(b, s, 0, 0);
	emit_visible(b, s, run_trap);
	return true;
}

static HANDLER(run_yield)
{
	t->fuel = 0;
	t->pc = i + 1;
	return NULL;
}

/* All lanes of a warp that come to it together sleep together: those behind the first have done so. */
static HANDLER(run_nanosleep)
{
	struct worker *w = t->worker;
	const struct ptx_launch *launch = w->grid->launch;

	if (launch->pass && !(w->slept_at == i && w->slept_warp == t->warp && w->slept_lane < t->lane))
		launch->pass(launch->pass_argument, (uint32_t)r[i->a]);
	w->slept_at = i;
	w->slept_warp = t->warp;
	w->slept_lane = t->lane;
	return run_yield(t, r, i);
}

DECODER(nanosleep)
{
	uint32_t duration;

	if (take_type(s) != T_U32)
		return false;
	operands(b, s, 1, 1);
	duration = src(b, s, 0, T_U32);
	emit_visible(b, s, run_nanosleep)->a = duration;
	return true;
}
