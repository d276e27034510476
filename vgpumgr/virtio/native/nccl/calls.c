/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and messages: arguments are checked where they are called, and what is wrong is refused before any work. */
#include "nccl.h"
#include "reduce.h"

static ncclResult_t check_stream(CUstream stream, CUcontext context, bool *captured)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUcontext popped;
	CUresult r = cu.cuCtxPushCurrent(context);

	if (r == CUDA_SUCCESS) {
		r = cu.cuStreamIsCapturing(stream, &status);
		cu.cuCtxPopCurrent(&popped);
	}
	if (r != CUDA_SUCCESS)
		return nccl_cuda_error(r, "the stream of a collective");
	*captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return nccl_error(ncclInvalidUsage, "the capture of the collective's stream has been invalidated");
	return ncclSuccess;
}

/* Memory of the communicator's device, or pinned memory of the host. */
static ncclResult_t check_buffer(ncclComm_t comm, uint64_t address, const char *which, bool *host)
{
	CUmemorytype type = CU_MEMORYTYPE_HOST;
	int device = comm->device;
	CUresult r = address ? cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS && type != CU_MEMORYTYPE_HOST)
		r = cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
	if (r != CUDA_SUCCESS)
		return nccl_error(ncclInvalidArgument, "the %s buffer %#llx is no memory of CUDA's", which, (unsigned long long)address);
	if (device != comm->device)
		return nccl_error(ncclInvalidArgument, "the %s buffer is of device %d, the communicator of device %d", which, device, comm->device);
	*host = type == CU_MEMORYTYPE_HOST;
	return ncclSuccess;
}

static bool needs_from(const struct op *op, int rank)
{
	return op->kind != OP_RECEIVE && ((op->kind != OP_BROADCAST && op->kind != OP_SCATTER) || rank == op->root);
}

static bool needs_to(const struct op *op, int rank)
{
	return op->kind != OP_SEND && ((op->kind != OP_REDUCE && op->kind != OP_GATHER) || rank == op->root);
}

static ncclResult_t check_reduction(ncclComm_t comm, struct op *op)
{
	const struct scale *scale;

	if (op->op >= 0 && op->op < ncclNumOps)
		return ncclSuccess;
	if (op->op < 0 || op->op >= ncclNumOps + NCCL_SCALES || !comm->scales[op->op - ncclNumOps].used)
		return nccl_error(ncclInvalidArgument, "there is no reduction %d in this communicator", op->op);
	scale = &comm->scales[op->op - ncclNumOps];
	if (scale->type != op->type)
		return nccl_error(ncclInvalidArgument, "the reduction was made for data type %d, not %d", scale->type, op->type);
	op->scaled = true;
	op->scalar = scale->scalar;
	op->scalar_at = scale->scalar_at;
	op->op = ncclSum;
	return ncclSuccess;
}

static ncclResult_t check(ncclComm_t comm, struct op *op)
{
	size_t bytes = type_bytes(op->type);
	ncclResult_t r = comm_ready(comm);

	if (r != ncclSuccess)
		return r;
	if (!bytes)
		return nccl_error(ncclInvalidArgument, "there is no data type %d", op->type);
	if (op->root < 0 || op->root >= comm->ranks)
		return nccl_error(ncclInvalidArgument, "rank %d of %d is neither root nor peer", op->root, comm->ranks);
	if (op->count > ((size_t)1 << 46) / bytes / (size_t)comm->ranks)
		return nccl_error(ncclInvalidArgument, "%zu elements are more than there is memory", op->count);
	r = check_reduction(comm, op);
	if (r == ncclSuccess)
		r = check_stream(op->stream, comm->context, &op->captured);
	if (r == ncclSuccess && op->count && needs_from(op, comm->rank))
		r = check_buffer(comm, op->from, "send", &op->from_host);
	if (r == ncclSuccess && op->count && needs_to(op, comm->rank))
		r = check_buffer(comm, op->to, "receive", &op->to_host);
	return r;
}

static ncclResult_t submit(ncclComm_t comm, struct op op)
{
	ncclResult_t r = check(comm, &op);

	return r == ncclSuccess ? group_submit(comm, &op) : group_error(r);
}

#define OP(of, ...) \
	(struct op) { .kind = (of), .from = (uint64_t)sendbuff, .to = (uint64_t)recvbuff, .count = count, .type = type, \
		      .stream = stream, __VA_ARGS__ }

/* How the vendor's kernels are launched is not ours; the event of their launch is none of ours. */
static ncclResult_t check_config(const ncclCollConfig_t *config)
{
	if (!config)
		return ncclSuccess;
	if (config->magic != (unsigned int)NCCL_MAGIC || config->size < offsetof(ncclCollConfig_t, ext))
		return nccl_error(ncclInvalidArgument, "the configuration is not NCCL_COLLCONFIG_INITIALIZER's");
	if (config->size >= sizeof(*config) && config->launchCompletionEvent)
		return nccl_error(ncclInvalidUsage, "an event of the launch of a collective is not supported over a forwarded GPU");
	return ncclSuccess;
}

#define ALL_REDUCE const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream
#define REDUCE const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream
#define ROOTED const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream
#define PLAIN const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream

/* A function, and the one that says how it is to be launched as well. */
#define BOTH(name, parameters, what)                                                                             \
	NCCL_API ncclResult_t name(parameters)                                                                   \
	{                                                                                                        \
		return submit(comm, what);                                                                       \
	}                                                                                                        \
	NCCL_API ncclResult_t name##Config(parameters, const ncclCollConfig_t *config)                           \
	{                                                                                                        \
		ncclResult_t r = check_config(config);                                                           \
                                                                                                                 \
		return r == ncclSuccess ? submit(comm, what) : group_error(r);                                   \
	}                                                                                                        \
	NCCL_PROFILED(name);                                                                                     \
	NCCL_PROFILED(name##Config);

BOTH(ncclAllReduce, ALL_REDUCE, OP(OP_ALL_REDUCE, .op = op))
BOTH(ncclReduce, REDUCE, OP(OP_REDUCE, .op = op, .root = root))
BOTH(ncclReduceScatter, ALL_REDUCE, OP(OP_REDUCE_SCATTER, .op = op))
BOTH(ncclBroadcast, ROOTED, OP(OP_BROADCAST, .root = root))
BOTH(ncclGather, ROOTED, OP(OP_GATHER, .root = root))
BOTH(ncclScatter, ROOTED, OP(OP_SCATTER, .root = root))
BOTH(ncclAllGather, PLAIN, OP(OP_ALL_GATHER, .root = 0))
BOTH(ncclAlltoAll, PLAIN, OP(OP_ALL_TO_ALL, .root = 0))

NCCL_API ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream)
{
	return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_API ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
	void *recvbuff = NULL;

	return submit(comm, OP(OP_SEND, .root = peer));
}

NCCL_API ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
	const void *sendbuff = NULL;

	return submit(comm, OP(OP_RECEIVE, .root = peer));
}

NCCL_PROFILED(ncclBcast);
NCCL_PROFILED(ncclSend);
NCCL_PROFILED(ncclRecv);
