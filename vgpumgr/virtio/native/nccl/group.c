/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of calls: what a thread's calls between ncclGroupStart and ncclGroupEnd do begins with the end of the outermost. */
#include <stdlib.h>

#include "nccl.h"

static __thread struct {
	unsigned int depth;
	ncclResult_t error;        /* the first one */
	struct ncclComm *comms;    /* with operations */
	struct ncclComm *inits;    /* that are being made, newest first */
} group;

ncclResult_t group_error(ncclResult_t result)
{
	if (group.depth && group.error == ncclSuccess && result != ncclInProgress)
		group.error = result;
	return result;
}

bool group_take_init(ncclComm_t comm)
{
	if (!group.depth)
		return false;
	comm->init_next = group.inits;
	group.inits = comm;
	return true;
}

static void add(ncclComm_t comm, struct op *op)
{
	if (!comm->in_group) {
		struct ncclComm **at = &group.comms;

		while (*at)
			at = &(*at)->group_next;
		*at = comm;
		comm->group_next = NULL;
		comm->pending_last = &comm->pending;
		comm->in_group = true;
	}
	*comm->pending_last = op;
	comm->pending_last = &op->next;
}

ncclResult_t group_submit(ncclComm_t comm, const struct op *op)
{
	struct op *made = malloc(sizeof(*made));

	if (!made)
		return group_error(nccl_error(ncclSystemError, "no memory"));
	*made = *op;
	made->next = NULL;
	if (!group.depth)
		return comm_enqueue(comm, made);
	add(comm, made);
	return ncclSuccess;
}

/* Those of blocking communicators: when all ranks of this thread have been begun. */
static ncclResult_t end_inits(void)
{
	ncclResult_t r = group.error, one;
	bool progress = false;

	while (group.inits) {
		ncclComm_t comm = group.inits;

		group.inits = comm->init_next;
		if (r != ncclSuccess && comm->blocking) {
			*comm->handle = NULL;
			comm_end(comm, true);
			continue;
		}
		one = comm->blocking ? comm_wait_init(comm) : ncclSuccess;
		progress = progress || !comm->blocking;
		if (r == ncclSuccess)
			r = one;
	}
	return r == ncclSuccess && progress ? ncclInProgress : r;
}

static ncclResult_t end_operations(ncclResult_t so_far)
{
	ncclResult_t r = so_far, one;

	while (group.comms) {
		ncclComm_t comm = group.comms;
		struct op *ops = comm->pending;

		group.comms = comm->group_next;
		comm->in_group = false;
		comm->pending = NULL;
		if (so_far != ncclSuccess && so_far != ncclInProgress) {
			op_free(ops);
			continue;
		}
		one = comm_enqueue(comm, ops);
		if (r == ncclSuccess)
			r = one;
	}
	return r;
}

NCCL_API ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclGroupEnd(void)
{
	ncclResult_t r;

	if (!group.depth)
		return nccl_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	if (--group.depth)
		return ncclSuccess;
	/* a split's operation is what the new communicator waits for */
	r = end_operations(group.error);
	group.error = r == ncclInProgress ? ncclSuccess : r;
	r = end_inits();
	group.error = ncclSuccess;
	return r;
}

NCCL_PROFILED(ncclGroupStart);
NCCL_PROFILED(ncclGroupEnd);
