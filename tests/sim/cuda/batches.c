/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes. */
#include "check.h"

#include <cudaTypedefs.h>
#include <stdatomic.h>
#include <unistd.h>

enum { COUNT = 4, BYTES = 1000 };

static const CUmemcpyAttributes IN_ORDER = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
static const CUmemcpyAttributes AT_ONCE = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
					    .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE };

struct batch {
	CUdeviceptr to[COUNT], from[COUNT];
	size_t sizes[COUNT], first[2];
	CUmemcpyAttributes attributes[2];
};

static CUresult submit(struct batch *b, size_t kinds, CUstream stream)
{
	return cuMemcpyBatchAsync(b->to, b->from, b->sizes, COUNT, b->attributes, b->first, kinds, stream);
}

/* From `host` to memory of the device, a page apart. */
static struct batch make(uint8_t host[COUNT][BYTES], CUdeviceptr device)
{
	struct batch b = { .first = { 0, COUNT / 2 }, .attributes = { IN_ORDER, AT_ONCE } };

	for (int i = 0; i < COUNT; i++) {
		memset(host[i], i + 1, BYTES);
		b.from[i] = (CUdeviceptr)(uintptr_t)host[i];
		b.to[i] = device + (CUdeviceptr)i * 4096;
		b.sizes[i] = BYTES - (size_t)i;
	}
	return b;
}

static void begin(CUdeviceptr *device, CUstream *stream)
{
	new_context();
	OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(device, COUNT * 4096));
}

static void turn(struct batch *b, uint8_t back[COUNT][BYTES])
{
	for (int i = 0; i < COUNT; i++) {
		b->from[i] = b->to[i];
		b->to[i] = (CUdeviceptr)(uintptr_t)back[i];
	}
}

static void expect(uint8_t got[COUNT][BYTES], int more)
{
	for (int i = 0; i < COUNT; i++)
		for (int k = 0; k < BYTES; k++)
			EXPECT(got[i][k] == (k < BYTES - i ? i + 1 + more : 0));
}

static void there_and_back(void)
{
	uint8_t host[COUNT][BYTES], back[COUNT][BYTES] = { 0 };
	CUdeviceptr device;
	CUstream stream;
	struct batch b;

	begin(&device, &stream);
	b = make(host, device);
	OK(submit(&b, 2, stream));
	/* the last two were read at the call */
	memset(host[COUNT / 2], 0, sizeof(host) / 2);
	turn(&b, back);
	OK(submit(&b, 1, stream));
	OK(cuStreamSynchronize(stream));
	expect(back, 0);
	b.attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
	OK(cuMemcpyWithAttributesAsync(device, device + 4096, BYTES - 1, b.attributes, CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(cuMemcpyDtoH(back[0], device, 1));
	EXPECT(back[0][0] == 2);
}

static void say_late(void *reached)
{
	usleep(300000);
	atomic_store((atomic_bool *)reached, true);
}

/* A source on the device, too, may be given to another use when the call has returned. */
static void read_at_the_call(void)
{
	static atomic_bool reached;
	static sem_t gate;
	uint8_t host[COUNT][BYTES], back[COUNT][BYTES] = { 0 };
	CUdeviceptr device;
	CUstream stream;
	struct batch b;

	begin(&device, &stream);
	b = make(host, device);
	OK(submit(&b, 2, stream));
	OK(cuStreamSynchronize(stream));
	for (int i = 0; i < COUNT; i++) {
		b.from[i] = b.to[i];
		b.to[i] += 2048;
	}
	sem_init(&gate, 0, 0);
	OK(cuLaunchHostFunc(stream, wait_at_gate, &gate));
	OK(submit(&b, 1, stream)); /* of these none has to be read at the call */
	sem_post(&gate);
	OK(cuLaunchHostFunc(stream, say_late, &reached));
	OK(submit(&b, 2, stream));
	EXPECT(atomic_load(&reached));
	OK(cuMemsetD8(device, 0, 1024));
	turn(&b, back);
	OK(submit(&b, 1, stream));
	OK(cuStreamSynchronize(stream));
	expect(back, 0);
}

/* Nothing is copied. */
static void wrong(void)
{
	uint8_t host[COUNT][BYTES], got;
	CUdeviceptr device;
	CUstream stream;
	struct batch b;

	begin(&device, &stream);
	OK(cuMemsetD8(device, 77, COUNT * 4096));
	OK(cuCtxSynchronize());
	b = make(host, device);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 2, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 2, CU_STREAM_LEGACY));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 0, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, COUNT + 1, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuMemcpyBatchAsync(b.to, b.from, NULL, COUNT, b.attributes, b.first, 1, stream));
	b.first[1] = 0;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 2, stream));
	b.first[1] = COUNT;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 2, stream));
	b.first[0] = 1;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 1, stream));
	b.first[0] = 0;
	b.attributes[0].srcAccessOrder = 0;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 1, stream));
	b.attributes[0] = IN_ORDER;
	b.attributes[0].flags = 2;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, submit(&b, 1, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync(device, device + 1, 1, NULL, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(&got, device, 1));
	EXPECT(got == 77);
}

/* The first form says which copy was refused. */
static void named(void)
{
	PFN_cuMemcpyBatchAsync_v12080 first_form;
	uint8_t host[COUNT][BYTES];
	size_t failed = 7;
	CUdeviceptr device;
	CUstream stream;
	struct batch b;

	begin(&device, &stream);
	OK(cuGetProcAddress("cuMemcpyBatchAsync", (void **)&first_form, 12080, 0, NULL));
	b = make(host, device);
	OK(first_form(b.to, b.from, b.sizes, COUNT, b.attributes, b.first, 2, &failed, stream));
	EXPECT(failed == SIZE_MAX);
	b.sizes[2] = 1 << 20;
	b.from[2] = device;
	EXPECT(first_form(b.to, b.from, b.sizes, COUNT, b.attributes, b.first, 2, &failed, stream) != CUDA_SUCCESS);
	EXPECT(failed == 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     first_form(b.to, b.from, b.sizes, COUNT, b.attributes, b.first, 0, &failed, stream));
	EXPECT(failed == SIZE_MAX);
}

/* Each launch reads what the memory has then. */
static void captured(void)
{
	static uint8_t host[COUNT][BYTES], back[COUNT][BYTES];
	CUgraphExec exec;
	CUdeviceptr device;
	CUstream stream;
	CUgraph graph;
	struct batch b;

	begin(&device, &stream);
	b = make(host, device);
	b.attributes[1] = IN_ORDER;
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(submit(&b, 2, stream));
	turn(&b, back);
	OK(submit(&b, 2, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	for (int more = 0; more < 2; more++) {
		for (int i = 0; i < COUNT; i++)
			memset(host[i], i + 1 + more, BYTES);
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		expect(back, more);
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "there_and_back", there_and_back }, { "read_at_the_call", read_at_the_call }, { "wrong", wrong }, { "named", named }, { "captured", captured },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
