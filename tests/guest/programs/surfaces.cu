/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surfaces: kernels write arrays and read them back, beside them, too; and copies of parts of arrays, in the order of a stream.
 * All byte by byte.
 */
#define PROGRAM "surfaces"
#include "images.h"

/* ---- surfaces */

__global__ void paint(cudaSurfaceObject_t s, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < width && y < height)
		surf2Dwrite(make_uchar4(x, y, x ^ y, 255), s, x * 4, y);
}

__global__ void move_right(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x >= width + 2 || y >= height)
		return;
	uchar4 beside = surf2Dread<uchar4>(from, (x - 1) * 4, y, cudaBoundaryModeClamp);
	uchar4 nothing = surf2Dread<uchar4>(from, (x + width) * 4, y, cudaBoundaryModeZero);
	beside.w = nothing.x + nothing.w;
	surf2Dwrite(beside, to, x * 4, y, cudaBoundaryModeZero); /* what is outside goes nowhere */
}

__global__ void fill_volume(cudaSurfaceObject_t s)
{
	surf3Dwrite((float)(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z), s, threadIdx.x * sizeof(float), threadIdx.y,
		    threadIdx.z);
}

static void check_surfaces()
{
	enum { W = 20, H = 10 };
	cudaChannelFormatDesc bytes = cudaCreateChannelDesc<uchar4>(), number = cudaCreateChannelDesc<float>();
	std::vector<uchar4> found(W * H);
	std::vector<float> volume(4 * 3 * 2);
	cudaArray_t a, b, v;
	cudaMemcpy3DParms copy{};
	cudaResourceDesc told;

	CHECK(cudaMallocArray(&a, &bytes, W, H, cudaArraySurfaceLoadStore));
	CHECK(cudaMallocArray(&b, &bytes, W, H, cudaArraySurfaceLoadStore));
	cudaSurfaceObject_t from = surface_of(a), to = surface_of(b);

	CHECK(cudaGetSurfaceObjectResourceDesc(&told, from));
	if (told.resType != cudaResourceTypeArray || told.res.array.array != a)
		FAIL("a surface is described otherwise");
	paint<<<dim3(3, 2), dim3(8, 8)>>>(from, W, H);
	move_right<<<dim3(3, 2), dim3(8, 8)>>>(from, to, W, H);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy2DFromArray(found.data(), W * 4, b, 0, 0, W * 4, H, cudaMemcpyDeviceToHost));
	for (int i = 0; i < W * H; i++) {
		int x = i % W, y = i / W, left = x ? x - 1 : 0;

		if (found[i].x != left || found[i].y != y || found[i].z != (left ^ y) || found[i].w != 0)
			FAIL("pixel %d,%d is %d %d %d %d", x, y, found[i].x, found[i].y, found[i].z, found[i].w);
	}
	CHECK(cudaMalloc3DArray(&v, &number, make_cudaExtent(4, 3, 2), cudaArraySurfaceLoadStore));
	cudaSurfaceObject_t s = surface_of(v);

	fill_volume<<<1, dim3(4, 3, 2)>>>(s);
	copy.srcArray = v;
	copy.dstPtr = make_cudaPitchedPtr(volume.data(), 4 * sizeof(float), 4, 3);
	copy.extent = make_cudaExtent(4, 3, 2);
	copy.kind = cudaMemcpyDeviceToHost;
	CHECK(cudaMemcpy3D(&copy));
	for (int i = 0; i < 24; i++)
		if (volume[i] != (float)(i % 4 + 10 * (i / 4 % 3) + 100 * (i / 12)))
			FAIL("voxel %d is %g", i, volume[i]);
	for (cudaSurfaceObject_t o : { from, to, s })
		CHECK(cudaDestroySurfaceObject(o));
	for (cudaArray_t o : { a, b, v })
		CHECK(cudaFreeArray(o));
}

/* ---- copies: parts of arrays, in the order of a stream */

static void check_parts()
{
	enum { W = 16, H = 8 };
	cudaChannelFormatDesc channels = cudaCreateChannelDesc<unsigned short>();
	std::vector<unsigned short> wanted(W * H), part(5 * 3), found(W * H), run(20);
	cudaArray_t array, other;
	cudaStream_t stream;
	unsigned short *pinned;

	for (int i = 0; i < W * H; i++)
		wanted[i] = (unsigned short)(i * 251);
	for (int i = 0; i < 15; i++)
		part[i] = (unsigned short)(60000 + i);
	for (int i = 0; i < 20; i++)
		run[i] = (unsigned short)(50000 + i);
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMallocHost(&pinned, W * H * 2));
	CHECK(cudaMallocArray(&array, &channels, W, H));
	CHECK(cudaMallocArray(&other, &channels, W, H));
	std::memcpy(pinned, wanted.data(), W * H * 2);
	CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, pinned, W * 2, W * 2, H, cudaMemcpyHostToDevice, stream));
	CHECK(cudaMemcpy2DToArrayAsync(array, 3 * 2, 2, part.data(), 5 * 2, 5 * 2, 3, cudaMemcpyHostToDevice, stream));
	CHECK(cudaMemcpyToArrayAsync(array, 14 * 2, 5, run.data(), 20 * 2, cudaMemcpyHostToDevice, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < 15; i++)
		wanted[(2 + i / 5) * W + 3 + i % 5] = part[i];
	for (int i = 0; i < 20; i++)
		wanted[5 * W + 14 + i] = run[i];
	CHECK(cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, W * 2, H, cudaMemcpyDeviceToDevice));
	device_memory<unsigned short> memory(W * H);
	CHECK(cudaMemcpy2DFromArray(memory.at, W * 2, other, 0, 0, W * 2, H, cudaMemcpyDeviceToDevice));
	if (memory.read() != wanted)
		FAIL("parts of an array are otherwise");
	CHECK(cudaMemcpy2DFromArrayAsync(pinned, W * 2, other, 0, 0, W * 2, H, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	if (std::memcmp(pinned, wanted.data(), W * H * 2))
		FAIL("an array is copied to other bytes");
	REFUSED(cudaMemcpy2DToArray(array, 0, 0, pinned, W * 2, W * 2, H + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	REFUSED(cudaMemcpy2DToArray(array, 2, 0, pinned, W * 2, W * 2, H, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	REFUSED(cudaMemcpy2DFromArray(pinned, W * 2, array, ~(size_t)1, 0, W * 2, 1, cudaMemcpyDeviceToHost),
		cudaErrorInvalidValue);
	CHECK(cudaMemcpy2DFromArray(found.data(), W * 2, array, 0, 0, W * 2, H, cudaMemcpyDeviceToHost));
	if (found != wanted)
		FAIL("a refused copy has changed an array");
	CHECK(cudaFreeArray(array));
	CHECK(cudaFreeArray(other));
	CHECK(cudaFreeHost(pinned));
	CHECK(cudaStreamDestroy(stream));
}

int main()
{
	check_surfaces();
	check_parts();
	PASS("surfaces and parts of arrays");
}
