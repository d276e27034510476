/* SPDX-License-Identifier: Apache-2.0 */
/* matmul [N]: C = A B of N x N floats in tiles of shared memory; the last tile may be a part. */
#define PROGRAM "matmul"
#include "check.h"

#include <cmath>
#include <vector>

constexpr int tile = 16;

__global__ void multiply(const float *a, const float *b, float *c, int n)
{
	__shared__ float left[tile][tile], right[tile][tile];
	const int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
	float sum = 0;

	for (int k = 0; k < n; k += tile) {
		const int x = k + threadIdx.x, y = k + threadIdx.y;

		left[threadIdx.y][threadIdx.x] = row < n && x < n ? a[row * n + x] : 0;
		right[threadIdx.y][threadIdx.x] = y < n && column < n ? b[y * n + column] : 0;
		__syncthreads();
		for (int i = 0; i < tile; i++)
			sum += left[threadIdx.y][i] * right[i][threadIdx.x];
		__syncthreads();
	}
	if (row < n && column < n)
		c[row * n + column] = sum;
}

static void compare(const std::vector<float> &a, const std::vector<float> &b, const std::vector<float> &c, int n)
{
	for (int row = 0; row < n; row++) {
		for (int column = 0; column < n; column++) {
			double sum = 0;

			for (int k = 0; k < n; k++)
				sum += (double)a[row * n + k] * b[k * n + column];
			if (std::fabs(c[row * n + column] - sum) > 1e-5 * n)
				FAIL("element %d,%d is %g, not %g", row, column, c[row * n + column], sum);
		}
	}
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 45);
	const size_t bytes = (size_t)n * n * sizeof(float);
	std::vector<float> a(n * n), b(n * n), c(n * n, -1);
	float *da, *db, *dc;
	random_numbers random(2);

	for (int i = 0; i < n * n; i++) {
		a[i] = random.unit();
		b[i] = random.unit();
	}
	CHECK(cudaMalloc(&da, bytes));
	CHECK(cudaMalloc(&db, bytes));
	CHECK(cudaMalloc(&dc, bytes));
	CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemset(dc, 0xff, bytes));
	multiply<<<dim3(blocks_for(n, tile), blocks_for(n, tile)), dim3(tile, tile)>>>(da, db, dc, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
	compare(a, b, c, n);
	PASS("%d x %d", n, n);
}
