// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, barriers and the stack, as programs use them: 256 threads.
#include <alloca.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda_awbarrier.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;
using nvcuda::experimental::awbarrier;

enum { THREADS = 256 };

extern "C" __global__ void pipeline(int *out, const int *in)
{
	__shared__ int s[THREADS];
	nvcuda::experimental::pipeline p;

	__pipeline_memcpy_async(&s[threadIdx.x], &in[threadIdx.x], 4);
	__pipeline_commit();
	__pipeline_wait_prior(0);
	__syncthreads();
	out[threadIdx.x] = s[THREADS - 1 - threadIdx.x];
	__syncthreads();
	nvcuda::experimental::memcpy_async(s[THREADS - 1 - threadIdx.x], in[THREADS - 1 - threadIdx.x], p);
	p.commit_and_wait();
	__syncthreads();
	out[threadIdx.x] += s[threadIdx.x];
}

extern "C" __global__ void barrier(int *out, const int *in)
{
	__shared__ awbarrier b;
	__shared__ int s[THREADS];
	int sum = 0;

	if (threadIdx.x == 0)
		init(&b, blockDim.x);
	__syncthreads();
	for (int round = 0; round < 3; round++) {
		s[threadIdx.x] = in[threadIdx.x] + round;
		auto token = b.arrive();
		b.wait(token);
		sum += s[THREADS - 1 - threadIdx.x];
		b.arrive_and_wait();
	}
	out[threadIdx.x] = sum;
}

// A third of the threads leaves after each phase.
extern "C" __global__ void primitives(int *out, const int *in)
{
	__shared__ __mbarrier_t b;
	__shared__ int s[THREADS];

	if (threadIdx.x == 0)
		__mbarrier_init(&b, blockDim.x);
	__syncthreads();
	__pipeline_memcpy_async(&s[threadIdx.x], &in[threadIdx.x], 4);
	__pipeline_arrive_on(&b);
	auto token = __mbarrier_arrive(&b);
	while (!__mbarrier_test_wait(&b, token))
		;
	out[threadIdx.x] = s[THREADS - 1 - threadIdx.x];
	for (int phase = 0; phase < 3; phase++) {
		if (threadIdx.x % 3 == phase) {
			__mbarrier_arrive_and_drop(&b);
			return;
		}
		token = __mbarrier_arrive(&b);
		while (!__mbarrier_test_wait(&b, token))
			;
		out[threadIdx.x] += 1000;
	}
}

extern "C" __global__ void groups(int *out, const int *in)
{
	__shared__ int s[THREADS];
	cg::thread_block block = cg::this_thread_block();
	auto warp = cg::tiled_partition<32>(block);

	cg::memcpy_async(block, s, in, sizeof s);
	cg::wait(block);
	out[threadIdx.x] = cg::reduce(warp, s[threadIdx.x], cg::plus<int>()) +
			   (int)cg::reduce(warp, (float)s[threadIdx.x], cg::greater<float>());
}

__device__ int weighted(const int *in, int n)
{
	int *p = (int *)alloca(n * sizeof *p);
	int sum = 0;

	for (int i = 0; i < n; i++)
		p[i] = i * in[i];
	for (int i = n; i--;)
		sum += p[i];
	return sum;
}

extern "C" __global__ void stack(int *out, const int *in)
{
	out[threadIdx.x] = weighted(in, threadIdx.x % 40 + 1);
}

#if __CUDA_ARCH__ >= 900
// 256 bins over the shared memory of a cluster's four blocks.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(int *out, const int *in)
{
	__shared__ int bins[64];
	cg::cluster_group cluster = cg::this_cluster();
	int bin = in[blockIdx.x * blockDim.x + threadIdx.x] % 256;

	bins[threadIdx.x] = 0;
	cluster.sync();
	atomicAdd(cluster.map_shared_rank(bins, bin / 64) + bin % 64, 1);
	cluster.sync();
	out[cluster.block_rank() * 64 + threadIdx.x] = bins[threadIdx.x];
}

// What a block has goes to the one before it, round by round.
extern "C" __global__ void cluster_ring(int *out, const int *in)
{
	__shared__ int have[64], next[64];
	cg::cluster_group cluster = cg::this_cluster();
	unsigned to = (cluster.block_rank() + cluster.num_blocks() - 1) % cluster.num_blocks();
	int sum = 0;

	have[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
	for (unsigned round = 0; round < cluster.num_blocks(); round++) {
		sum += have[threadIdx.x];
		cluster.map_shared_rank(next, to)[threadIdx.x] = have[threadIdx.x];
		auto token = cluster.barrier_arrive();
		cluster.barrier_wait(std::move(token));
		have[threadIdx.x] = next[threadIdx.x];
		cluster.sync();
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#endif
