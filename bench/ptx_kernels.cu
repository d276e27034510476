// SPDX-License-Identifier: Apache-2.0
// What bench/ptx.py measures.

extern "C" __global__ void fma_chain(float *out, int turns)
{
	float a = threadIdx.x * 0.001f, b = 1.0f, c = 0.5f, d = 0.25f;

	for (int i = 0; i < turns; i++) {
		a = fmaf(a, 0.999f, 0.1f);
		b = fmaf(b, 0.998f, a);
		c = fmaf(c, 0.997f, b);
		d = fmaf(d, 0.996f, c);
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

// y = a * x + y
extern "C" __global__ void elementwise(float *y, const float *x, float a, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		y[i] = (a * x[i] + y[i]) * 0.5f - x[i];
}

extern "C" __global__ void matmul_shared(const float *a, const float *b, float *c, int n)
{
	__shared__ float as[16][16], bs[16][16];
	int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
	float sum = 0;

	for (int k = 0; k < n; k += 16) {
		as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
		bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
		__syncthreads();
		for (int j = 0; j < 16; j++)
			sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
		__syncthreads();
	}
	c[row * n + column] = sum;
}

extern "C" __global__ void reduce_shared(const float *in, float *out, int n)
{
	__shared__ float part[256];
	float sum = 0;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		sum += in[i];
	part[threadIdx.x] = sum;
	__syncthreads();
	for (int half = blockDim.x / 2; half; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (!threadIdx.x)
		out[blockIdx.x] = part[0];
}

extern "C" __global__ void reduce_shuffle(const float *in, float *out, int n)
{
	float sum = 0;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		float v = in[i];

		for (int by = 16; by; by /= 2)
			v += __shfl_xor_sync(0xffffffff, v, by);
		sum += v;
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// every lane goes its own way: Collatz, and a switch
extern "C" __global__ void divergent(unsigned *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		unsigned v = i * 2654435761u % 100000 + 1, steps = 0;

		while (v != 1 && steps < 200) {
			v = v & 1 ? 3 * v + 1 : v / 2;
			steps++;
		}
		switch (v * steps % 5) {
		case 0:
			steps = steps * 7 + v;
			break;
		case 1:
			steps ^= v << 3;
			break;
		case 2:
			for (unsigned k = 0; k < steps % 9; k++)
				steps += k * v;
			break;
		default:
			steps -= v;
		}
		out[i] = steps;
	}
}

// each lane leaves its loop at another time
extern "C" __global__ void mandelbrot(unsigned *out, int width)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float cx = (i % width) * (3.0f / width) - 2.0f, cy = (i / width) * (2.0f / width) - 1.0f, x = 0, y = 0;
	unsigned k = 0;

	while (k < 256 && x * x + y * y < 4.0f) {
		float t = x * x - y * y + cx;

		y = 2 * x * y + cy;
		x = t;
		k++;
	}
	out[i] = k;
}
