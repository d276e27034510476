/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices in one process: contexts, memory, kernels, copies between them, events of the other one, threads. */
#include "check.h"

enum { SMALL = 4097, LARGE = (10 << 20) + 3, WORDS = 1024 };

static CUcontext contexts[2];

static void begin(void)
{
	int count;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	EXPECT(count == 2);
	for (int i = 0; i < 2; i++)
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
}

static void use(int device)
{
	OK(cuCtxSetCurrent(contexts[device]));
}

static CUdeviceptr allocate(int device, size_t bytes)
{
	CUdeviceptr p;

	use(device);
	OK(cuMemAlloc(&p, bytes));
	return p;
}

static uint8_t *make_bytes(size_t n, unsigned seed)
{
	uint8_t *bytes = malloc(n);

	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(seed = seed * 1103515245u + 12345u, seed >> 16);
	return bytes;
}

static void expect_bytes(int device, CUdeviceptr at, const uint8_t *wanted, size_t n)
{
	uint8_t *got = malloc(n);

	use(device);
	OK(cuMemcpyDtoH(got, at, n));
	EXPECT(!memcmp(got, wanted, n));
	free(got);
}

/* ---- what they are */

static void what_they_are(void)
{
	CUuuid ids[2];
	CUdevice device;
	char name[100];
	size_t bytes;
	int can;

	begin();
	for (int i = 0; i < 2; i++) {
		OK(cuDeviceGet(&device, i));
		EXPECT(device == i);
		OK(cuDeviceGetUuid(&ids[i], i));
		OK(cuDeviceGetName(name, sizeof(name), i));
		OK(cuDeviceTotalMem(&bytes, i));
		EXPECT(*name && bytes);
		use(i);
		OK(cuCtxGetDevice(&device));
		EXPECT(device == i);
	}
	EXPECT(memcmp(&ids[0], &ids[1], sizeof(ids[0])));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof(name), 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof(name), -1));
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
}

/* ---- memory */

static void addresses_differ(void)
{
	CUdeviceptr p[2][40], base;
	size_t bytes;
	int ordinal;

	begin();
	for (int i = 0; i < 40; i++)
		for (int device = 0; device < 2; device++)
			p[device][i] = allocate(device, i % 3 ? 1 << 20 : 5 << 20);
	for (int i = 0; i < 40; i++)
		for (int device = 0; device < 2; device++) {
			OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[device][i] + 7));
			EXPECT(ordinal == device);
			OK(cuMemGetAddressRange(&base, &bytes, p[device][i] + 7));
			EXPECT(base == p[device][i]);
		}
	use(0); /* each is freed on its own, whatever is current */
	for (int i = 0; i < 40; i++)
		for (int device = 0; device < 2; device++)
			OK(cuMemFree(p[device][i]));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(p[1][3]));
}

static void ordered_memory(void)
{
	CUmemoryPool pools[2];
	CUdeviceptr p[2];
	CUstream streams[2];

	begin();
	for (int i = 0; i < 2; i++) {
		use(i);
		OK(cuDeviceGetDefaultMemPool(&pools[i], i));
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuMemAllocAsync(&p[i], SMALL, streams[i]));
		OK(cuMemsetD8Async(p[i], 7, SMALL, streams[i]));
	}
	EXPECT(pools[0] != pools[1] && p[0] != p[1]);
	for (int i = 0; i < 2; i++) {
		use(i);
		OK(cuMemFreeAsync(p[i], streams[i]));
		OK(cuStreamSynchronize(streams[i]));
	}
}

/* Addresses are reserved before it is known for which device. */
static void mapped_memory(void)
{
	uint8_t *bytes = make_bytes(SMALL, 5);

	begin();
	for (int i = 0; i < 2; i++) {
		CUmemAllocationProp what = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
		CUmemAccessDesc open = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
		CUmemGenericAllocationHandle memory;
		CUdeviceptr p;
		size_t size;

		use(0);
		what.location.id = open.location.id = i;
		OK(cuMemGetAllocationGranularity(&size, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
		OK(cuMemAddressReserve(&p, 2 * size, 0, 0, 0));
		OK(cuMemCreate(&memory, size, &what, 0));
		OK(cuMemMap(p, size, 0, memory, 0));
		OK(cuMemSetAccess(p, size, &open, 1));
		use(i);
		OK(cuMemcpyHtoD(p, bytes, SMALL));
		expect_bytes(i, p, bytes, SMALL);
		OK(cuMemUnmap(p, size));
		OK(cuMemRelease(memory));
		OK(cuMemAddressFree(p, 2 * size));
	}
}

static void reserved_addresses_differ(void)
{
	CUdeviceptr p[2][30];

	begin();
	for (int i = 0; i < 30; i++)
		for (int device = 0; device < 2; device++) {
			use(device);
			OK(cuMemAddressReserve(&p[device][i], (1 + i % 3) * (2ull << 20), 0, 0, 0));
		}
	for (int i = 0; i < 60; i++)
		for (int k = 0; k < i; k++)
			EXPECT(p[i % 2][i / 2] != p[k % 2][k / 2]);
	for (int i = 0; i < 60; i++)
		OK(cuMemAddressFree(p[i % 2][i / 2], (1 + i / 2 % 3) * (2ull << 20)));
}

/* ---- kernels */

static void kernels_on_both(void)
{
	CUdeviceptr p[2];
	unsigned got;

	begin();
	for (int i = 0; i < 2; i++) {
		CUfunction f;
		unsigned value = 100 + i;
		void *parameters[] = { &p[i], &value };

		p[i] = allocate(i, 4);
		f = find_kernel(load_kernels(), "store");
		OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	}
	for (int i = 0; i < 2; i++) {
		use(i);
		OK(cuMemcpyDtoH(&got, p[i], 4));
		EXPECT(got == 100u + i);
	}
}

/* A function, a stream and an event of one device are of no use on the other. */
static void objects_of_the_other(void)
{
	CUdeviceptr p;
	CUfunction f;
	CUstream stream;
	CUevent event;
	unsigned value = 1;
	void *parameters[] = { &p, &value };

	begin();
	p = allocate(0, 4);
	f = find_kernel(load_kernels(), "store");
	use(1);
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	use(0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	OK(cuCtxSynchronize());
}

/* ---- copies between them */

static void copies(void)
{
	static const size_t SIZES[] = { 1, SMALL, LARGE };

	begin();
	for (unsigned s = 0; s < 3; s++) {
		size_t n = SIZES[s];

		for (int from = 0; from < 2; from++) {
			uint8_t *bytes = make_bytes(n, s * 2 + from);
			CUdeviceptr source = allocate(from, n), target = allocate(!from, n);

			use(from);
			OK(cuMemcpyHtoD(source, bytes, n));
			OK(cuMemcpyPeer(target, contexts[!from], source, contexts[from], n));
			expect_bytes(!from, target, bytes, n);
			OK(cuMemsetD8(target, 0, n));
			OK(cuMemcpyDtoD(target, source, n)); /* by the addresses alone */
			expect_bytes(!from, target, bytes, n);
			OK(cuMemsetD8(target, 0, n));
			use(from);
			OK(cuMemcpy(target, source, n));
			expect_bytes(!from, target, bytes, n);
			OK(cuMemFree(source));
			OK(cuMemFree(target));
			free(bytes);
		}
	}
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(contexts[0] ? allocate(0, 8) : 0, contexts[0], 64, contexts[1], 8));
}

/* With the program's memory, while the other device is current. */
static void copies_with_the_program(void)
{
	uint8_t *bytes = make_bytes(LARGE, 3), *back = calloc(1, LARGE);
	CUdeviceptr p;

	begin();
	p = allocate(1, LARGE);
	use(0);
	OK(cuMemcpyHtoD(p, bytes, LARGE));
	OK(cuMemcpyDtoH(back, p, LARGE));
	EXPECT(!memcmp(bytes, back, LARGE));
}

static void rows(void)
{
	enum { WIDTH = 100, ROWS = 50, FROM = 160, TO = 128 };
	uint8_t *bytes = make_bytes(FROM * ROWS, 9), *back = calloc(1, TO * ROWS);
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcPitch = FROM, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstPitch = TO, .WidthInBytes = WIDTH, .Height = ROWS };

	begin();
	copy.srcDevice = allocate(1, FROM * ROWS);
	OK(cuMemcpyHtoD(copy.srcDevice, bytes, FROM * ROWS));
	copy.dstDevice = allocate(0, TO * ROWS);
	OK(cuMemsetD8(copy.dstDevice, 0xee, TO * ROWS));
	OK(cuMemcpy2D(&copy));
	OK(cuMemcpyDtoH(back, copy.dstDevice, TO * ROWS));
	for (int y = 0; y < ROWS; y++)
		for (int x = 0; x < TO; x++)
			EXPECT(back[y * TO + x] == (x < WIDTH ? bytes[y * FROM + x] : 0xee));
}

static void boxes(void)
{
	enum { WIDTH = 60, ROWS = 7, SLICES = 5, PITCH = 96, HEIGHT = 9 };
	size_t all = PITCH * HEIGHT * SLICES;
	uint8_t *bytes = make_bytes(all, 4), *back = calloc(1, all);
	CUDA_MEMCPY3D_PEER copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcPitch = PITCH, .srcHeight = HEIGHT,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstPitch = PITCH, .dstHeight = HEIGHT,
				    .WidthInBytes = WIDTH, .Height = ROWS, .Depth = SLICES };
	CUstream stream;

	begin();
	copy.srcDevice = allocate(0, all), copy.srcContext = contexts[0];
	OK(cuMemcpyHtoD(copy.srcDevice, bytes, all));
	copy.dstDevice = allocate(1, all), copy.dstContext = contexts[1];
	OK(cuMemsetD8(copy.dstDevice, 0xee, all));
	OK(cuMemcpy3DPeer(&copy));
	OK(cuMemcpyDtoH(back, copy.dstDevice, all));
	for (size_t i = 0; i < all; i++) {
		size_t x = i % PITCH, y = i / PITCH % HEIGHT;

		EXPECT(back[i] == (x < WIDTH && y < ROWS ? bytes[i] : 0xee));
	}
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD8Async(copy.dstDevice, 0, all, stream));
	OK(cuMemcpy3DPeerAsync(&copy, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(back, copy.dstDevice, all));
	EXPECT(!memcmp(back, bytes, WIDTH) && !back[WIDTH]);
	copy.dstContext = NULL;
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeer(&copy));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DPeer(NULL));
}

/* What a stream has to do before the copy is done before it, and what comes later is later. */
static void copies_in_order(void)
{
	begin();
	for (int on = 0; on < 2; on++) {
		CUdeviceptr source = allocate(1, 4), target = allocate(0, 4);
		unsigned got = 0;
		CUstream stream;

		use(on);
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuMemsetD32Async(on ? source : target, 17, 1, stream));
		if (!on) {
			use(1);
			OK(cuMemsetD32(source, 17, 1));
			use(0);
		}
		OK(cuMemcpyPeerAsync(target, contexts[0], source, contexts[1], 4, stream));
		OK(cuMemsetD32Async(on ? source : target, 18, 1, stream));
		OK(cuStreamSynchronize(stream));
		use(0);
		OK(cuMemcpyDtoH(&got, target, 4));
		EXPECT(got == (on ? 17u : 18u));
	}
}

/* ---- one waits for the other */

static void events_of_the_other(void)
{
	CUdeviceptr p[2];
	CUstream streams[2];
	CUevent event;
	unsigned got = 0;
	float ms;
	CUevent other;

	begin();
	for (int i = 0; i < 2; i++) {
		p[i] = allocate(i, 4 * WORDS);
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	OK(cuEventCreate(&event, 0));
	OK(cuMemsetD32Async(p[1], 5, WORDS, streams[1]));
	OK(cuEventRecord(event, streams[1]));
	use(0);
	OK(cuStreamWaitEvent(streams[0], event, 0));
	OK(cuMemcpyPeerAsync(p[0], contexts[0], p[1], contexts[1], 4 * WORDS, streams[0]));
	OK(cuStreamSynchronize(streams[0]));
	OK(cuMemcpyDtoH(&got, p[0] + 4 * (WORDS - 1), 4));
	EXPECT(got == 5);
	OK(cuEventQuery(event)); /* of any device, whatever is current */
	OK(cuEventSynchronize(event));
	OK(cuEventCreate(&other, 0));
	OK(cuEventRecord(other, streams[0]));
	OK(cuEventSynchronize(other));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, event, other));
}

static void add_one(void *counter)
{
	__atomic_fetch_add((int *)counter, 1, __ATOMIC_SEQ_CST);
}

static void host_functions_on_both(void)
{
	CUstream streams[2];
	int counter = 0;
	sem_t gate;

	begin();
	sem_init(&gate, 0, 0);
	for (int i = 0; i < 2; i++) {
		use(i);
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	}
	/* the first device's waits; the second one's goes on */
	use(0);
	OK(cuLaunchHostFunc(streams[0], wait_at_gate, &gate));
	OK(cuLaunchHostFunc(streams[0], add_one, &counter));
	use(1);
	OK(cuLaunchHostFunc(streams[1], add_one, &counter));
	OK(cuStreamSynchronize(streams[1]));
	EXPECT(__atomic_load_n(&counter, __ATOMIC_SEQ_CST) == 1);
	sem_post(&gate);
	use(0);
	OK(cuStreamSynchronize(streams[0]));
	EXPECT(counter == 2);
}

static void graphs_on_both(void)
{
	begin();
	for (int i = 1; i >= 0; i--) {
		CUdeviceptr p = allocate(i, 4);
		CUgraphExec exec;
		CUstream stream;
		CUgraph graph;
		unsigned got;

		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		OK(cuMemsetD32Async(p, 40 + i, 1, stream));
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuGraphInstantiate(&exec, graph, 0));
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		OK(cuMemcpyDtoH(&got, p, 4));
		EXPECT(got == 40u + i);
	}
}

/* ---- a thread for each */

static void *work(void *number)
{
	int device = (int)(intptr_t)number;
	CUdeviceptr p = allocate(device, 4);
	CUfunction f = find_kernel(load_kernels(), "add_to");
	unsigned expected = 0, got;

	OK(cuMemsetD32(p, 0, 1));
	for (unsigned i = 0; i < 200; i++) {
		unsigned value = i + (unsigned)device;
		void *parameters[] = { &p, &value };

		OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
		expected = expected * 3 + value;
		if (i % 50 == 49) {
			OK(cuMemcpyDtoH(&got, p, 4));
			EXPECT(got == expected);
		}
	}
	return NULL;
}

static void a_thread_for_each(void)
{
	pthread_t threads[4];

	begin();
	for (intptr_t i = 0; i < 4; i++)
		EXPECT(!pthread_create(&threads[i], NULL, work, (void *)(i % 2)));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* The primary context of one goes; the other's objects stay. */
static void one_ends(void)
{
	CUdeviceptr p, kept;
	unsigned got = 0;
	size_t bytes;

	begin();
	p = allocate(0, 4);
	kept = allocate(1, 4);
	OK(cuMemsetD32(kept, 3, 1));
	OK(cuDevicePrimaryCtxReset(0));
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&p, &bytes, p));
	use(1);
	OK(cuMemcpyDtoH(&got, kept, 4));
	EXPECT(got == 3);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "what_they_are", what_they_are },
		{ "addresses_differ", addresses_differ },
		{ "ordered_memory", ordered_memory },
		{ "mapped_memory", mapped_memory },
		{ "reserved_addresses_differ", reserved_addresses_differ },
		{ "kernels_on_both", kernels_on_both },
		{ "objects_of_the_other", objects_of_the_other },
		{ "copies", copies },
		{ "copies_with_the_program", copies_with_the_program },
		{ "rows", rows },
		{ "boxes", boxes },
		{ "copies_in_order", copies_in_order },
		{ "events_of_the_other", events_of_the_other },
		{ "host_functions_on_both", host_functions_on_both },
		{ "graphs_on_both", graphs_on_both },
		{ "a_thread_for_each", a_thread_for_each },
		{ "one_ends", one_ends },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
