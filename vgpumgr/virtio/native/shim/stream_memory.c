/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for values in memory, writes of values and reductions, in the order of a stream. */
#include "stream_memory.h"

/*
 * Memory of the device, as documented no managed memory. What the program calls pinned memory that is mapped on the device is
 * a copy there, which the processor's writes reach at the next launch: a wait for one would not end.
 */
static CUresult check_memory(const struct cuda_memory_operation *m)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct shim_range range;

	if (!m->bytes)
		return CUDA_SUCCESS;
	if (shim_range_find(SHIM_RANGE_DEVICE, m->address, &range) && range.managed) {
		if (!range.host)
			return CUDA_ERROR_INVALID_VALUE;
		if (cuda_is_wait(m))
			return shim_unsupported("a wait of a stream for memory of the host", &told);
	}
	return shim_check_range(m->address, m->bytes, 1, 1, 0);
}

CUresult shim_pack_memory_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old,
				     uint64_t words[CUDA_MEMORY_OPERATIONS][VG_MEMORY_WORDS], struct vg_bytes *packed)
{
	struct cuda_memory_operation m;
	CUresult r = cuda_check_memory_operations(list, count, flags);

	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = cuda_read_memory_operation(&list[i], old, &m);
		if (r == CUDA_SUCCESS)
			r = check_memory(&m);
		vg_pack_memory_operation(&m, words[i]);
	}
	*packed = (struct vg_bytes){ words, count * sizeof(words[0]) };
	return r;
}

static CUresult submit(CUstream hStream, const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old)
{
	uint64_t words[CUDA_MEMORY_OPERATIONS][VG_MEMORY_WORDS];
	struct vg_stream_memory_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = cuda_check_memory_operations(list, count, flags);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = shim_pack_memory_operations(list, count, flags, old, words, &in.operations);
	return r == CUDA_SUCCESS ? vg_send_stream_memory(&in) : r;
}

#define BATCH(name, old)                                                                                                   \
	SHIM_API CUresult name(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags) \
	{                                                                                                                  \
		return submit(stream, paramArray, count, flags, old);                                                      \
	}                                                                                                                  \
	SHIM_API CUresult name##_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,           \
				      unsigned int flags)                                                                  \
	{                                                                                                                  \
		return submit(SHIM_PER_THREAD(stream), paramArray, count, flags, old);                                          \
	}

BATCH(cuStreamBatchMemOp, true)
BATCH(cuStreamBatchMemOp_v2, false)

/* Waits and writes have the same fields. */
#define ONE(name, bits, prefix, old)                                                                                \
	SHIM_API CUresult name(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags)       \
	{                                                                                                           \
		CUstreamBatchMemOpParams one = { .pad = { 0 } };                                                    \
                                                                                                                    \
		one.operation = prefix##_VALUE_##bits;                                                              \
		one.waitValue.address = addr;                                                                       \
		one.waitValue.value64 = value;                                                                      \
		one.waitValue.flags = flags;                                                                        \
		return submit(stream, &one, 1, 0, old);                                                             \
	}                                                                                                           \
	SHIM_API CUresult name##_ptsz(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags) \
	{                                                                                                           \
		return name(SHIM_PER_THREAD(stream), addr, value, flags);                                                \
	}

ONE(cuStreamWaitValue32, 32, CU_STREAM_MEM_OP_WAIT, true)
ONE(cuStreamWaitValue64, 64, CU_STREAM_MEM_OP_WAIT, true)
ONE(cuStreamWriteValue32, 32, CU_STREAM_MEM_OP_WRITE, true)
ONE(cuStreamWriteValue64, 64, CU_STREAM_MEM_OP_WRITE, true)
ONE(cuStreamWaitValue32_v2, 32, CU_STREAM_MEM_OP_WAIT, false)
ONE(cuStreamWaitValue64_v2, 64, CU_STREAM_MEM_OP_WAIT, false)
ONE(cuStreamWriteValue32_v2, 32, CU_STREAM_MEM_OP_WRITE, false)
ONE(cuStreamWriteValue64_v2, 64, CU_STREAM_MEM_OP_WRITE, false)
