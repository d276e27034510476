/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's thread, what goes to it, and its end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl.h"

#if defined(__x86_64__)
/* As in the driver's library: loads on glibc 2.28, too. */
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join,pthread_join@GLIBC_2.2.5");
#endif

ncclResult_t comm_check(ncclComm_t comm)
{
	if (!comm || comm->magic != NCCL_ALIVE)
		return nccl_error(ncclInvalidArgument, "this is no communicator");
	if (comm->process != getpid())
		return nccl_error(ncclInvalidUsage, "the communicator is of the process that this one was forked from");
	return ncclSuccess;
}

ncclResult_t comm_ready(ncclComm_t comm)
{
	ncclResult_t r = comm_check(comm);

	if (r != ncclSuccess)
		return r;
	r = (ncclResult_t)atomic_load(&comm->async);
	if (r == ncclInProgress)
		return nccl_error(ncclInvalidArgument, "the communicator is used before it is ready (ncclCommGetAsyncError)");
	return r == ncclSuccess ? r : nccl_error(r, "%s", comm->text);
}

/* ---- the thread */

static bool set_up(ncclComm_t comm)
{
	CUresult r = cu.cuStreamCreate(&comm->stream, CU_STREAM_NON_BLOCKING);

	if (r == CUDA_SUCCESS)
		r = cu.cuMemAlloc(&comm->word, 4 * NCCL_WORDS);
	if (r == CUDA_SUCCESS)
		r = cu.cuMemsetD32Async(comm->word, 0, NCCL_WORDS, comm->stream);
	if (r == CUDA_SUCCESS)
		r = cu.cuStreamSynchronize(comm->stream);
	if (r != CUDA_SUCCESS)
		comm_fail(comm, ncclUnhandledCudaError, "a stream and memory for a communicator: CUDA's error %d", r);
	return r == CUDA_SUCCESS;
}

static bool start(ncclComm_t comm)
{
	char text[SG_TEXT] = "";
	ncclResult_t r = comm->split ? split_wait(comm) : ncclSuccess;

	if (r != ncclSuccess) {
		comm_fail(comm, r, "the communicator that it is split from has ended");
		return false;
	}
	r = sg_check_id(&comm->id, text);
	if (r == ncclSuccess && !set_up(comm))
		return false;
	if (r == ncclSuccess)
		r = sg_join(&comm->id, comm->ranks, comm->rank, &comm->segment, text);
	if (r != ncclSuccess) {
		comm->segment = NULL;
		comm_fail(comm, r, "%s", text);
		return false;
	}
	comm->scratch = malloc(comm->segment->at.piece);
	if (!comm->scratch) {
		comm_fail(comm, ncclSystemError, "no memory");
		return false;
	}
	return engine_wait_ranks(comm);
}

/* Under the lock: the first batch, when there is one. */
static struct batch *wait_batch(ncclComm_t comm)
{
	while (!comm->first && !comm->stop && !atomic_load(&comm->abort))
		pthread_cond_wait(&comm->more, &comm->lock);
	return comm->first;
}

/* Under the lock. */
static void end_batch(ncclComm_t comm, struct batch *b)
{
	comm->first = b->next;
	if (!comm->first)
		comm->last = &comm->first;
	while (b->ready) {
		struct ready *r = b->ready;

		b->ready = r->next;
		r->next = comm->spare;
		comm->spare = r;
	}
	op_free(b->ops);
	free(b);
	if (!comm->first && comm->ending && !comm->failed)
		atomic_store(&comm->async, ncclSuccess);
	pthread_cond_broadcast(&comm->less);
}

static void run_batches(ncclComm_t comm)
{
	struct batch *b;

	pthread_mutex_lock(&comm->lock);
	while ((b = wait_batch(comm))) {
		pthread_mutex_unlock(&comm->lock);
		engine_run(comm, b);
		pthread_mutex_lock(&comm->lock);
		end_batch(comm, b);
	}
	pthread_mutex_unlock(&comm->lock);
}

/* What comes in to one that has failed: streams have been released, launches of graphs are. */
static void wait_stop(ncclComm_t comm)
{
	struct batch *b;

	pthread_mutex_lock(&comm->lock);
	while (comm->first || !comm->stop) {
		b = comm->first;
		if (!b) {
			pthread_cond_wait(&comm->more, &comm->lock);
			continue;
		}
		pthread_mutex_unlock(&comm->lock);
		engine_run(comm, b);
		pthread_mutex_lock(&comm->lock);
		end_batch(comm, b);
	}
	pthread_mutex_unlock(&comm->lock);
}

static void give_back(ncclComm_t comm)
{
	if (comm->stream)
		cu.cuStreamSynchronize(comm->stream);
	while (comm->spare) {
		struct ready *r = comm->spare;

		comm->spare = r->next;
		cu.cuEventDestroy(r->event);
		free(r);
	}
	if (comm->word)
		cu.cuMemFree(comm->word);
	if (comm->stream)
		cu.cuStreamDestroy(comm->stream);
	if (comm->segment)
		sg_leave(comm->segment, comm->rank, comm->failed ? SG_FAILED : SG_LEFT);
	free(comm->scratch);
}

static void *serve(void *argument)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	ncclComm_t comm = argument;

	cu.cuCtxSetCurrent(comm->context);
	cu.cuThreadExchangeStreamCaptureMode(&mode); /* what other threads capture is no concern of this one */
	if (start(comm)) {
		pthread_mutex_lock(&comm->lock);
		atomic_store(&comm->async, ncclSuccess);
		pthread_cond_broadcast(&comm->less);
		pthread_mutex_unlock(&comm->lock);
	}
	run_batches(comm);
	if (atomic_load(&comm->abort))
		comm_fail(comm, ncclInvalidUsage, "the communicator was aborted");
	wait_stop(comm);
	give_back(comm);
	return NULL;
}

/* ---- its beginning and end */

ncclResult_t comm_wait_init(ncclComm_t comm)
{
	ncclResult_t r;

	pthread_mutex_lock(&comm->lock);
	while (atomic_load(&comm->async) == ncclInProgress)
		pthread_cond_wait(&comm->less, &comm->lock);
	r = (ncclResult_t)atomic_load(&comm->async);
	pthread_mutex_unlock(&comm->lock);
	if (r == ncclSuccess)
		return r;
	*comm->handle = NULL;
	comm_end(comm, true);
	return r;
}

ncclResult_t comm_begin(ncclComm_t comm, ncclComm_t *handle)
{
	if (pthread_create(&comm->thread, NULL, serve, comm)) {
		comm_end(comm, true);
		return nccl_error(ncclSystemError, "no thread for a communicator");
	}
	comm->started = true;
	comm->handle = handle;
	*handle = comm;
	return ncclSuccess;
}

void comm_end(ncclComm_t comm, bool abort)
{
	if (comm->started) {
		pthread_mutex_lock(&comm->lock);
		if (abort)
			atomic_store(&comm->abort, true);
		comm->ending = comm->stop = true;
		pthread_cond_broadcast(&comm->more);
		pthread_mutex_unlock(&comm->lock);
		pthread_join(comm->thread, NULL);
	}
	if (comm->split)
		split_release(comm->split);
	if (comm->retained)
		cu.cuDevicePrimaryCtxRelease(comm->device);
	op_free(comm->pending);
	comm->magic = 0;
	if (comm->captured) /* a graph of the program's may still name it */
		return;
	pthread_cond_destroy(&comm->less);
	pthread_cond_destroy(&comm->more);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

/* ---- what goes to it */

static CUresult take_event(ncclComm_t comm, struct ready **taken)
{
	struct ready *r = comm->spare;
	CUresult result = CUDA_SUCCESS;

	if (r) {
		comm->spare = r->next;
	} else {
		r = malloc(sizeof(*r));
		result = r ? cu.cuEventCreate(&r->event, CU_EVENT_DISABLE_TIMING) : CUDA_ERROR_OUT_OF_MEMORY;
		if (result != CUDA_SUCCESS) {
			free(r);
			return result;
		}
	}
	*taken = r;
	return result;
}

/* The first operation of a batch in its stream. */
static bool is_first(const struct op *ops, const struct op *op)
{
	while (ops != op && (ops->kind == OP_SPLIT || ops->stream != op->stream))
		ops = ops->next;
	return ops == op && op->kind != OP_SPLIT;
}

static CUresult record(ncclComm_t comm, struct batch *b)
{
	CUresult r = CUDA_SUCCESS;

	for (struct op *op = b->ops; op && r == CUDA_SUCCESS; op = op->next) {
		struct ready *ready;

		if (!is_first(b->ops, op))
			continue;
		r = take_event(comm, &ready);
		if (r != CUDA_SUCCESS)
			break;
		ready->next = b->ready;
		b->ready = ready;
		r = cu.cuEventRecord(ready->event, op->stream);
	}
	return r;
}

/* The streams go on when the batch is done. */
static CUresult hold_streams(ncclComm_t comm, struct op *ops, uint32_t number)
{
	CUresult r = CUDA_SUCCESS;

	for (struct op *op = ops; op && r == CUDA_SUCCESS; op = op->next)
		if (is_first(ops, op))
			r = cu.cuStreamWaitValue32(op->stream, comm->word, number, CU_STREAM_WAIT_VALUE_GEQ);
	return r;
}

/* Under the lock, in the communicator's context. */
static CUresult append(ncclComm_t comm, struct batch *b)
{
	CUresult r = record(comm, b);

	if (r != CUDA_SUCCESS)
		return r;
	/* before the thread can be done with it, and free it */
	r = hold_streams(comm, b->ops, comm->number + 1);
	b->number = ++comm->number;
	*comm->last = b;
	comm->last = &b->next;
	pthread_cond_signal(&comm->more);
	return r;
}

static bool has_captured(const struct op *op)
{
	while (op && !op->captured)
		op = op->next;
	return op;
}

ncclResult_t comm_enqueue(ncclComm_t comm, struct op *ops)
{
	struct batch *b = calloc(1, sizeof(*b));
	ncclResult_t r = b ? comm_ready(comm) : ncclSystemError;
	CUresult result;
	CUcontext popped;

	if (r == ncclSuccess && comm->ending)
		r = nccl_error(ncclInvalidUsage, "the communicator is finalized");
	if (r != ncclSuccess) {
		op_free(ops);
		free(b);
		return r;
	}
	b->ops = ops;
	pthread_mutex_lock(&comm->lock);
	result = comm->failed ? CUDA_SUCCESS : cu.cuCtxPushCurrent(comm->context);
	if (!comm->failed && result == CUDA_SUCCESS && has_captured(ops)) {
		r = capture_ops(comm, ops);
		b->ops = NULL;
		cu.cuCtxPopCurrent(&popped);
	} else if (!comm->failed && result == CUDA_SUCCESS) {
		result = append(comm, b);
		cu.cuCtxPopCurrent(&popped);
		if (b->number)
			b = NULL;
	} else {
		r = (ncclResult_t)atomic_load(&comm->async);
	}
	pthread_mutex_unlock(&comm->lock);
	if (b) { /* nothing has been put into a stream */
		struct ready *ready;

		while ((ready = b->ready)) {
			b->ready = ready->next;
			cu.cuEventDestroy(ready->event);
			free(ready);
		}
		op_free(b->ops);
		free(b);
	}
	return result == CUDA_SUCCESS ? r : nccl_cuda_error(result, "putting a collective into its stream");
}
