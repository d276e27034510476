/* SPDX-License-Identifier: Apache-2.0 */
// Kernels for the test programs of the simulated driver, by nvcc as PTX and as fat binaries.
#include <cassert>
#include <cstdio>

__device__ int counter = 5;
__constant__ int table[4] = { 10, 20, 30, 40 };

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

extern "C" __global__ void store(unsigned *p, unsigned value)
{
	*p = value;
}

extern "C" __global__ void add_to(unsigned *p, unsigned value)
{
	*p = *p * 3 + value;
}

// Of graphs: sets a conditional handle, to a value, or to what is left of a word.
extern "C" __global__ void decide(cudaGraphConditionalHandle handle, unsigned value)
{
	cudaGraphSetConditional(handle, value);
}

extern "C" __global__ void count_down(cudaGraphConditionalHandle handle, unsigned *p)
{
	cudaGraphSetConditional(handle, --*p);
}

extern "C" __global__ void reduce(const int *in, int *out)
{
	extern __shared__ int part[];

	part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
	__syncthreads();
	for (int half = blockDim.x / 2; half; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (!threadIdx.x)
		atomicAdd(out, part[0]);
}

struct mixed {
	char c;
	double d;
	short s[3];
};

extern "C" __global__ void take_mixed(char a, mixed m, long long b, double *out)
{
	out[0] = a;
	out[1] = m.c;
	out[2] = m.d;
	out[3] = m.s[2];
	out[4] = b;
}

extern "C" __global__ void use_globals(int *out)
{
	out[threadIdx.x] = counter * table[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(128) bounded(int *out)
{
	out[threadIdx.x] = threadIdx.x;
}

extern "C" __global__ void nothing()
{
}

extern "C" __global__ void spin(volatile unsigned *stop)
{
	while (!*stop)
		;
}

extern "C" __global__ void trap_now()
{
	__trap();
}

extern "C" __global__ void assert_now(int x)
{
	assert(x == 1);
}

extern "C" __global__ void misaligned(char *p)
{
	*(int *)(p + 1) = 1;
}

/* Right only where the lanes of a warp run in step. */
extern "C" __global__ void shift_in_step(unsigned *p)
{
	__shared__ volatile unsigned s[33];
	unsigned lane = threadIdx.x;

	s[lane] = lane;
	p[lane] = s[(lane + 1) % 32] + s[(lane + 31) % 32];
}

/* Has an instruction that the interpreter does not know. */
extern "C" __global__ void sparse(unsigned *p)
{
	unsigned a = p[threadIdx.x], d0, d1;

	asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2}, {%2, %2}, {%2, %2}, %2, 0x0;"
		     : "=r"(d0), "=r"(d1)
		     : "r"(a));
	p[threadIdx.x] = d0 + d1;
}

extern "C" __global__ void say(int n)
{
	printf("hello %d from %d\n", n, threadIdx.x);
}
