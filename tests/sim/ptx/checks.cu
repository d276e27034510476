// Kernels with one mistake each, and the same without it. The name says which check finds it.

// every thread's value from its left neighbour in the block
extern "C" __global__ void race_block(int *out, int wait)
{
	__shared__ int cache[64];

	cache[threadIdx.x] = threadIdx.x;
	if (wait)
		__syncthreads();
	out[threadIdx.x] = cache[(threadIdx.x + 63) % 64];
}

// the same within a warp
extern "C" __global__ void race_warp(int *out, int wait)
{
	__shared__ volatile int row[32];

	row[threadIdx.x] = threadIdx.x;
	if (wait == 1)
		__syncwarp();
	if (wait == 2)
		out[32 + threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 0);
	if (wait == 3)
		out[32 + threadIdx.x] = __any_sync(~0u, threadIdx.x);
	out[threadIdx.x] = row[threadIdx.x ^ 1];
}

// a second round writes what others of the first one may still read
extern "C" __global__ void race_rounds(int *out, int wait)
{
	__shared__ int cache[64];

	for (int round = 0; round < 2; round++) {
		cache[threadIdx.x] = threadIdx.x + round;
		__syncthreads();
		out[threadIdx.x] += cache[63 - threadIdx.x];
		if (wait)
			__syncthreads();
	}
}

extern "C" __global__ void race_atomic(int *out, int wait)
{
	__shared__ int sum;

	if (!threadIdx.x)
		sum = 0;
	__syncthreads();
	atomicAdd(&sum, 1);
	if (wait)
		__syncthreads();
	out[threadIdx.x] = *(volatile int *)&sum;
}

// all of them write the same
extern "C" __global__ void same_value(int *out)
{
	__shared__ int flag;

	if (threadIdx.x % 3)
		flag = 7;
	__syncthreads();
	out[threadIdx.x] = flag;
}

// a warp fills, another one takes, by a barrier of both; who fills does not wait
extern "C" __global__ void race_named(int *out, int wait)
{
	__shared__ volatile int row[32];

	if (threadIdx.x < 32) {
		row[threadIdx.x] = threadIdx.x;
		if (wait)
			asm volatile("bar.arrive 1, 64;" ::: "memory");
	} else {
		if (wait)
			asm volatile("bar.sync 1, 64;" ::: "memory");
		out[threadIdx.x - 32] = row[63 - threadIdx.x];
	}
}

// the same by an mbarrier
extern "C" __global__ void race_mbarrier(int *out, int wait)
{
	__shared__ volatile int row[32];
	__shared__ unsigned long long barrier;
	unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);

	if (!threadIdx.x)
		asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at));
	__syncthreads();
	if (threadIdx.x < 32) {
		row[threadIdx.x] = threadIdx.x;
		asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
	} else {
		for (int done = !wait; !done;)
			asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
				     : "=r"(done)
				     : "r"(at)
				     : "memory");
		out[threadIdx.x - 32] = row[63 - threadIdx.x];
	}
}

extern "C" __global__ void memory_unwritten(int *out, int all)
{
	__shared__ int cache[64];

	if (all || threadIdx.x != 5)
		cache[threadIdx.x] = 1;
	__syncthreads();
	out[threadIdx.x] = cache[63 - threadIdx.x];
}

extern "C" __global__ void memory_shared(int *out, int n)
{
	extern __shared__ int dynamic[];

	dynamic[threadIdx.x] = threadIdx.x;
	__syncthreads();
	out[threadIdx.x] = dynamic[threadIdx.x < 31 ? 0 : n];
}

extern "C" __global__ void memory_global(int *out, int n)
{
	out[threadIdx.x < 31 ? threadIdx.x : n] = 1;
}

extern "C" __global__ void memory_misaligned(char *out, int n)
{
	*(int *)(out + n + 4 * threadIdx.x) = 1;
}

extern "C" __global__ void memory_local(int *out, int n)
{
	int own[8];

	for (int k = 0; k < 8; k++)
		own[k] = k + threadIdx.x;
	out[threadIdx.x] = own[n];
}

// half of the warp passes the barrier by
extern "C" __global__ void sync_half(int *out, int most)
{
	if (threadIdx.x < most)
		asm volatile("bar.sync 0;" ::: "memory");
	out[threadIdx.x] = threadIdx.x;
}

// two places of one barrier
extern "C" __global__ void sync_places(int *out, int most)
{
	if (threadIdx.x < most) {
		asm volatile("bar.sync 0;" ::: "memory");
		out[threadIdx.x] = 1;
	} else {
		out[threadIdx.x] = 2;
		asm volatile("bar.sync 0;" ::: "memory");
	}
}

// those who are too many end at once: right
extern "C" __global__ void sync_ended(int *out, int n)
{
	__shared__ int cache[64];

	if (threadIdx.x >= n)
		return;
	cache[threadIdx.x] = threadIdx.x;
	__syncthreads();
	out[threadIdx.x] = cache[n - 1 - threadIdx.x];
}

extern "C" __global__ void sync_mask(int *out, unsigned mask)
{
	if (threadIdx.x >= 16)
		return;
	__syncwarp(mask);
	out[threadIdx.x] = 1;
}

extern "C" __global__ void sync_count(int *out, int count)
{
	asm volatile("bar.sync 2, %0;" ::"r"(threadIdx.x < 32 ? 64 : count) : "memory");
	out[threadIdx.x] = 1;
}

extern "C" __global__ void sync_stuck(int *out, int count)
{
	asm volatile("bar.sync 2, %0;" ::"r"(count) : "memory");
	out[threadIdx.x] = 1;
}

extern "C" __global__ void memory_read(int *out, int n)
{
	if (out[threadIdx.x] == 12345)
		out[0] = n;
}

extern "C" __global__ void sync_multiple(int *out, int count)
{
	asm volatile("bar.sync 3, %0;" ::"r"(count) : "memory");
	out[threadIdx.x] = 1;
}
