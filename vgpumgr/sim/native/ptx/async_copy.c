/* SPDX-License-Identifier: Apache-2.0 */
/* cp.async and cp.async.bulk. Data is copied at once, so that there is nothing to wait for. */
#include "async.h"

enum { COPY_IGNORE = 16 };

/*
 * cp.async.{ca,cg}.shared.global [d], [s], size{, bytes to read, or a predicate that nothing is read}: the rest is zero.
 * The second instruction has the source.
 */
static HANDLER(cp_async)
{
	uint64_t from = effective(r, i + 1);
	uint32_t read = !i->b ? i->size : i->flags & COPY_IGNORE ? (r[i->b] & 1 ? 0 : i->size) : (u32)r[i->b];
	uint8_t *to = reach(t, i, SPACE_SHARED, effective(r, i), i->size, true), *at;
	uint8_t bytes[16] = { 0 };

	if (!to)
		return NULL;
	if (read > i->size)
		return fault(t, i, PTX_ILLEGAL_ADDRESS, "cp.async reads more than it copies");
	if (read && from & (i->size - 1u))
		return fault(t, i, PTX_MISALIGNED, "misaligned address 0x%llx for %u bytes", (unsigned long long)from, i->size);
	for (uint32_t k = 0; k < read; k += read == i->size ? read : 1) {
		at = reach(t, i, SPACE_GLOBAL, from + k, read == i->size ? read : 1, false);
		if (!at)
			return NULL;
		memcpy(bytes + k, at, read == i->size ? read : 1);
	}
	memcpy(to, bytes, i->size);
	return i + 2;
}

static bool decode_copy(struct body *b, struct statement *s)
{
	uint32_t read = 0;
	bool ignored = false;
	struct insn *i;

	if (!(take(s, "ca") || take(s, "cg")) || !(take(s, "shared") || take(s, "shared::cta")) || !take(s, "global"))
		return false;
	take_hints(s);
	take_policy(b, s);
	operands(b, s, 3, 4);
	if (s->operands[2].kind != O_INT || (s->operands[2].bits != 4 && s->operands[2].bits != 8 && s->operands[2].bits != 16))
		bad_operand(b, s, 2, "4, 8 or 16");
	if (s->n == 4) {
		ignored = s->operands[3].kind == O_REG && s->operands[3].type == T_PRED;
		read = ignored ? src_predicate(b, s, 3) : src(b, s, 3, T_U32);
	}
	i = emit_visible(b, s, cp_async);
	i->size = (uint8_t)s->operands[2].bits;
	i->b = read;
	address(b, s, 0, i);
	i->flags |= ignored ? COPY_IGNORE : 0;
	address(b, s, 1, emit_visible(b, s, run_unsupported));
	return true;
}

enum { BULK = 16 };

static bool copy_bytes(struct thread *t, const struct insn *i, uint64_t to, uint64_t from, uint32_t size)
{
	for (uint32_t k = 0; k < size; k += BULK) {
		uint8_t *at = reach(t, i + 1, (enum space)i[1].space, from + k, BULK, false);
		uint8_t *out = at ? reach(t, i, (enum space)i->space, to + k, BULK, true) : NULL;

		if (!out)
			return false;
		memmove(out, at, BULK);
	}
	return true;
}

/* .multicast::cluster: to the same place in each block of the mask, and its mbarrier there. */
static bool copy_to_many(struct thread *t, const uint64_t *r, const struct insn *i)
{
	uint64_t to = CLUSTER_OFFSET(effective(r, i)), bar = CLUSTER_OFFSET(effective(r, i + 2));
	uint32_t size = (u32)r[i->d];

	for (uint32_t rank = 0; rank < MAX_CLUSTER; rank++) {
		uint64_t block = (uint64_t)(rank + 1) << CLUSTER_SHIFT;

		if (r[i->b] >> rank & 1 && (!copy_bytes(t, i, block | to, effective(r, i + 1), size) ||
					    !mbarrier_complete(t, i + 2, block | bar, size)))
			return false;
	}
	return true;
}

/* b: the cell of the mask of blocks, or 0; d: the cell of the size; the second instruction has the source, the third, where `size` says so, the mbarrier. */
static HANDLER(cp_bulk)
{
	uint64_t to = effective(r, i), from = effective(r, i + 1);
	uint32_t size = (u32)r[i->d];

	if (size % BULK)
		return fault(t, i, PTX_MISALIGNED, "cp.async.bulk of %u bytes", size);
	if (i->b)
		return copy_to_many(t, r, i) ? i + 3 : NULL;
	if (!copy_bytes(t, i, to, from, size))
		return NULL;
	if (!i->size)
		return i + 2;
	return mbarrier_complete(t, i + 2, effective(r, i + 2), size) ? i + 3 : NULL;
}

/*
 * .shared::{cta,cluster}.{global,shared::cta}.mbarrier::complete_tx::bytes{.multicast::cluster} [d], [s], size, [mbarrier]{, mask},
 * or .global.shared::cta.bulk_group [d], [s], size
 */
static bool decode_bulk(struct body *b, struct statement *s)
{
	bool in = s->n_modifiers > 3 && !text_is(s->modifiers[2], "global"), cluster, between, many;
	struct insn *i;
	uint32_t size, mask = 0;

	if (take(s, "commit_group"))
		return s->n == 0;
	if (take(s, "wait_group")) {
		take(s, "read");
		return s->n == 1 && s->operands[0].kind == O_INT;
	}
	cluster = in && take(s, "shared::cluster");
	between = cluster && take(s, "shared::cta");
	if (!cluster && !take(s, "shared::cta"))
		return false;
	if ((!between && !take(s, "global")) || !take(s, in ? "mbarrier::complete_tx::bytes" : "bulk_group"))
		return false;
	many = cluster && !between && take(s, "multicast::cluster");
	take_policy(b, s);
	if (!all_taken(s))
		return false;
	operands(b, s, 3u + in + many, 3u + in + many);
	size = src(b, s, 2, T_U32);
	mask = many ? src(b, s, 4, T_B16) : 0;
	i = emit_visible(b, s, cp_bulk);
	i->size = in;
	i->b = mask;
	i->d = size;
	i->space = in ? SPACE_SHARED : SPACE_GLOBAL;
	address(b, s, 0, i);
	i = emit_visible(b, s, run_unsupported);
	i->space = in && !between ? SPACE_GLOBAL : SPACE_SHARED;
	address(b, s, 1, i);
	if (!in)
		return true;
	i = emit_visible(b, s, run_unsupported);
	i->space = SPACE_SHARED;
	address(b, s, 3, i);
	return true;
}

DECODER(cp_async)
{
	if (!take(s, "async"))
		return false;
	if (take(s, "bulk"))
		return decode_bulk(b, s);
	if (take(s, "mbarrier"))
		return take(s, "arrive") && decode_arrive_copies(b, s);
	if (take(s, "commit_group") || take(s, "wait_all"))
		return s->n == 0;
	if (take(s, "wait_group"))
		return s->n == 1 && s->operands[0].kind == O_INT;
	return decode_copy(b, s);
}
