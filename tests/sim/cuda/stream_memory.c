/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of streams for values in memory, writes of values, reductions and barriers. */
#include "check.h"

#include <cudaTypedefs.h>
#include <unistd.h>

static CUdeviceptr memory;
static CUstream first, second;

static void begin(void)
{
	new_context();
	OK(cuMemAlloc(&memory, 4096));
	OK(cuMemsetD8(memory, 0, 4096));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
}

static uint64_t read_at(size_t offset)
{
	uint64_t value;

	OK(cuMemcpyDtoHAsync(&value, memory + offset, 8, second));
	OK(cuStreamSynchronize(second));
	return value;
}

/* The wait holds with the one value and not with the other. */
static void expect_wait(unsigned int bits, unsigned int flags, uint64_t value, uint64_t before, uint64_t then)
{
	OK(cuStreamWriteValue64(second, memory, before, 0));
	OK(cuStreamSynchronize(second));
	if (bits == 64)
		OK(cuStreamWaitValue64(first, memory, value, flags));
	else
		OK(cuStreamWaitValue32(first, memory, (uint32_t)value, flags));
	OK(cuStreamWriteValue32(first, memory + 64, 7, 0));
	usleep(3000);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
	EXPECT((uint32_t)read_at(64) == 0);
	OK(cuStreamWriteValue64(second, memory, then, 0));
	OK(cuStreamSynchronize(first));
	EXPECT((uint32_t)read_at(64) == 7);
	OK(cuMemsetD8Async(memory, 0, 128, second));
	OK(cuStreamSynchronize(second));
}

static void wait_conditions(void)
{
	begin();
	expect_wait(32, CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 5);
	expect_wait(32, CU_STREAM_WAIT_VALUE_GEQ, 3, 0xfffffff0, 4); /* cyclic */
	expect_wait(64, CU_STREAM_WAIT_VALUE_GEQ, 1ull << 40, (1ull << 40) - 1, (1ull << 40) + 9);
	expect_wait(32, CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5);
	expect_wait(64, CU_STREAM_WAIT_VALUE_EQ, 5, 5 | 1ull << 32, 5);
	expect_wait(32, CU_STREAM_WAIT_VALUE_AND, 6, 9 | 1ull << 33, 2);
	expect_wait(64, CU_STREAM_WAIT_VALUE_AND, 1ull << 33, 9, 1ull << 33);
	expect_wait(32, CU_STREAM_WAIT_VALUE_NOR, 0xfff, 0xfffff000, 0);
	expect_wait(64, CU_STREAM_WAIT_VALUE_NOR, UINT32_MAX, ~0ull << 32, 0);
}

static CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType kind, size_t offset, uint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .operation = kind };

	p.waitValue.address = memory + offset;
	p.waitValue.value64 = value;
	p.waitValue.flags = flags;
	return p;
}

static CUstreamBatchMemOpParams reduction(unsigned int kind, unsigned int type, size_t offset, uint64_t value)
{
	CUstreamBatchMemOpParams p = { .operation = CU_STREAM_MEM_OP_ATOMIC_REDUCTION };

	p.atomicReduction.reductionOp = kind;
	p.atomicReduction.dataType = type;
	p.atomicReduction.address = memory + offset;
	p.atomicReduction.value = value;
	return p;
}

/* In the order of the list, each at its place. */
static void batches_in_memory(void)
{
	begin();
	CUstreamBatchMemOpParams list[255], some[] = {
		operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 1, 0),
		operation(CU_STREAM_MEM_OP_WAIT_VALUE_32, 8, 1, CU_STREAM_WAIT_VALUE_EQ),
		operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, 16, 1ull << 35, 0),
	}, reductions[] = {
		reduction(CU_STREAM_ATOMIC_REDUCTION_OP_ADD, CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64, 16, 5),
		reduction(CU_STREAM_ATOMIC_REDUCTION_OP_ADD, CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32, 24, UINT32_MAX),
		reduction(CU_STREAM_ATOMIC_REDUCTION_OP_OR, CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32, 32, 12),
		reduction(CU_STREAM_ATOMIC_REDUCTION_OP_AND, CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32, 32, 6),
		{ .memoryBarrier = { .operation = CU_STREAM_MEM_OP_BARRIER, .flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU } },
	};

	OK(cuMemsetD32(memory + 24, 9, 1));
	OK(cuCtxSynchronize());
	OK(cuStreamBatchMemOp(first, 3, some, 0));
	while (!(uint32_t)read_at(0))
		;
	EXPECT(read_at(16) == 0);
	OK(cuStreamWriteValue32(second, memory + 8, 1, 0));
	OK(cuStreamSynchronize(first));
	EXPECT(read_at(16) == 1ull << 35);
	OK(cuStreamBatchMemOp(first, 5, reductions, 0));
	OK(cuStreamSynchronize(first));
	EXPECT(read_at(16) == (1ull << 35) + 5);
	EXPECT(read_at(24) == 8); /* the neighbour has nothing of it */
	EXPECT(read_at(32) == 4);
	for (int i = 0; i < 255; i++)
		list[i] = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 4 * (size_t)(i + 1), (uint64_t)i, 0);
	OK(cuStreamBatchMemOp(CU_STREAM_PER_THREAD, 255, list, 0));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	EXPECT(read_at(4 * 255) == 254);
}

/* What is behind a wait in another stream waits with it. */
static void events_behind_a_wait(void)
{
	CUevent event;

	begin();
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamWaitValue32(first, memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuEventRecord(event, first));
	OK(cuStreamWaitEvent(second, event, 0));
	OK(cuMemsetD32Async(memory + 8, 3, 1, second));
	usleep(3000);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
	OK(cuMemsetD32Async(memory, 1, 1, CU_STREAM_PER_THREAD));
	OK(cuEventSynchronize(event));
	EXPECT((uint32_t)read_at(8) == 3);
}

static void memory_arguments(void)
{
	CUstreamBatchMemOpParams list[256], *one = list;
	CUdeviceptr managed;

	begin();
	for (int i = 0; i < 256; i++)
		list[i] = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 1, 0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 256, list, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 0, list, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, list, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, memory, 0, 4));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32(first, memory, 0, CU_STREAM_WAIT_VALUE_FLUSH));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, memory + 2, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64(first, memory + 4, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, memory + 4096, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, 0, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, (CUdeviceptr)(uintptr_t)list, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, (CUdeviceptr)(uintptr_t)list, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuStreamWriteValue32(first, memory, 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuStreamWriteValue32((CUstream)list, memory, 0, 0));
	one->operation = 7;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, one, 0));
	*one = (CUstreamBatchMemOpParams){ .operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES };
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuStreamBatchMemOp(first, 1, one, 0));
	*one = (CUstreamBatchMemOpParams){ .memoryBarrier = { .operation = CU_STREAM_MEM_OP_BARRIER, .flags = 2 } };
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, one, 0));
	*one = reduction(CU_STREAM_ATOMIC_REDUCTION_OP_ADD, 3, 0, 0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, one, 0));
	*one = reduction(9, CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32, 0, 0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 1, one, 0));
	/* what is wrong with the last one keeps the first from being done */
	list[0] = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 1, 0);
	list[1] = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 4096, 1, 0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(first, 2, list, 0));
	OK(cuStreamSynchronize(first));
	EXPECT(read_at(0) == 0);
	if (cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS)
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(first, managed, 0, 0));
	OK(cuCtxSynchronize());
}

/* By the names and the rules of before CUDA 11.7; attributes say that there are both. */
static void older_names_of_waits(void)
{
	static const CUdevice_attribute said[] = {
		CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
		CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
		CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
	};
	PFN_cuStreamWriteValue32_v8000 write;
	PFN_cuStreamBatchMemOp_v8000 batch;
	CUstreamBatchMemOpParams barrier = { .operation = CU_STREAM_MEM_OP_BARRIER };
	int value;

	begin();
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		OK(cuDeviceGetAttribute(&value, said[i], 0));
		EXPECT(value == 1);
	}
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0));
	EXPECT(value == 0);
	OK(cuGetProcAddress("cuStreamWriteValue32", (void **)&write, 11000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
	OK(cuGetProcAddress("cuStreamBatchMemOp", (void **)&batch, 11000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
	OK(write(first, memory, 77, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
	OK(cuStreamSynchronize(first));
	EXPECT(read_at(0) == 77);
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, batch(first, 1, &barrier, 0));
}

/* The stream alone waits; then nothing waits for it. */
static void a_wait_for_ever(void)
{
	CUcontext ctx;
	CUdeviceptr other;

	begin();
	OK(cuStreamWaitValue32(first, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD32Async(memory + 4, 5, 1, second));
	OK(cuStreamSynchronize(second));
	OK(cuStreamDestroy(first));
	OK(cuCtxGetCurrent(&ctx));
	OK(cuCtxDestroy(ctx));
	new_context();
	OK(cuMemAlloc(&other, 64));
	OK(cuMemsetD32(other, 5, 1));
	OK(cuCtxSynchronize());
}

/* Ends by a signal from outside. */
static void wait_until_killed(void)
{
	begin();
	OK(cuStreamWaitValue32(first, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
	puts("waits");
	fflush(stdout);
	cuStreamSynchronize(first);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "wait_conditions", wait_conditions },
		{ "batches_in_memory", batches_in_memory },
		{ "events_behind_a_wait", events_behind_a_wait },
		{ "memory_arguments", memory_arguments },
		{ "older_names_of_waits", older_names_of_waits },
		{ "a_wait_for_ever", a_wait_for_ever },
		{ "wait_until_killed", wait_until_killed },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
