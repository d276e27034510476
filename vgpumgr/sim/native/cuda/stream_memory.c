/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for values in memory, writes of values and reductions, in the order of a stream. A wait keeps no engine busy. */
#include <stdlib.h>
#include <time.h>

#include "captures.h"

enum { LOOK_LEAST_NS = 20000, LOOK_MOST_NS = 1000000 };

struct memory_op {
	struct op op;
	unsigned int count;
	struct cuda_memory_operation each[];
};

static uint64_t load(const struct cuda_memory_operation *m)
{
	return m->bytes == 8 ? __atomic_load_n((uint64_t *)m->address, __ATOMIC_ACQUIRE) :
			       __atomic_load_n((uint32_t *)m->address, __ATOMIC_ACQUIRE);
}

static void store(const struct cuda_memory_operation *m)
{
	if (m->bytes == 8)
		__atomic_store_n((uint64_t *)m->address, m->value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)m->address, (uint32_t)m->value, __ATOMIC_RELEASE);
}

static bool meets(const struct cuda_memory_operation *m, uint64_t found)
{
	uint64_t all = m->bytes == 8 ? UINT64_MAX : UINT32_MAX;

	switch (m->flags) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return found == m->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return found & m->value;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(found | m->value) & all;
	default: /* cyclic */
		return m->bytes == 8 ? (int64_t)(found - m->value) >= 0 : (int32_t)((uint32_t)found - (uint32_t)m->value) >= 0;
	}
}

/* A look at what is waited for. */
struct look {
	const struct cuda_memory_operation *m;
	bool met;
};

static void take_look(void *what)
{
	struct look *l = what;

	l->met = meets(l->m, load(l->m));
}

/* Until it is met, or nothing of the context counts any more: it is destroyed, or something else has failed in it. */
static CUresult wait_for(struct stream *s, const struct cuda_memory_operation *m)
{
	const struct context *ctx = s->ctx;
	struct timespec pause = { .tv_nsec = LOOK_LEAST_NS };
	struct look l = { .m = m };

	while (vm_use(m->address, m->bytes, take_look, &l)) {
		if (l.met || __atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED) ||
		    __atomic_load_n(&ctx->error, __ATOMIC_RELAXED) != CUDA_SUCCESS)
			return CUDA_SUCCESS;
		nanosleep(&pause, NULL);
		pause.tv_nsec = pause.tv_nsec < LOOK_MOST_NS / 2 ? 2 * pause.tv_nsec : LOOK_MOST_NS;
	}
	/* a destroyed stream is not waited for when memory or its context goes */
	s->given_up = __atomic_load_n(&s->closing, __ATOMIC_RELAXED);
	return s->given_up ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void reduce(const struct cuda_memory_operation *m)
{
#define REDUCE(type)                                                                                        \
	(m->reduction == CU_STREAM_ATOMIC_REDUCTION_OP_OR  ? __atomic_fetch_or((type *)m->address, m->value, __ATOMIC_ACQ_REL) :  \
	 m->reduction == CU_STREAM_ATOMIC_REDUCTION_OP_AND ? __atomic_fetch_and((type *)m->address, m->value, __ATOMIC_ACQ_REL) : \
							     __atomic_fetch_add((type *)m->address, m->value, __ATOMIC_ACQ_REL))
	if (m->bytes == 8)
		REDUCE(uint64_t);
	else
		REDUCE(uint32_t);
#undef REDUCE
}

static void change(void *what)
{
	const struct cuda_memory_operation *m = what;

	if (m->kind == CU_STREAM_MEM_OP_ATOMIC_REDUCTION)
		reduce(m);
	else
		store(m);
}

static CUresult run_one(struct stream *s, struct cuda_memory_operation *m)
{
	if (cuda_is_wait(m))
		return wait_for(s, m);
	if (!m->bytes) /* a barrier: operations follow each other under a lock as it is */
		return CUDA_SUCCESS;
	if (!vm_use(m->address, m->bytes, change, m))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (drv.checks)
		check_filled(m->address, m->bytes);
	return CUDA_SUCCESS;
}

static CUresult run(struct op *op)
{
	struct memory_op *o = (struct memory_op *)op;
	CUresult r = CUDA_SUCCESS;

	for (unsigned int i = 0; i < o->count && r == CUDA_SUCCESS && !op->stream->given_up; i++)
		r = run_one(op->stream, &o->each[i]);
	return r;
}

static void release(struct op *op)
{
	free(op);
}

/* Memory that the device may use, but no managed memory. */
static CUresult read_one(const CUstreamBatchMemOpParams *p, bool old, struct cuda_memory_operation *m)
{
	struct allocation a;
	CUresult r = cuda_read_memory_operation(p, old, m);

	if (r == CUDA_SUCCESS && m->bytes && (!vm_contains(m->address, m->bytes, &a) || a.managed))
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

CUresult memory_make(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old,
		     struct graph_memory *made)
{
	struct cuda_memory_operation m;
	CUresult r = cuda_check_memory_operations(list, count, flags);

	if (r != CUDA_SUCCESS)
		return r;
	*made = (struct graph_memory){ .count = count, .list = calloc(count, sizeof(*list)) };
	if (!made->list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = read_one(&list[i], old, &m);
		cuda_write_memory_operation(&m, &made->list[i]);
	}
	if (r != CUDA_SUCCESS)
		free(made->list);
	return r;
}

CUresult memory_launch(const struct graph_memory *m, CUstream stream)
{
	struct memory_op *o;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	o = calloc(1, sizeof(*o) + m->count * sizeof(o->each[0]));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->op = (struct op){ .run = run, .release = release };
	o->count = m->count;
	for (unsigned int i = 0; i < m->count; i++)
		cuda_read_memory_operation(&m->list[i], false, &o->each[i]);
	DRV_LOCKED();
	r = stream_get(ctx, stream, &s);
	if (r == CUDA_SUCCESS)
		return queue_submit(s, &o->op);
	free(o);
	return r;
}

static CUresult submit(CUstream stream, const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = memory_make(list, count, flags, old, &made.memory);
	if (r != CUDA_SUCCESS)
		return r;
	made.memory.context = (CUcontext)ctx;
	if (capture_takes(stream))
		return capture_put(stream, &made);
	r = memory_launch(&made.memory, stream);
	free(made.memory.list);
	return r;
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags)
{
	return submit(stream, list, count, flags, false);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags)
{
	return submit(stream, list, count, flags, true);
}

/* Waits and writes have the same fields. */
#define ONE(name, bits, kind_, old)                                                                             \
	CUresult name(CUstream stream, CUdeviceptr address, cuuint##bits##_t value, unsigned int flags)         \
	{                                                                                                       \
		CUstreamBatchMemOpParams one = { .pad = { 0 } };                                                \
                                                                                                                \
		one.operation = kind_##_VALUE_##bits;                                                           \
		one.waitValue.address = address;                                                                \
		one.waitValue.value64 = value;                                                                  \
		one.waitValue.flags = flags;                                                                    \
		return submit(stream, &one, 1, 0, old);                                                         \
	}

ONE(cuStreamWaitValue32, 32, CU_STREAM_MEM_OP_WAIT, true)
ONE(cuStreamWaitValue64, 64, CU_STREAM_MEM_OP_WAIT, true)
ONE(cuStreamWriteValue32, 32, CU_STREAM_MEM_OP_WRITE, true)
ONE(cuStreamWriteValue64, 64, CU_STREAM_MEM_OP_WRITE, true)
ONE(cuStreamWaitValue32_v2, 32, CU_STREAM_MEM_OP_WAIT, false)
ONE(cuStreamWaitValue64_v2, 64, CU_STREAM_MEM_OP_WAIT, false)
ONE(cuStreamWriteValue32_v2, 32, CU_STREAM_MEM_OP_WRITE, false)
ONE(cuStreamWriteValue64_v2, 64, CU_STREAM_MEM_OP_WRITE, false)
