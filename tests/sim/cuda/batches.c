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

static CUDA_MEMCPY3D_BATCH_OP copy_of(CUdeviceptr to, CUdeviceptr from, size_t width, size_t height, size_t depth)
{
	CUDA_MEMCPY3D_BATCH_OP op = { .extent = { width, height, depth }, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };

	op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
	op.src.op.ptr.ptr = from;
	op.dst.op.ptr.ptr = to;
	return op;
}

static void put_array(CUmemcpy3DOperand *o, CUarray array, size_t x, size_t y, size_t z)
{
	*o = (CUmemcpy3DOperand){ .type = CU_MEMCPY_OPERAND_TYPE_ARRAY };
	o->op.array.array = array;
	o->op.array.offset = (CUoffset3D){ x, y, z };
}

enum { W = 6, H = 4, D = 3, ROW = 10, LAYER = 5 };

/* Boxes of bytes with room between rows and layers, and boxes of elements of arrays. */
static void boxes(void)
{
	uint8_t host[D][H][W], spread[D][LAYER][ROW] = { 0 }, back[D][H][W] = { 0 };
	uint32_t elements[D][H][W], found[2][2][2];
	CUDA_ARRAY3D_DESCRIPTOR made = { W, H, D, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0 };
	CUDA_MEMCPY3D_BATCH_OP list[2];
	CUdeviceptr device;
	CUstream stream;
	CUarray array;

	begin(&device, &stream);
	OK(cuArray3DCreate(&array, &made));
	for (int i = 0; i < D * H * W; i++) {
		((uint8_t *)host)[i] = (uint8_t)(i + 1);
		((uint32_t *)elements)[i] = 1000u + (uint32_t)i;
	}
	list[0] = copy_of(device, (CUdeviceptr)(uintptr_t)host, W, H, D);
	list[0].dst.op.ptr.rowLength = ROW;
	list[0].dst.op.ptr.layerHeight = LAYER;
	list[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	list[1] = copy_of(0, (CUdeviceptr)(uintptr_t)elements, W, H, D);
	put_array(&list[1].dst, array, 0, 0, 0);
	OK(cuMemsetD8Async(device, 0, sizeof(spread), stream));
	OK(cuMemcpy3DBatchAsync(2, list, 0, stream));
	OK(cuMemcpyDtoHAsync(spread, device, sizeof(spread), stream));
	OK(cuStreamSynchronize(stream));
	for (int z = 0; z < D; z++)
		for (int y = 0; y < LAYER; y++)
			for (int x = 0; x < ROW; x++)
				EXPECT(spread[z][y][x] == (x < W && y < H ? host[z][y][x] : 0));
	list[0].src = list[0].dst;
	list[0].dst.op.ptr.ptr = (CUdeviceptr)(uintptr_t)back;
	list[0].dst.op.ptr.rowLength = list[0].dst.op.ptr.layerHeight = 0;
	list[1] = copy_of((CUdeviceptr)(uintptr_t)found, 0, 2, 2, 2);
	put_array(&list[1].src, array, 3, 1, 1);
	OK(cuMemcpy3DBatchAsync(1, list, 0, stream));
	OK(cuMemcpy3DWithAttributesAsync(&list[1], 0, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(!memcmp(host, back, sizeof(host)));
	for (int i = 0; i < 8; i++)
		EXPECT(((uint32_t *)found)[i] == elements[1 + i / 4][1 + i / 2 % 2][3 + i % 2]);
}

static void wrong_boxes(void)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { W, H, D, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0 };
	CUDA_MEMCPY3D_BATCH_OP good, op, two[2];
	PFN_cuMemcpy3DBatchAsync_v12080 first_form;
	CUdeviceptr device;
	size_t failed = 7;
	CUstream stream;
	CUarray array;

	begin(&device, &stream);
	OK(cuArray3DCreate(&array, &made));
	OK(cuGetProcAddress("cuMemcpy3DBatchAsync", (void **)&first_form, 12080, 0, NULL));
	good = copy_of(device, device + 4096, 8, 2, 2);
#define WRONG(change)                                                                                    \
	do {                                                                                             \
		op = good;                                                                               \
		change;                                                                                  \
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DWithAttributesAsync(&op, 0, stream));   \
	} while (0)
	WRONG(op.extent.width = 0);
	WRONG(op.extent.depth = 0);
	WRONG(op.src.op.ptr.rowLength = 7);
	WRONG(op.dst.op.ptr.layerHeight = 1);
	WRONG(op.src.type = 0);
	WRONG(op.src.op.ptr.ptr = 0);
	WRONG(op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID);
	WRONG(op.flags = 2);
	WRONG(op.extent.width = SIZE_MAX);
	WRONG(op.extent.height = 1 << 20);
	WRONG(put_array(&op.src, array, 0, 3, 0));
	WRONG(put_array(&op.src, array, SIZE_MAX, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &good, 1, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(0, &good, 0, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, NULL, 0, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &good, 0, NULL));
	two[0] = two[1] = good;
	two[1].flags = 2;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, first_form(2, two, &failed, 0, stream));
	EXPECT(failed == 1);
	OK(first_form(1, two, &failed, 0, stream));
	EXPECT(failed == SIZE_MAX);
	OK(cuStreamSynchronize(stream));
}

/* Advice changes nothing that a program reads. */
static void advice(void)
{
	CUmemLocation places[2] = { { .type = CU_MEM_LOCATION_TYPE_DEVICE }, { .type = CU_MEM_LOCATION_TYPE_HOST } };
	size_t sizes[COUNT], first[2] = { 0, 1 };
	CUdeviceptr at[COUNT], device;
	CUstream stream;

	begin(&device, &stream);
	for (int i = 0; i < COUNT; i++) {
		OK(cuMemAllocManaged(&at[i], 4096, CU_MEM_ATTACH_GLOBAL));
		sizes[i] = 4096;
	}
	*(volatile int *)at[1] = 5;
	OK(cuMemPrefetchBatchAsync(at, sizes, COUNT, places, first, 2, 0, stream));
	OK(cuMemDiscardBatchAsync(&at[2], sizes, 1, 0, stream));
	OK(cuMemDiscardAndPrefetchBatchAsync(&at[3], sizes, 1, places, first, 1, 0, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(*(volatile int *)at[1] == 5);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, COUNT, places, first, 2, 1, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, 1, places, first, 2, 0, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(at, sizes, COUNT, places, first, 2, 0, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(&device, sizes, 1, 0, stream));
	sizes[1] = 1 << 20;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(at, sizes, COUNT, 0, stream));
}

static int ask(CUmem_range_attribute attribute, CUdeviceptr at, size_t bytes)
{
	int value = 77;

	OK(cuMemRangeGetAttribute(&value, sizeof(value), attribute, at, bytes));
	return value;
}

/* Page by page, also by pieces that were never named together. */
static void advised_pages(void)
{
	const CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE }, host = { .type = CU_MEM_LOCATION_TYPE_HOST },
			    node = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 1 };
	const size_t page = 4096, all = 8 * page;
	CUdeviceptr device, m;
	CUstream stream;
	int list[3];

	begin(&device, &stream);
	OK(cuMemAllocManaged(&m, all, CU_MEM_ATTACH_GLOBAL));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, all) == 0);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, all) == CU_DEVICE_INVALID);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, m, all) == CU_MEM_LOCATION_TYPE_INVALID);
	OK(cuMemAdvise_v2(m + 2 * page, 1, CU_MEM_ADVISE_SET_READ_MOSTLY, here)); /* a byte is its page */
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 2 * page, page) == 1);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 2 * page, page + 1) == 0);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + page, page) == 0);
	OK(cuMemAdvise_v2(m, 2 * page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
	OK(cuMemAdvise_v2(m + page, all - page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, all) == 0);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, m, all) == CU_MEM_LOCATION_TYPE_DEVICE);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 2 * page, page) == 1);
	OK(cuMemAdvise_v2(m + 7 * page, page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, all) == CU_DEVICE_INVALID);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m + 7 * page, page) == CU_DEVICE_CPU);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, m + 7 * page, page) == CU_MEM_LOCATION_TYPE_HOST_NUMA);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, m + 7 * page, page) == 1);
	OK(cuMemAdvise_v2(m, all, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
	OK(cuMemAdvise_v2(m, 3 * page, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
	OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, 3 * page));
	EXPECT(list[0] == 0 && list[1] == CU_DEVICE_CPU && list[2] == CU_DEVICE_INVALID);
	OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, all));
	EXPECT(list[0] == CU_DEVICE_CPU && list[1] == CU_DEVICE_INVALID);
	OK(cuMemPrefetchAsync_v2(m, page, here, 0, stream));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m, page) == 0);
	OK(cuMemPrefetchAsync_v2(m, all, host, 0, stream));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m, all) == CU_DEVICE_CPU);
	for (size_t i = 0; i < all; i += page) /* page after page, in both directions */
		OK(cuMemAdvise_v2(m + i, page, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, all) == 1);
	for (size_t i = all; i; i -= page)
		OK(cuMemAdvise_v2(m + i - page, page, i == 3 * page ? CU_MEM_ADVISE_SET_READ_MOSTLY : CU_MEM_ADVISE_UNSET_READ_MOSTLY, here));
	for (size_t i = 0; i < all; i += page)
		EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + i, page) == (i == 2 * page));
	OK(cuStreamSynchronize(stream));
	OK(cuMemFree(m));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(list, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, page));
	OK(cuMemAllocManaged(&m, all, CU_MEM_ATTACH_GLOBAL)); /* nothing is left of what lay there */
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 2 * page, page) == 0);
	EXPECT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, all) == CU_DEVICE_INVALID);
}

static void wrong_advice(void)
{
	const CUmemLocation far = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99 }, none = { .type = CU_MEM_LOCATION_TYPE_INVALID },
			    node = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA }, here = { .type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmem_range_attribute both[2] = { CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION };
	size_t sizes[2] = { 4, 4 };
	int value, other;
	void *values[2] = { &value, &other };
	CUdeviceptr device, m;
	CUstream stream;

	begin(&device, &stream);
	OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise_v2(m, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, far));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise_v2(m, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, node));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(m, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, none));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(m, 4097, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAdvise_v2(device, 1, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
	OK(cuMemAdvise_v2(m, 4096, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, far)); /* that one asks for no place */
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync_v2(m, 4096, far, 0, stream));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 4, (CUmem_range_attribute)9, m, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(NULL, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(&value, 6, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m, 1));
	OK(cuMemRangeGetAttributes(values, sizes, both, 2, m, 4096));
	EXPECT(value == 0 && other == CU_DEVICE_INVALID);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(values, sizes, both, 0, m, 4096));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "there_and_back", there_and_back }, { "read_at_the_call", read_at_the_call }, { "wrong", wrong }, { "named", named }, { "captured", captured },
		{ "boxes", boxes }, { "wrong_boxes", wrong_boxes }, { "advice", advice }, { "advised_pages", advised_pages },
		{ "wrong_advice", wrong_advice },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
