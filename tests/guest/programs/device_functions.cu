/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_functions [N]: calls of device functions (recursion too), constant and global variables set and read by symbol,
 * and mathematics in double precision, compared with the CPU's.
 */
#define PROGRAM "device_functions"
#include "check.h"

#include <cmath>
#include <vector>

constexpr int terms = 6;

__constant__ double coefficients[terms];
__device__ int calls;

__device__ __noinline__ double polynomial(double x)
{
	double value = 0;

	for (int i = terms - 1; i >= 0; i--)
		value = value * x + coefficients[i];
	return value;
}

__device__ __noinline__ unsigned long long factorial(unsigned n)
{
	return n < 2 ? 1 : n * factorial(n - 1);
}

__device__ __noinline__ double choose(int which, double x)
{
	switch (which) {
	case 0:
		return sin(x) * exp(-x);
	case 1:
		return log(1 + x) + sqrt(x);
	case 2:
		return pow(x, 1.7) - cos(3 * x);
	case 3:
		return polynomial(x);
	default:
		return (double)factorial((unsigned)which) / (1 + x);
	}
}

__global__ void evaluate(double *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	out[i] = choose(i % 7, i * 0.01);
	atomicAdd(&calls, 1);
}

static double expected(int which, double x, const double *c)
{
	double value = 0;

	switch (which) {
	case 0:
		return std::sin(x) * std::exp(-x);
	case 1:
		return std::log(1 + x) + std::sqrt(x);
	case 2:
		return std::pow(x, 1.7) - std::cos(3 * x);
	case 3:
		for (int i = terms - 1; i >= 0; i--)
			value = value * x + c[i];
		return value;
	default:
		return std::tgamma(which + 1.0) / (1 + x);
	}
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 1001);
	double c[terms] = { 1, -0.5, 0.25, 2, -1, 0.125 }, second = 0;
	std::vector<double> result(n);
	double *device, *address;
	int counted = -5;
	size_t size = 0;

	CHECK(cudaMemcpyToSymbol(coefficients, c, sizeof(c)));
	CHECK(cudaMemcpyToSymbol(calls, &counted, sizeof(counted)));
	CHECK(cudaGetSymbolSize(&size, coefficients));
	CHECK(cudaGetSymbolAddress((void **)&address, coefficients));
	CHECK(cudaMemcpy(&second, address + 1, sizeof(second), cudaMemcpyDeviceToHost));
	if (size != sizeof(c) || second != c[1])
		FAIL("coefficients: %zu bytes, second %g", size, second);
	CHECK(cudaMalloc(&device, n * sizeof(double)));
	evaluate<<<blocks_for(n, 64), 64>>>(device, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(result.data(), device, n * sizeof(double), cudaMemcpyDeviceToHost));
	CHECK(cudaMemcpyFromSymbol(&counted, calls, sizeof(counted)));
	for (int i = 0; i < n; i++) {
		double want = expected(i % 7, i * 0.01, c);

		if (!(std::fabs(result[i] - want) <= 1e-12 * (1 + std::fabs(want))))
			FAIL("element %d is %.17g, not %.17g", i, result[i], want);
	}
	if (counted != n - 5)
		FAIL("%d calls counted, not %d", counted + 5, n);
	PASS("%d elements", n);
}
