/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the usual kinds, for tests of the PTX interpreter. */
#include <cstdint>
#include <cstdio>

extern "C" {

__global__ void vector_add(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

__global__ void matmul(const float *a, const float *b, float *c, int n)
{
	__shared__ float ta[16][16], tb[16][17];
	int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
	float sum = 0;

	for (int t = 0; t < n; t += 16) {
		ta[threadIdx.y][threadIdx.x] = a[y * n + t + threadIdx.x];
		tb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + x];
		__syncthreads();
		for (int k = 0; k < 16; k++)
			sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
		__syncthreads();
	}
	c[y * n + x] = sum;
}

__global__ void reduce(const int *in, int *out, int n)
{
	__shared__ int partial[32];
	int v = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		v += in[i];
	for (int d = 16; d; d /= 2)
		v += __shfl_down_sync(~0u, v, d);
	if (!lane)
		partial[warp] = v;
	__syncthreads();
	if (!warp) {
		v = lane < blockDim.x / 32 ? partial[lane] : 0;
		for (int d = 16; d; d /= 2)
			v += __shfl_xor_sync(~0u, v, d);
		if (!lane)
			atomicAdd(out, v);
	}
}

__global__ void histogram(const unsigned char *in, unsigned *bins, int n)
{
	__shared__ unsigned local[256];

	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		local[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&local[in[i]], 1);
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		atomicAdd(&bins[i], local[i]);
}

__global__ void softmax(const float *in, float *out, int n)
{
	extern __shared__ float row[];
	float m = -INFINITY, sum = 0;

	for (int i = threadIdx.x; i < n; i += 32) {
		row[i] = in[blockIdx.x * n + i];
		m = fmaxf(m, row[i]);
	}
	for (int d = 16; d; d /= 2)
		m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
	for (int i = threadIdx.x; i < n; i += 32)
		sum += row[i] = expf(row[i] - m);
	for (int d = 16; d; d /= 2)
		sum += __shfl_xor_sync(~0u, sum, d);
	for (int i = threadIdx.x; i < n; i += 32)
		out[blockIdx.x * n + i] = row[i] / sum;
}

__global__ void double_math(const double *in, double *out, int n)
{
	int i = threadIdx.x;

	if (i >= n)
		return;
	out[i * 8 + 0] = sin(in[i]);
	out[i * 8 + 1] = exp(in[i]);
	out[i * 8 + 2] = pow(fabs(in[i]), 1.7);
	out[i * 8 + 3] = log(fabs(in[i]) + 1);
	out[i * 8 + 4] = cos(in[i] * 1e6);
	out[i * 8 + 5] = tanh(in[i]);
	out[i * 8 + 6] = cbrt(in[i]);
	out[i * 8 + 7] = in[i] / 3.0;
}

__global__ void float_math(const float *in, float *out, int n)
{
	int i = threadIdx.x;

	if (i >= n)
		return;
	out[i * 8 + 0] = sinf(in[i]);
	out[i * 8 + 1] = expf(in[i]);
	out[i * 8 + 2] = powf(fabsf(in[i]), 1.7f);
	out[i * 8 + 3] = logf(fabsf(in[i]) + 1);
	out[i * 8 + 4] = cosf(in[i] * 1e5f);
	out[i * 8 + 5] = tanhf(in[i]);
	out[i * 8 + 6] = sqrtf(fabsf(in[i]));
	out[i * 8 + 7] = __sinf(in[i]);
}

__device__ __noinline__ int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__global__ void recursion(int *out)
{
	out[threadIdx.x] = fibonacci(threadIdx.x);
}

__global__ void endless(volatile int *flag)
{
	while (!*flag)
		;
}

typedef int operation(int, int);
__device__ __noinline__ int op_add(int a, int b) { return a + b; }
__device__ __noinline__ int op_sub(int a, int b) { return a - b; }
__device__ __noinline__ int op_mul(int a, int b) { return a * b; }
__device__ operation *table[] = { op_add, op_sub, op_mul };

__global__ void pointers(int *out, int a, int b)
{
	out[threadIdx.x] = table[threadIdx.x % 3](a, b);
}

__global__ void print(int n)
{
	if (threadIdx.x < n)
		printf("thread %d of %u: %5.2f %s 0x%llx %c%%\n", threadIdx.x, blockDim.x, threadIdx.x * 1.5, "text",
		       0x123456789abcULL, 'x');
}

__device__ __noinline__ int choose(int n)
{
	switch (n) {
	case 0: return 17;
	case 1: return n * 3 + 1;
	case 2: return -5;
	case 3: return n << 4;
	case 4: return 99;
	case 5: return n * n * n;
	case 6: return 1000 - n;
	case 7: return ~n;
	case 8: return clock() == 0 ? -1 : 42;
	default: return 0;
	}
}

__global__ void switches(int *out)
{
	out[threadIdx.x] = choose(threadIdx.x);
}

struct body {
	double x, y;
	int tag[5];
	char name[8];
};

__device__ __noinline__ body move(body b, double d)
{
	b.x += d;
	b.y -= d;
	b.tag[b.tag[0] & 3] = 7;
	return b;
}

__global__ void structs(body in, body *out, int which)
{
	body b = move(in, in.tag[which]);

	out[threadIdx.x] = b;
	out[threadIdx.x].name[threadIdx.x & 7] = in.name[(which + threadIdx.x) & 7];
}

__global__ void scan(const int *in, int *out)
{
	__shared__ int sums[32];
	int v = in[threadIdx.x], lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	for (int d = 1; d < 32; d *= 2) {
		int o = __shfl_up_sync(~0u, v, d);

		if (lane >= d)
			v += o;
	}
	if (lane == 31)
		sums[warp] = v;
	__syncthreads();
	if (!warp) {
		int s = lane < blockDim.x / 32 ? sums[lane] : 0;

		for (int d = 1; d < 32; d *= 2) {
			int o = __shfl_up_sync(~0u, s, d);

			if (lane >= d)
				s += o;
		}
		sums[lane] = s;
	}
	__syncthreads();
	out[threadIdx.x] = v + (warp ? sums[warp - 1] : 0);
}

__global__ void bitonic(unsigned *data)
{
	__shared__ unsigned s[256];
	unsigned i = threadIdx.x;

	s[i] = data[i];
	for (unsigned k = 2; k <= 256; k *= 2)
		for (unsigned j = k / 2; j; j /= 2) {
			unsigned o = i ^ j;

			__syncthreads();
			if (o > i && ((i & k) == 0) == (s[i] > s[o])) {
				unsigned t = s[i];

				s[i] = s[o];
				s[o] = t;
			}
		}
	__syncthreads();
	data[i] = s[i];
}

__global__ void divide64(const long long *a, const long long *b, long long *out, int n)
{
	int i = threadIdx.x;

	if (i >= n)
		return;
	out[4 * i] = a[i] / b[i];
	out[4 * i + 1] = a[i] % b[i];
	out[4 * i + 2] = (unsigned long long)a[i] / (unsigned long long)b[i];
	out[4 * i + 3] = __mul64hi(a[i], b[i]);
}

__global__ void compact(const int *in, int *out, int *count)
{
	int v = in[threadIdx.x];
	bool keep = v % 3 == 0;
	unsigned mask = __ballot_sync(~0u, keep);
	int lane = threadIdx.x % 32, base = 0;

	if (!lane)
		base = atomicAdd(count, __popc(mask));
	base = __shfl_sync(~0u, base, 0);
	if (keep)
		out[base + __popc(mask & ((1u << lane) - 1))] = v;
}

__global__ void aggregated(int *count, unsigned *masks)
{
	if (threadIdx.x % 3) {
		unsigned mask = __activemask();
		int leader = __ffs(mask) - 1;

		masks[threadIdx.x] = mask;
		if (threadIdx.x % 32 == leader)
			atomicAdd(count, __popc(mask));
	}
}

__constant__ int coefficients[8] = { 1, -2, 3, -4, 5, -6, 7, -8 };
__device__ int counter = 5;
__device__ int *counter_pointer = &counter;

__global__ void constants(int *out)
{
	out[threadIdx.x] = coefficients[threadIdx.x & 7] * *counter_pointer;
}

__global__ void local_arrays(int *out, int n)
{
	int a[64];

	for (int i = 0; i < 64; i++)
		a[i] = i * threadIdx.x;
	for (int i = 0; i < n; i++)
		a[(a[i] + i) & 63] ^= a[63 - i];
	out[threadIdx.x] = a[n & 63];
}

__global__ void lock(int *mutex, int *value)
{
	while (atomicCAS(mutex, 0, 1))
		;
	__threadfence();
	*(volatile int *)value += 1;
	__threadfence();
	atomicExch(mutex, 0);
}

__global__ void half_deadlock(int *out)
{
	if (threadIdx.x)
		__shfl_sync(~0u, threadIdx.x, 0);
	else
		__syncthreads();
	*out = 1;
}

__global__ void out_of_bounds(int *p, int index)
{
	p[index] = 1;
}

__global__ void heap(int **keep, int *out)
{
	int *p = (int *)malloc(sizeof(int) * 8);

	for (int i = 0; i < 8; i++)
		p[i] = i * threadIdx.x;
	keep[threadIdx.x] = p;
	__syncthreads();
	int *q = keep[(threadIdx.x + 1) % blockDim.x];
	int sum = 0;

	for (int i = 0; i < 8; i++)
		sum += q[i];
	out[threadIdx.x] = sum;
	__syncthreads();
	free(p);
}

/* As before compute capability 7.0: nothing but the lanes' step keeps their order. */
__global__ void in_step(const int *in, int *out)
{
	__shared__ volatile int s[64];
	int lane = threadIdx.x % 32, turns = 0;

	s[lane] = in[threadIdx.x];
	s[lane + 32] = 0;
	for (int d = 16; d; d /= 2)
		s[lane] += s[lane + d];
	if (lane % 3)
		turns = s[0] % 7;
	for (int i = 0; i < lane % 5 + turns; i++)
		s[lane + 32] += s[0];
	out[threadIdx.x] = s[(lane + 9) % 32 + 32];
}

/* The same with the synchronisation that newer GPUs ask for. */
__global__ void synchronised(const int *in, int *out)
{
	__shared__ volatile int s[64];
	int lane = threadIdx.x % 32, turns = 0, sum;

	s[lane] = in[threadIdx.x];
	s[lane + 32] = 0;
	__syncwarp();
	for (int d = 16; d; d /= 2) {
		sum = s[lane] + s[lane + d];
		__syncwarp();
		s[lane] = sum;
		__syncwarp();
	}
	if (lane % 3)
		turns = s[0] % 7;
	for (int i = 0; i < lane % 5 + turns; i++)
		s[lane + 32] += s[0];
	__syncwarp();
	out[threadIdx.x] = s[(lane + 9) % 32 + 32];
}

__global__ void divide128(const unsigned __int128 *a, const unsigned __int128 *b, unsigned __int128 *out)
{
	int i = threadIdx.x;
	__int128 x = (__int128)a[i], y = (__int128)b[i];

	out[4 * i] = a[i] / b[i];
	out[4 * i + 1] = a[i] % b[i];
	out[4 * i + 2] = (unsigned __int128)(x / y);
	out[4 * i + 3] = (unsigned __int128)(x % y);
}

__global__ void barrier_votes(const int *in, int *out)
{
	int v = in[threadIdx.x];
	int count = __syncthreads_count(v > 0);
	int all = __syncthreads_and(v > 0), any = __syncthreads_or(v > 0);

	out[threadIdx.x] = count * 4 + all * 2 + any;
}

__global__ void special(unsigned *out)
{
	unsigned lane, warp, lt, nsm;
	unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);

	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
	asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
	asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsm));
	t += block * blockDim.x * blockDim.y * blockDim.z;
	out[t * 4] = lane;
	out[t * 4 + 1] = warp;
	out[t * 4 + 2] = lt;
	out[t * 4 + 3] = nsm;
}

}
