/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.cluster, and addresses of shared memory of a cluster's blocks: mapa and getctarank. */
#include "ops.h"

static HANDLER(run_cluster_arrive)
{
	if (t->phase != CLUSTER_NONE)
		return fault(t, i, PTX_TRAP, "barrier.cluster.arrive again, without a wait between");
	t->phase = CLUSTER_ARRIVED;
	t->worker->cluster->arrived = true;
	return i + 1;
}

/* Runs once more when the others have arrived. */
static HANDLER(run_cluster_wait)
{
	if (t->phase == CLUSTER_NONE)
		return fault(t, i, PTX_TRAP, "barrier.cluster.wait without an arrival");
	if (t->phase == CLUSTER_COMPLETE) {
		t->phase = CLUSTER_NONE;
		return i + 1;
	}
	t->pc = i;
	t->state = THREAD_CLUSTER;
	return NULL;
}

/* barrier.cluster.arrive{.release, .relaxed}{.aligned}; barrier.cluster.wait{.acquire}{.aligned} */
bool decode_cluster_barrier(struct body *b, struct statement *s)
{
	bool arrive, wait;

	take(s, "cluster");
	arrive = take(s, "arrive");
	wait = !arrive && take(s, "wait");
	if (arrive && !take(s, "release"))
		take(s, "relaxed");
	if (wait)
		take(s, "acquire");
	take(s, "aligned");
	if (!(arrive || wait) || s->n || !all_taken(s))
		return false;
	emit_visible(b, s, arrive ? run_cluster_arrive : run_cluster_wait);
	return true;
}

/* A rank that no block has is found when the address is used. */
PURE(map_rank, u64 rank = (u32)r[i->b] < MAX_CLUSTER ? (u32)r[i->b] + 1 : 0xff;
     r[i->d] = (r[i->a] & ~((u64)0xff << CLUSTER_SHIFT)) | rank << CLUSTER_SHIFT)
OP(get_rank, r[i->d] = cluster_rank(t->worker, r[i->a]))

/* mapa{.shared::cluster}.{u32, u64} d, a, rank; variant 1: getctarank{.shared::cluster}.{u32, u64} d, a */
DECODER(mapa)
{
	enum type type;
	struct insn *i;

	take(s, "shared::cluster");
	type = take_type(s);
	if ((type != T_U32 && type != T_U64) || !all_taken(s))
		return false;
	operands(b, s, s->variant ? 2 : 3, s->variant ? 2 : 3);
	i = emit(b, s, s->variant ? get_rank : map_rank);
	i->a = src_wide(b, s, 1, type);
	i->b = s->variant ? 0 : src(b, s, 2, T_U32);
	i->d = dst(b, s, 0, s->variant ? T_U32 : type);
	return true;
}
