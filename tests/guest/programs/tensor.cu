/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor [N]: products of N x N half-precision matrices by tensor cores, tiles brought to shared memory by asynchronous copies;
 * then a sum that threads pass on through a barrier in shared memory. N is rounded up to a multiple of 16.
 */
#define PROGRAM "tensor"
#include "check.h"

#include <cuda_awbarrier.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <vector>

using namespace nvcuda;

enum { TILE = 16, LANES = 32, BYTES = 16, THREADS = 128 };

/* One warp for each tile of c; two tiles of a and b in turn, so that the next is copied while one is used. */
__global__ void multiply(const half *a, const half *b, float *c, int n)
{
	__shared__ __align__(16) half tiles[2][2][TILE][TILE];
	wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::row_major> fb;
	wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> fc;
	int row = blockIdx.y * TILE, column = blockIdx.x * TILE, steps = n / TILE;
	int line = threadIdx.x / 2, part = threadIdx.x % 2 * (TILE / 2);

	wmma::fill_fragment(fc, 0.0f);
	for (int step = 0; step <= steps; step++) {
		if (step < steps) {
			__pipeline_memcpy_async(&tiles[step % 2][0][line][part], &a[(row + line) * n + step * TILE + part], BYTES);
			__pipeline_memcpy_async(&tiles[step % 2][1][line][part], &b[(step * TILE + line) * n + column + part], BYTES);
		}
		__pipeline_commit();
		if (step == 0)
			continue;
		__pipeline_wait_prior(1);
		__syncwarp();
		wmma::load_matrix_sync(fa, &tiles[(step - 1) % 2][0][0][0], TILE);
		wmma::load_matrix_sync(fb, &tiles[(step - 1) % 2][1][0][0], TILE);
		wmma::mma_sync(fc, fa, fb, fc);
		__syncwarp();
	}
	wmma::store_matrix_sync(&c[row * n + column], fc, n, wmma::mem_row_major);
}

/* Each thread adds its number to what its neighbour had one phase earlier. */
__global__ void pass_on(int *out, int phases)
{
	__shared__ nvcuda::experimental::awbarrier barrier;
	__shared__ int values[THREADS];
	int sum = threadIdx.x;

	if (threadIdx.x == 0)
		init(&barrier, THREADS);
	__syncthreads();
	for (int phase = 0; phase < phases; phase++) {
		values[threadIdx.x] = sum;
		barrier.arrive_and_wait();
		sum = threadIdx.x + values[(threadIdx.x + 1) % THREADS];
		barrier.arrive_and_wait();
	}
	out[threadIdx.x] = sum;
}

static void check_products(int n)
{
	std::vector<half> a(n * n), b(n * n);
	std::vector<float> c(n * n), x(n * n), y(n * n);
	half *da, *db;
	float *dc;
	random_numbers random(3);

	for (int i = 0; i < n * n; i++) { /* small whole numbers: every sum is exact */
		x[i] = (float)((int)(random.unit() * 16) - 8);
		y[i] = (float)((int)(random.unit() * 16) - 8);
		a[i] = __float2half(x[i]);
		b[i] = __float2half(y[i]);
	}
	CHECK(cudaMalloc(&da, a.size() * sizeof(half)));
	CHECK(cudaMalloc(&db, b.size() * sizeof(half)));
	CHECK(cudaMalloc(&dc, c.size() * sizeof(float)));
	CHECK(cudaMemcpy(da, a.data(), a.size() * sizeof(half), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(db, b.data(), b.size() * sizeof(half), cudaMemcpyHostToDevice));
	multiply<<<dim3(n / TILE, n / TILE), LANES>>>(da, db, dc, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(c.data(), dc, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
	for (int row = 0; row < n; row++)
		for (int column = 0; column < n; column++) {
			float sum = 0;

			for (int k = 0; k < n; k++)
				sum += x[row * n + k] * y[k * n + column];
			if (c[row * n + column] != sum)
				FAIL("element %d, %d is %g, not %g", row, column, c[row * n + column], sum);
		}
	CHECK(cudaFree(da));
	CHECK(cudaFree(db));
	CHECK(cudaFree(dc));
}

static void check_barrier(int phases)
{
	int *device, got[THREADS];

	CHECK(cudaMalloc(&device, sizeof got));
	pass_on<<<1, THREADS>>>(device, phases);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost));
	for (int thread = 0; thread < THREADS; thread++) {
		int sum = 0;

		for (int k = 0; k <= phases; k++)
			sum += (thread + k) % THREADS;
		if (got[thread] != sum)
			FAIL("thread %d has %d, not %d", thread, got[thread], sum);
	}
	CHECK(cudaFree(device));
}

int main(int argc, char **argv)
{
	const int n = ((int)argument(argc, argv, 1, 64) + TILE - 1) / TILE * TILE;

	check_products(n);
	check_barrier(9);
	PASS("%d x %d", n, n);
}
