/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives in graphs. A launch comes to a host function, which gives the thread a new batch; the stream waits for a word of the
 * graph's own, and clears it for the next launch.
 */
#include <stdlib.h>

#include "nccl.h"

static struct op *copy_ops(const struct op *ops)
{
	struct op *first = NULL, **last = &first;

	for (; ops; ops = ops->next) {
		*last = malloc(sizeof(**last));
		if (!*last) {
			op_free(first);
			return NULL;
		}
		**last = *ops;
		(*last)->next = NULL;
		last = &(*last)->next;
	}
	return first;
}

/* On a thread of the driver's, which calls no CUDA. One without operations has its word written all the same. */
static void launch(void *argument)
{
	struct captured *c = argument;
	ncclComm_t comm = c->comm;
	struct batch *b = comm->magic == NCCL_ALIVE ? calloc(1, sizeof(*b)) : NULL;

	if (!b)
		return;
	b->word = c->word;
	b->ops = copy_ops(c->ops);
	pthread_mutex_lock(&comm->lock);
	*comm->last = b;
	comm->last = &b->next;
	pthread_cond_signal(&comm->more);
	pthread_mutex_unlock(&comm->lock);
}

static ncclResult_t check(ncclComm_t comm, const struct op *ops)
{
	for (const struct op *op = ops; op; op = op->next)
		if (!op->captured || op->kind == OP_SPLIT || op->stream != ops->stream)
			return nccl_error(ncclInvalidUsage, "all calls of a captured group are in one captured stream");
	if (comm->words + 1 >= NCCL_WORDS)
		return nccl_error(ncclInvalidUsage, "a communicator has at most %d calls in graphs", NCCL_WORDS - 1);
	return ncclSuccess;
}

ncclResult_t capture_ops(ncclComm_t comm, struct op *ops)
{
	struct captured *c = calloc(1, sizeof(*c));
	ncclResult_t r = c ? check(comm, ops) : ncclSystemError;
	CUdeviceptr word;
	CUresult result;

	if (r != ncclSuccess) {
		op_free(ops);
		free(c);
		return r;
	}
	*c = (struct captured){ .next = comm->captured, .comm = comm, .ops = ops, .word = ++comm->words };
	comm->captured = c;
	word = comm->word + 4 * (CUdeviceptr)c->word;
	result = cu.cuLaunchHostFunc(ops->stream, launch, c);
	if (result == CUDA_SUCCESS)
		result = cu.cuStreamWaitValue32(ops->stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
	if (result == CUDA_SUCCESS)
		result = cu.cuStreamWriteValue32(ops->stream, word, 0, 0);
	return result == CUDA_SUCCESS ? r : nccl_cuda_error(result, "capturing a collective");
}
