/* SPDX-License-Identifier: Apache-2.0 */
/* vectoradd [N]: c = a + b over N floats; N need not be a multiple of the block. */
#define PROGRAM "vectoradd"
#include "check.h"

#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 10007);
	const size_t bytes = n * sizeof(float);
	std::vector<float> a(n), b(n), c(n, -1);
	float *da, *db, *dc;
	random_numbers random(1);

	for (int i = 0; i < n; i++) {
		a[i] = random.unit();
		b[i] = random.unit();
	}
	CHECK(cudaMalloc(&da, bytes));
	CHECK(cudaMalloc(&db, bytes));
	CHECK(cudaMalloc(&dc, bytes));
	CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
	add<<<blocks_for(n, 256), 256>>>(da, db, dc, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (c[i] != a[i] + b[i])
			FAIL("element %d is %g, not %g", i, c[i], a[i] + b[i]);
	CHECK(cudaFree(da));
	CHECK(cudaFree(db));
	CHECK(cudaFree(dc));
	PASS("%d elements", n);
}
