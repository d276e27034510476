/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instruction that runs once for lanes that stand at it together: it stops a thread until they do (warp.c runs it then), or
 * runs at once where they come together.
 */
#include "checks.h"

static HANDLER(run_warp)
{
	t->mask = (u32)r[i[1].a];
	if (!(t->mask >> t->lane & 1) && t->worker->checker)
		check_own_mask(t, i);
	if (!(t->mask >> t->lane & 1))
		return fault(t, i, PTX_TRAP, "lane %u is not in its own member mask 0x%x", t->lane, t->mask);
	t->pc = i;
	t->state = THREAD_WARP;
	return NULL;
}

/* The second instruction's `a`: the member mask. Where its lanes are all here, none has to wait. */
static const struct insn *run_warp_wide(struct fragment *g, const struct insn *i)
{
	const uint64_t *masks = g->frame + i[1].a;
	uint32_t mask = (u32)masks[__builtin_ctz(g->mask)];
	bool all = (mask & ~g->warp->exited) == g->mask;

	EACH_LANE(k, g->mask)
		all &= (u32)masks[k] == mask;
	if (!all)
		return simd_each(g, i);
	EACH_LANE(k, g->mask)
		g->lanes[k].pc = i;
	((warp_operation *)(uintptr_t)i->imm)(g->lanes, g->mask);
	return i + 2;
}
WIDE_FORM(run_warp, run_warp_wide)

bool emit_warp(struct body *b, struct statement *s, const struct warp_form *f)
{
	struct insn *i = emit_visible(b, s, run_warp);

	i->imm = (uint64_t)(uintptr_t)f->run;
	i->flags = f->flags;
	i->a = f->a;
	i->b = f->b;
	i->c = f->c;
	i->d = f->d;
	i = emit_visible(b, s, run_unsupported);
	i->d = f->second;
	i->a = f->mask;
	i->ext = f->ext;
	return true;
}
