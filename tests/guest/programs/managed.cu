/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed [N [ROUNDS]]: the program and its kernels use the same memory in turn, by one address: arrays that both write, a
 * list whose nodes the program links and a kernel follows, copies and fills among managed and other memory, several
 * threads that read the same result. The program keeps to the rule of devices without concurrent access.
 */
#define PROGRAM "managed"
#include "check.h"

#include <cstring>
#include <thread>
#include <vector>

struct node {
	int value;
	node *next;
};

struct problem {
	float *x, *y;
	float factor;
	int n;
};

__global__ void axpy(problem *p)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < p->n)
		p->y[i] += p->factor * p->x[i];
}

__global__ void bump(int *cells, int every, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		cells[i * every]++;
}

__global__ void walk(const node *first, int *sum)
{
	*sum = 0;
	for (; first; first = first->next)
		*sum += first->value;
}

template <typename T> static T *managed(size_t n)
{
	T *p;

	CHECK(cudaMallocManaged((void **)&p, n * sizeof(T)));
	return p;
}

/* Written here and there in turn; the structure with the pointers is managed too. */
static void take_turns(int n, int rounds)
{
	problem *p = managed<problem>(1);

	*p = problem{ managed<float>(n), managed<float>(n), 2.0f, n };
	for (int i = 0; i < n; i++)
		p->x[i] = (float)(i % 100), p->y[i] = 1.0f;
	for (int round = 0; round < rounds; round++) {
		axpy<<<blocks_for(n, 128), 128>>>(p);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		for (int i = 0; i < n; i += 1 + n / 7)
			p->y[i] += 1.0f;
	}
	for (int i = 0; i < n; i++) {
		float expected = 1.0f + (float)rounds * 2.0f * (float)(i % 100) + (i % (1 + n / 7) ? 0.0f : (float)rounds);

		if (p->y[i] != expected)
			FAIL("y[%d] is %g, expected %g", i, p->y[i], expected);
	}
	CHECK(cudaFree(p->x));
	CHECK(cudaFree(p->y));
	CHECK(cudaFree(p));
}

/* A kernel and the program write neighbouring cells; what one does not write it must not undo. */
static void interleave(int n)
{
	enum { EVERY = 16 };
	int *cells = managed<int>((size_t)n * EVERY);

	std::memset(cells, 0, (size_t)n * EVERY * sizeof(int));
	for (int round = 1; round <= 4; round++) {
		bump<<<blocks_for(n, 128), 128>>>(cells, EVERY, n);
		CHECK(cudaDeviceSynchronize());
		for (int i = 0; i < n; i += 3)
			cells[i * EVERY + 1] += round;
	}
	for (int i = 0; i < n; i++)
		if (cells[i * EVERY] != 4 || cells[i * EVERY + 1] != (i % 3 ? 0 : 10) || cells[i * EVERY + 2])
			FAIL("cell %d: %d %d %d", i, cells[i * EVERY], cells[i * EVERY + 1], cells[i * EVERY + 2]);
	CHECK(cudaFree(cells));
}

static void follow(int n)
{
	node *first = nullptr;
	int *sum = managed<int>(1), expected = 0;

	for (int i = 0; i < n; i++) {
		node *p = managed<node>(1);

		*p = node{ i, first };
		first = p;
		expected += i;
	}
	walk<<<1, 1>>>(first, sum);
	CHECK(cudaDeviceSynchronize());
	if (*sum != expected)
		FAIL("the list adds up to %d, expected %d", *sum, expected);
	while (first) {
		node *next = first->next;

		CHECK(cudaFree(first));
		first = next;
	}
	CHECK(cudaFree(sum));
}

/* Copies and fills see what the program has written, and the program sees them. */
static void copy(int n)
{
	size_t bytes = (size_t)n * sizeof(int);
	int *a = managed<int>(n), *b = managed<int>(n), *device;
	std::vector<int> host(n, 7);

	CHECK(cudaMalloc((void **)&device, bytes));
	for (int i = 0; i < n; i++)
		a[i] = i;
	CHECK(cudaMemcpy(b, a, bytes, cudaMemcpyDefault));
	CHECK(cudaMemset(a, 0, bytes / 2));
	CHECK(cudaMemcpy(device, b, bytes, cudaMemcpyHostToDevice));   /* as host memory */
	CHECK(cudaMemcpy(b, host.data(), bytes, cudaMemcpyHostToHost));
	CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (host[i] != i || b[i] != 7 || a[i] != (i < n / 2 ? 0 : i))
			FAIL("copies: %d %d %d at %d", host[i], b[i], a[i], i);
	CHECK(cudaMemcpy(b, device, bytes, cudaMemcpyDeviceToHost));   /* to host memory that is managed */
	CHECK(cudaMemcpy2D(a, 16, b, 32, 16, n / 8, cudaMemcpyDefault));
	for (int i = 0; i < n / 8; i++)
		if (b[8 * i + 5] != 8 * i + 5 || a[4 * i + 3] != 8 * i + 3)
			FAIL("rows: %d %d at %d", b[8 * i + 5], a[4 * i + 3], i);
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	CHECK(cudaFree(device));
}

static void read_together(int n)
{
	int *cells = managed<int>(n);
	std::vector<std::thread> threads;

	CHECK(cudaMemset(cells, 0, (size_t)n * sizeof(int)));
	bump<<<blocks_for(n, 128), 128>>>(cells, 1, n);
	CHECK(cudaDeviceSynchronize());
	for (int t = 0; t < 4; t++)
		threads.emplace_back([=] {
			for (int i = t; i < n; i += 4)
				__atomic_fetch_add(&cells[i], t, __ATOMIC_RELAXED);
		});
	for (std::thread &t : threads)
		t.join();
	bump<<<blocks_for(n, 128), 128>>>(cells, 1, n);
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < n; i++)
		if (cells[i] != 2 + i % 4)
			FAIL("cell %d is %d after four threads", i, cells[i]);
	CHECK(cudaFree(cells));
}

/* Pinned memory that is mapped on the device. */
static void map(int n)
{
	int *cells, *device, can = 0;
	unsigned flags = 0;
	cudaPointerAttributes attributes;

	CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrCanMapHostMemory, 0));
	CHECK(cudaHostAlloc((void **)&cells, n * sizeof(int), cudaHostAllocMapped));
	CHECK(cudaHostGetDevicePointer((void **)&device, cells, 0));
	CHECK(cudaHostGetFlags(&flags, cells));
	if (!can || !(flags & cudaHostAllocMapped))
		FAIL("mapped memory: %d, flags %u", can, flags);
	for (int i = 0; i < n; i++)
		cells[i] = i;
	bump<<<blocks_for(n, 128), 128>>>(device, 1, n);
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < n; i++)
		if (cells[i] != i + 1)
			FAIL("mapped cell %d is %d", i, cells[i]);
	CHECK(cudaPointerGetAttributes(&attributes, cells));
	if (attributes.type != cudaMemoryTypeHost || !attributes.devicePointer)
		FAIL("a mapped pointer has type %d", (int)attributes.type);
	if (cudaFree(cells) != cudaErrorInvalidValue)
		FAIL("cudaFree takes pinned memory");
	cudaGetLastError();
	CHECK(cudaFreeHost(cells));
}

static void advise(int n)
{
	int *cells = managed<int>(n), supported = 0, concurrent = 0;
	cudaPointerAttributes attributes;
	cudaStream_t stream;

	CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrManagedMemory, 0));
	CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
	if (!supported)
		FAIL("the device says that it has no managed memory");
	CHECK(cudaPointerGetAttributes(&attributes, cells + 1));
	if (attributes.type != cudaMemoryTypeManaged || attributes.hostPointer != cells + 1 ||
	    attributes.devicePointer != cells + 1)
		FAIL("a managed pointer has type %d", (int)attributes.type);
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamAttachMemAsync(stream, cells, 0, cudaMemAttachSingle));
	cells[n - 1] = 41;
#if CUDART_VERSION >= 13000
	cudaMemLocation here = { cudaMemLocationTypeDevice, { 0 } };
	CHECK(cudaMemAdvise(cells, n * sizeof(int), cudaMemAdviseSetPreferredLocation, here));
	CHECK(cudaMemPrefetchAsync(cells, n * sizeof(int), here, 0, stream));
	int preferred = 7, last = 7;
	CHECK(cudaMemRangeGetAttribute(&preferred, sizeof(preferred), cudaMemRangeAttributePreferredLocation, cells, n * sizeof(int)));
	CHECK(cudaMemRangeGetAttribute(&last, sizeof(last), cudaMemRangeAttributeLastPrefetchLocation, cells, n * sizeof(int)));
	if (preferred != 0 || last != 0)
		FAIL("preferred at %d, prefetched to %d", preferred, last);
#endif
	bump<<<1, 1, 0, stream>>>(cells + n - 1, 1, 1);
	CHECK(cudaStreamSynchronize(stream));
	if (cells[n - 1] != 42)
		FAIL("on a stream: %d", cells[n - 1]);
	CHECK(cudaStreamDestroy(stream));
	CHECK(cudaFree(cells));
	if (cudaMallocManaged((void **)&cells, 0) != cudaSuccess || cells ||
	    cudaMallocManaged((void **)&cells, 64, 99) != cudaErrorInvalidValue)
		FAIL("bad arguments are taken");
	cudaGetLastError();
}

int main(int argc, char **argv)
{
	int n = (int)argument(argc, argv, 1, 100000), rounds = (int)argument(argc, argv, 2, 4);

	take_turns(n, rounds);
	interleave(n / 16);
	follow(50);
	copy(n);
	read_together(n);
	map(n);
	advise(n);
	PASS("%d elements, %d rounds", n, rounds);
}
