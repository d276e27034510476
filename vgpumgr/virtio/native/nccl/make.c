/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators are made, ended, and asked. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl.h"

static ncclResult_t read_config(const ncclConfig_t *config, bool *blocking)
{
	*blocking = true;
	if (!config)
		return ncclSuccess;
	if (config->magic != (unsigned int)NCCL_MAGIC || config->size < sizeof(*config))
		return nccl_error(ncclInvalidArgument, "the configuration is not NCCL_CONFIG_INITIALIZER's");
	if (config->blocking != NCCL_UNDEF && config->blocking != 0 && config->blocking != 1)
		return nccl_error(ncclInvalidArgument, "the configuration's blocking is %d, neither 0 nor 1", config->blocking);
	*blocking = config->blocking != 0;
	return ncclSuccess;
}

static ncclComm_t comm_new(int ranks, int rank, bool blocking)
{
	ncclComm_t comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	comm->magic = NCCL_ALIVE;
	comm->process = getpid();
	comm->rank = rank;
	comm->ranks = ranks;
	comm->blocking = blocking;
	comm->last = &comm->first;
	atomic_init(&comm->async, ncclInProgress);
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->more, NULL);
	pthread_cond_init(&comm->less, NULL);
	return comm;
}

static ncclResult_t set_context(ncclComm_t comm, CUcontext context)
{
	CUcontext popped;
	CUresult r = cu.cuCtxPushCurrent(context);

	if (r == CUDA_SUCCESS) {
		r = cu.cuCtxGetDevice(&comm->device);
		cu.cuCtxPopCurrent(&popped);
	}
	comm->context = context;
	return r == CUDA_SUCCESS ? ncclSuccess : nccl_cuda_error(r, "the current context");
}

static ncclResult_t check_ranks(int ranks, int rank, const void *handle)
{
	if (!handle)
		return nccl_error(ncclInvalidArgument, "there is no place for the communicator (NULL)");
	if (ranks < 1 || ranks > SG_RANKS)
		return nccl_error(ncclInvalidArgument, "%d ranks: a communicator of a guest has 1 to %d", ranks, SG_RANKS);
	if (rank < 0 || rank >= ranks)
		return nccl_error(ncclInvalidArgument, "rank %d of %d: ranks are 0 to %d", rank, ranks, ranks - 1);
	return ncclSuccess;
}

/* A new one is the group's from now on, or waited for. */
static ncclResult_t begin(ncclComm_t comm, ncclComm_t *handle)
{
	ncclResult_t r = comm_begin(comm, handle);

	if (r != ncclSuccess)
		return r;
	if (!group_take_init(comm) && comm->blocking)
		return comm_wait_init(comm);
	return comm->blocking ? ncclSuccess : ncclInProgress;
}

/* device: its primary context; -1: the current context. */
static ncclResult_t init_rank(ncclComm_t *handle, int ranks, const struct sg_id *id, int rank, const ncclConfig_t *config, int device)
{
	CUcontext context = NULL;
	ncclResult_t r = check_ranks(ranks, rank, handle);
	CUresult result;
	ncclComm_t comm;
	bool blocking;

	if (r == ncclSuccess)
		r = read_config(config, &blocking);
	if (r != ncclSuccess)
		return r;
	*handle = NULL;
	if (!cuda_load())
		return nccl_error(ncclSystemError, "this process has no libcuda.so.1 with streams that wait for memory");
	result = device < 0 ? cuda_current(&context) : cu.cuDevicePrimaryCtxRetain(&context, device);
	if (result != CUDA_SUCCESS)
		return nccl_cuda_error(result, "the device of the communicator");
	comm = comm_new(ranks, rank, blocking);
	if (!comm)
		return nccl_error(ncclSystemError, "no memory");
	comm->id = *id;
	r = set_context(comm, context);
	comm->retained = device >= 0;
	if (r == ncclSuccess)
		return begin(comm, handle);
	comm_end(comm, true);
	return r;
}

NCCL_API ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return nccl_error(ncclInvalidArgument, "ncclGetVersion has no place for its answer (NULL)");
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId *unique)
{
	uint8_t random[96];
	struct sg_id id;

	_Static_assert(sizeof(id) == sizeof(*unique), "an id");
	if (!unique)
		return nccl_error(ncclInvalidArgument, "ncclGetUniqueId has no place for its answer (NULL)");
	if (!sg_random(random, sizeof(random)) || !sg_make_id(&id, random))
		return nccl_error(ncclSystemError, "the system has no random numbers, or no /proc");
	sg_sweep();
	memcpy(unique, &id, sizeof(id));
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId unique, int rank, ncclConfig_t *config)
{
	struct sg_id id;

	memcpy(&id, &unique, sizeof(id));
	return group_error(init_rank(comm, nranks, &id, rank, config, -1));
}

NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId unique, int rank)
{
	return ncclCommInitRankConfig(comm, nranks, unique, rank, NULL);
}

/* Several ids are for very many ranks; the first one is as good for all. */
NCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int count, ncclUniqueId *ids, ncclConfig_t *config)
{
	if (!ids || count < 1 || count > nranks)
		return group_error(nccl_error(ncclInvalidArgument, "%d unique ids for %d ranks", ids ? count : 0, nranks));
	return ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

static ncclResult_t check_devices(int count, const int *devices)
{
	int all = 0;
	CUresult r = cuda_load() ? cu.cuInit(0) : CUDA_ERROR_NO_DEVICE;

	if (r == CUDA_SUCCESS)
		r = cu.cuDeviceGetCount(&all);
	if (r != CUDA_SUCCESS)
		return nccl_cuda_error(r, "the devices");
	if (count < 1 || count > SG_RANKS || (!devices && count > all))
		return nccl_error(ncclInvalidArgument, "ncclCommInitAll for %d devices: this process has %d", count, all);
	for (int i = 0; devices && i < count; i++) {
		if (devices[i] < 0 || devices[i] >= all)
			return nccl_error(ncclInvalidArgument, "there is no device %d: this process has %d", devices[i], all);
		for (int j = 0; j < i; j++)
			if (devices[i] == devices[j])
				return nccl_error(ncclInvalidUsage, "device %d is in ncclCommInitAll's list twice", devices[i]);
	}
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
	ncclResult_t r = comms ? check_devices(count, devices) : nccl_error(ncclInvalidArgument, "no place for communicators (NULL)");
	ncclUniqueId unique;
	struct sg_id id;

	if (r == ncclSuccess)
		r = ncclGetUniqueId(&unique);
	if (r != ncclSuccess)
		return group_error(r);
	memcpy(&id, &unique, sizeof(id));
	ncclGroupStart();
	for (int i = 0; i < count; i++)
		group_error(init_rank(&comms[i], count, &id, i, NULL, devices ? devices[i] : i));
	return ncclGroupEnd();
}

/* ---- of another one's ranks */

static ncclComm_t child_new(ncclComm_t parent, int ranks, int rank, const ncclConfig_t *config, ncclResult_t *r)
{
	bool blocking;
	ncclComm_t child;

	*r = read_config(config, &blocking);
	if (*r != ncclSuccess)
		return NULL;
	child = comm_new(ranks, rank, config ? blocking : parent->blocking);
	if (!child) {
		*r = nccl_error(ncclSystemError, "no memory");
		return NULL;
	}
	child->context = parent->context;
	child->device = parent->device;
	/* as long as the child lives, whatever becomes of the parent */
	child->retained = parent->retained && cu.cuDevicePrimaryCtxRetain(&child->context, child->device) == CUDA_SUCCESS;
	return child;
}

static struct split *split_new(int color, int key)
{
	struct split *split = calloc(1, sizeof(*split));

	if (!split)
		return NULL;
	split->holders = 2;
	split->color = color;
	split->key = key;
	split->result = ncclInProgress;
	pthread_mutex_init(&split->lock, NULL);
	pthread_cond_init(&split->known, NULL);
	return split;
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *handle, const ncclConfig_t *config)
{
	struct op op = { .kind = OP_SPLIT, .type = ncclUint8, .count = 1 };
	ncclResult_t r = comm_ready(comm);
	ncclComm_t child;

	if (r != ncclSuccess)
		return r;
	if (!handle || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return nccl_error(ncclInvalidArgument, "ncclCommSplit with color %d, or without a place for its answer", color);
	*handle = NULL;
	if (color == NCCL_SPLIT_NOCOLOR)
		return group_submit(comm, &op);
	child = child_new(comm, 1, 0, config, &r);
	if (!child)
		return r;
	op.split = child->split = split_new(color, key);
	if (!op.split) {
		comm_end(child, true);
		return nccl_error(ncclSystemError, "no memory");
	}
	r = group_submit(comm, &op);
	if (r == ncclSuccess)
		return begin(child, handle);
	comm_end(child, true);
	return r;
}

NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *handle, ncclConfig_t *config)
{
	return group_error(split(comm, color, key, handle, config));
}

/* All that remain make the same id, of what only they know. */
static void shrink_id(ncclComm_t comm, const bool *excluded, struct sg_id *id)
{
	uint64_t state = 0x9e3779b97f4a7c15u * ++comm->shrinks;
	uint8_t random[96];

	for (int pass = 0; pass < 4; pass++)
		for (size_t i = 0; i < sizeof(comm->id) + SG_RANKS; i++) {
			uint8_t byte = i < sizeof(comm->id) ? ((const uint8_t *)&comm->id)[i] : excluded[i - sizeof(comm->id)];

			state = (state ^ byte) * 0x100000001b3u;
			state ^= state >> 29;
			random[(i + (size_t)pass * 17) % sizeof(random)] = (uint8_t)(state >> 56);
		}
	sg_make_id(id, random);
}

static ncclResult_t shrink(ncclComm_t comm, const int *list, int count, ncclComm_t *handle, const ncclConfig_t *config, int flags)
{
	bool excluded[SG_RANKS] = { false };
	ncclResult_t r = comm_check(comm);
	int rank = 0, ranks;
	ncclComm_t child;

	if (r != ncclSuccess)
		return r;
	if (!handle || count < 1 || !list || (flags != 0 && flags != 1))
		return nccl_error(ncclInvalidArgument, "ncclCommShrink without ranks to leave out, or with flags that there are not");
	for (int i = 0; i < count; i++) {
		if (list[i] < 0 || list[i] >= comm->ranks || list[i] == comm->rank || excluded[list[i]])
			return nccl_error(ncclInvalidArgument, "rank %d cannot be left out of %d by rank %d", list[i], comm->ranks, comm->rank);
		excluded[list[i]] = true;
	}
	if (!flags)
		r = comm_ready(comm);
	if (r != ncclSuccess)
		return r;
	if (flags) { /* what goes on is given up first */
		pthread_mutex_lock(&comm->lock);
		atomic_store(&comm->abort, true);
		pthread_cond_broadcast(&comm->more);
		pthread_mutex_unlock(&comm->lock);
	}
	ranks = comm->ranks - count;
	for (int i = 0; i < comm->rank; i++)
		rank += !excluded[i];
	*handle = NULL;
	child = child_new(comm, ranks, rank, config, &r);
	if (!child)
		return r;
	shrink_id(comm, excluded, &child->id);
	return begin(child, handle);
}

NCCL_API ncclResult_t ncclCommShrink(ncclComm_t comm, int *list, int count, ncclComm_t *handle, ncclConfig_t *config, int flags)
{
	return group_error(shrink(comm, list, count, handle, config, flags));
}

/* ---- ends */

NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	ncclResult_t r = comm_ready(comm);

	if (r != ncclSuccess)
		return r;
	pthread_mutex_lock(&comm->lock);
	if (comm->ending)
		r = ncclInvalidArgument;
	comm->ending = true;
	if (r == ncclSuccess && !comm->blocking && comm->first) {
		r = ncclInProgress;
		atomic_store(&comm->async, r);
	}
	while (r == ncclSuccess && comm->first)
		pthread_cond_wait(&comm->less, &comm->lock);
	if (r == ncclSuccess)
		r = (ncclResult_t)atomic_load(&comm->async);
	pthread_mutex_unlock(&comm->lock);
	return r == ncclInvalidArgument ? nccl_error(r, "the communicator is finalized already") : r;
}

NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	ncclResult_t r;

	if (!comm)
		return ncclSuccess;
	r = comm_check(comm);
	if (r == ncclSuccess)
		comm_end(comm, false);
	return r;
}

NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	ncclResult_t r;

	if (!comm)
		return ncclSuccess;
	r = comm_check(comm);
	if (r == ncclSuccess)
		comm_end(comm, true);
	return r;
}

NCCL_PROFILED(ncclGetVersion);
NCCL_PROFILED(ncclGetUniqueId);
NCCL_PROFILED(ncclCommInitRankConfig);
NCCL_PROFILED(ncclCommInitRank);
NCCL_PROFILED(ncclCommInitRankScalable);
NCCL_PROFILED(ncclCommInitAll);
NCCL_PROFILED(ncclCommSplit);
NCCL_PROFILED(ncclCommShrink);
NCCL_PROFILED(ncclCommFinalize);
NCCL_PROFILED(ncclCommDestroy);
NCCL_PROFILED(ncclCommAbort);
