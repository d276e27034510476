/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator says of itself, memory, and reductions of a program's own. */
#include <string.h>

#include "nccl.h"
#include "reduce.h"

static ncclResult_t check_answer(ncclComm_t comm, const void *answer)
{
	ncclResult_t r = comm_check(comm);

	return r == ncclSuccess && !answer ? nccl_error(ncclInvalidArgument, "there is no place for the answer (NULL)") : r;
}

/* Of one that is being split the rank is not known before it is ready. */
static ncclResult_t check_known(ncclComm_t comm, const void *answer)
{
	ncclResult_t r = check_answer(comm, answer);

	return r == ncclSuccess && atomic_load(&comm->async) == ncclInProgress ? comm_ready(comm) : r;
}

NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	ncclResult_t r = check_answer(comm, error);

	if (r == ncclSuccess)
		*error = (ncclResult_t)atomic_load(&comm->async);
	return r;
}

NCCL_API ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	ncclResult_t r = check_known(comm, count);

	if (r == ncclSuccess)
		*count = comm->ranks;
	return r;
}

NCCL_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	ncclResult_t r = check_answer(comm, device);

	if (r == ncclSuccess)
		*device = comm->device;
	return r;
}

NCCL_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	ncclResult_t r = check_known(comm, rank);

	if (r == ncclSuccess)
		*rank = comm->rank;
	return r;
}

/* ---- memory: no copy is saved by knowing it in advance */

NCCL_API ncclResult_t ncclMemAlloc(void **pointer, size_t size)
{
	CUdeviceptr address = 0;
	CUcontext context;
	CUresult r;

	if (!pointer || !size)
		return nccl_error(ncclInvalidArgument, "ncclMemAlloc of %zu bytes, or without a place for its answer", size);
	if (!cuda_load())
		return nccl_error(ncclSystemError, "this process has no libcuda.so.1 with streams that wait for memory");
	r = cuda_current(&context);
	if (r == CUDA_SUCCESS)
		r = cu.cuCtxSetCurrent(context);
	if (r == CUDA_SUCCESS)
		r = cu.cuMemAlloc(&address, size);
	*pointer = (void *)address;
	return r == CUDA_SUCCESS ? ncclSuccess : nccl_cuda_error(r, "ncclMemAlloc");
}

NCCL_API ncclResult_t ncclMemFree(void *pointer)
{
	CUresult r = pointer && cuda_load() ? cu.cuMemFree((CUdeviceptr)pointer) : CUDA_SUCCESS;

	return r == CUDA_SUCCESS ? ncclSuccess : nccl_cuda_error(r, "ncclMemFree");
}

NCCL_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
	ncclResult_t r = check_answer(comm, handle);

	if (r == ncclSuccess && (!buffer || !size))
		r = nccl_error(ncclInvalidArgument, "ncclCommRegister of no memory");
	if (r == ncclSuccess)
		*handle = comm;
	return r;
}

NCCL_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	ncclResult_t r = comm_check(comm);

	return r == ncclSuccess && handle && handle != comm ? nccl_error(ncclInvalidArgument, "no memory was registered as that") : r;
}

/* Documented: no window where memory of several devices is not reached at one address. Collectives do without. */
NCCL_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, void **window, int flags)
{
	ncclResult_t r = check_answer(comm, window);

	(void)flags;
	if (r == ncclSuccess && (!buffer || !size))
		r = nccl_error(ncclInvalidArgument, "ncclCommWindowRegister of no memory");
	if (r == ncclSuccess)
		*window = NULL;
	return r;
}

NCCL_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, void *window)
{
	ncclResult_t r = comm_check(comm);

	return r == ncclSuccess && window ? nccl_error(ncclInvalidArgument, "there is no such window") : r;
}

/* ---- sums of products */

NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
					       ncclComm_t comm)
{
	ncclResult_t r = check_answer(comm, op);
	struct scale scale = { .used = true, .type = type };
	int i = 0;

	if (r != ncclSuccess)
		return r;
	if (!scalar || !type_bytes(type) || (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
		return nccl_error(ncclInvalidArgument, "a scalar of data type %d, residence %d", type, residence);
	if (residence == ncclScalarHostImmediate)
		memcpy(&scale.scalar, scalar, type_bytes(type));
	else
		scale.scalar_at = (uint64_t)scalar;
	pthread_mutex_lock(&comm->lock);
	while (i < NCCL_SCALES && comm->scales[i].used)
		i++;
	if (i < NCCL_SCALES)
		comm->scales[i] = scale;
	pthread_mutex_unlock(&comm->lock);
	*op = (ncclRedOp_t)(ncclNumOps + i);
	return i < NCCL_SCALES ? r : nccl_error(ncclInvalidUsage, "a communicator has at most %d reductions of its own", NCCL_SCALES);
}

NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	ncclResult_t r = comm_check(comm);
	int i = (int)op - ncclNumOps;

	if (r != ncclSuccess)
		return r;
	pthread_mutex_lock(&comm->lock);
	if (i < 0 || i >= NCCL_SCALES || !comm->scales[i].used)
		r = ncclInvalidArgument;
	else
		comm->scales[i].used = false;
	pthread_mutex_unlock(&comm->lock);
	return r == ncclSuccess ? r : nccl_error(r, "there is no reduction %d in this communicator", op);
}

NCCL_PROFILED(ncclCommGetAsyncError);
NCCL_PROFILED(ncclCommCount);
NCCL_PROFILED(ncclCommCuDevice);
NCCL_PROFILED(ncclCommUserRank);
NCCL_PROFILED(ncclMemAlloc);
NCCL_PROFILED(ncclMemFree);
NCCL_PROFILED(ncclCommRegister);
NCCL_PROFILED(ncclCommDeregister);
NCCL_PROFILED(ncclCommWindowRegister);
NCCL_PROFILED(ncclCommWindowDeregister);
NCCL_PROFILED(ncclRedOpCreatePreMulSum);
NCCL_PROFILED(ncclRedOpDestroy);
