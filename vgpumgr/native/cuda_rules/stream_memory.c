/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for values in memory and writes of values, in the order of a stream. */
#include "cuda_rules.h"

static CUresult read_wait(const CUstreamBatchMemOpParams *p, struct cuda_memory_operation *out)
{
	unsigned int how = p->waitValue.flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH;

	if (how > CU_STREAM_WAIT_VALUE_NOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (how != p->waitValue.flags) /* writes of other devices, which neither a guest nor the simulator has */
		return CUDA_ERROR_NOT_SUPPORTED;
	out->bytes = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? 8 : 4;
	out->flags = how;
	out->address = p->waitValue.address;
	out->value = p->waitValue.value64;
	return CUDA_SUCCESS;
}

/* A write without a barrier before it may have one. */
static CUresult read_write(const CUstreamBatchMemOpParams *p, bool old, struct cuda_memory_operation *out)
{
	if (p->writeValue.flags > (old ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER : CU_STREAM_WRITE_VALUE_DEFAULT))
		return CUDA_ERROR_INVALID_VALUE;
	out->bytes = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
	out->address = p->writeValue.address;
	out->value = p->writeValue.value64;
	return CUDA_SUCCESS;
}

static CUresult read_reduction(const CUstreamBatchMemOpParams *p, struct cuda_memory_operation *out)
{
	CUstreamAtomicReductionOpType reduction = p->atomicReduction.reductionOp;
	CUstreamAtomicReductionDataType type = p->atomicReduction.dataType;

	if (p->atomicReduction.flags || (type != CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32 && type != CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64))
		return CUDA_ERROR_INVALID_VALUE;
	if (reduction != CU_STREAM_ATOMIC_REDUCTION_OP_OR && reduction != CU_STREAM_ATOMIC_REDUCTION_OP_AND &&
	    reduction != CU_STREAM_ATOMIC_REDUCTION_OP_ADD)
		return CUDA_ERROR_INVALID_VALUE;
	out->bytes = type == CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 ? 8 : 4;
	out->reduction = reduction;
	out->address = p->atomicReduction.address;
	out->value = p->atomicReduction.value;
	return CUDA_SUCCESS;
}

static CUresult read_kind(const CUstreamBatchMemOpParams *p, bool old, struct cuda_memory_operation *out)
{
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return read_wait(p, out);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return read_write(p, old, out);
	case CU_STREAM_MEM_OP_BARRIER:
		out->flags = p->memoryBarrier.flags;
		if (old)
			return CUDA_ERROR_NOT_SUPPORTED;
		return out->flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
		return read_reduction(p, out);
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return p->flushRemoteWrites.flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_read_memory_operation(const CUstreamBatchMemOpParams *p, bool old, struct cuda_memory_operation *out)
{
	CUresult r;

	*out = (struct cuda_memory_operation){ .kind = p->operation };
	r = read_kind(p, old, out);
	if (r != CUDA_SUCCESS)
		return r;
	if (out->bytes == 4)
		out->value = (uint32_t)out->value;
	return out->bytes && out->address % out->bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void cuda_write_memory_operation(const struct cuda_memory_operation *from, CUstreamBatchMemOpParams *p)
{
	*p = (CUstreamBatchMemOpParams){ .pad = { 0 } };
	p->operation = from->kind;
	if (from->kind == CU_STREAM_MEM_OP_BARRIER) {
		p->memoryBarrier.flags = from->flags;
	} else if (from->kind == CU_STREAM_MEM_OP_ATOMIC_REDUCTION) {
		p->atomicReduction.reductionOp = from->reduction;
		p->atomicReduction.dataType = from->bytes == 8 ? CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 :
								 CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32;
		p->atomicReduction.address = from->address;
		p->atomicReduction.value = from->value;
	} else { /* waits and writes are alike */
		p->waitValue.address = from->address;
		p->waitValue.value64 = from->value;
		p->waitValue.flags = from->flags;
	}
}

bool cuda_is_wait(const struct cuda_memory_operation *operation)
{
	return operation->kind == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation->kind == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

CUresult cuda_check_memory_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags)
{
	return !count || count > CUDA_MEMORY_OPERATIONS || !list || flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
