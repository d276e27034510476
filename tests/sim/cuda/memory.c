/* SPDX-License-Identifier: Apache-2.0 */
/* Device and host memory, copies, capacity. */
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { MIB = 1 << 20 };

static void allocate(void)
{
	size_t free_before, free_after, total, size, pitch;
	CUdeviceptr p, q, base;

	new_context();
	OK(cuMemGetInfo(&free_before, &total));
	EXPECT(free_before < total); /* the context itself takes some */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, total + MIB));
	OK(cuMemAlloc(&p, 100));
	OK(cuMemAlloc(&q, 5 * MIB));
	EXPECT(p % 256 == 0 && q % 256 == 0);
	OK(cuMemGetInfo(&free_after, &total));
	EXPECT(free_before - free_after == 8 * MIB); /* a shared piece of 2 MiB, and 5 rounded up to 6 */
	OK(cuMemGetAddressRange(&base, &size, q + 12345));
	EXPECT(base == q && size == 5 * MIB);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(q + 256));
	OK(cuMemFree(q));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(q));
	OK(cuMemFree(p));
	OK(cuMemFree(0));
	OK(cuMemGetInfo(&free_after, &total));
	EXPECT(free_before == free_after);
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, q));
	OK(cuMemAllocPitch(&p, &pitch, 1000, 10, 4));
	EXPECT(pitch >= 1000 && pitch % 512 == 0);
	OK(cuMemFree(p));
	OK(cuMemAllocManaged(&p, 4, CU_MEM_ATTACH_GLOBAL));
	*(int *)p = 5;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&p, 4, 7));
	OK(cuMemFree(p));
}

/* Fills the device to the last piece, in pieces of many sizes; all of it comes back. */
static void exhaust(void)
{
	size_t free_before, free_after, total, n = 0, size = 512 * (size_t)MIB;
	static CUdeviceptr p[4096];
	CUcontext ctx = new_context();

	OK(cuMemGetInfo(&free_before, &total));
	while (size >= 2 * MIB && n < 4096) {
		CUresult r = cuMemAlloc(&p[n], size);

		if (r == CUDA_SUCCESS)
			n++;
		else
			size /= 2;
		EXPECT(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	}
	OK(cuMemGetInfo(&free_after, &total));
	EXPECT(free_after < 2 * MIB && n > 8);
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p[n], 4 * MIB));
	for (size_t i = 0; i < n; i += 2)
		OK(cuMemFree(p[i]));
	OK(cuCtxDestroy(ctx));
	new_context();
	OK(cuMemGetInfo(&free_after, &total));
	EXPECT(free_before == free_after);
}

static void copies(void)
{
	unsigned char in[1000], out[1000];
	CUdeviceptr a, b;

	new_context();
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)(i * 7);
	OK(cuMemAlloc(&a, sizeof(in)));
	OK(cuMemAlloc(&b, sizeof(in)));
	OK(cuMemcpyHtoD(a, in, sizeof(in)));
	OK(cuMemcpyDtoD(b, a, sizeof(in)));
	OK(cuMemcpyDtoH(out, b, sizeof(in)));
	EXPECT(!memcmp(in, out, sizeof(in)));
	OK(cuMemsetD8(b, 0, sizeof(in)));
	OK(cuMemcpy(b + 10, a, 100));
	OK(cuMemcpy((CUdeviceptr)out, b, sizeof(out)));
	EXPECT(!out[9] && !memcmp(out + 10, in, 100) && !out[110]);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a + 1, in, sizeof(in)));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out, (CUdeviceptr)in, 4));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(a, b, SIZE_MAX));
	OK(cuMemcpyHtoD(a, in, 0));
	OK(cuMemFree(b));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out, b, 4));
}

static void fills(void)
{
	uint32_t out[256];
	uint16_t half[8];
	CUdeviceptr p;

	new_context();
	OK(cuMemAlloc(&p, sizeof(out)));
	OK(cuMemsetD32(p, 0xdeadbeef, 256));
	OK(cuMemsetD16(p + 4, 0x1234, 4));
	OK(cuMemsetD8(p + 12, 0xff, 1));
	OK(cuMemcpyDtoH(out, p, sizeof(out)));
	EXPECT(out[0] == 0xdeadbeef && out[1] == 0x12341234 && out[3] == 0xdeadbeff && out[255] == 0xdeadbeef);
	OK(cuMemsetD2D16(p, 64, 7, 2, 3));
	OK(cuMemcpyDtoH(half, p + 128, sizeof(half)));
	EXPECT(half[0] == 7 && half[1] == 7 && half[2] == 0xbeef);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p + 2, 0, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p, 0, 257));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(p, 8, 0, 4, 2));
}

static void copies_2d_3d(void)
{
	enum { W = 24, H = 8, D = 3, PITCH = 64 };
	unsigned char in[D][H][W], out[D][H][W];
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = W, .srcHeight = H,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstPitch = PITCH, .dstHeight = H,
			    .WidthInBytes = W, .Height = H, .Depth = D };
	CUDA_MEMCPY2D f = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcPitch = PITCH, .srcXInBytes = 4, .srcY = 2,
			    .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = W,
			    .WidthInBytes = 16, .Height = 5 };
	CUdeviceptr p;

	new_context();
	for (size_t i = 0; i < sizeof(in); i++)
		(&in[0][0][0])[i] = (unsigned char)i;
	memset(out, 0xee, sizeof(out));
	OK(cuMemAlloc(&p, PITCH * H * D));
	c.dstDevice = f.srcDevice = p;
	OK(cuMemcpy3D(&c));
	OK(cuMemcpy2D(&f));
	for (int y = 0; y < 5; y++)
		EXPECT(!memcmp(out[0][y], &in[0][y + 2][4], 16) && out[0][y][16] == 0xee);
	c.srcZ = 1;
	c.Depth = 2;
	c.dstXInBytes = 8;
	c.WidthInBytes = 8;
	OK(cuMemcpy3D(&c));
	OK(cuMemcpyDtoH(out, p + 8, 8));
	EXPECT(!memcmp(out, in[1][0], 8));
	c.Depth = 4;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&c));
	f.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&f));
	f.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	f.srcPitch = 8;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&f));
}

static void host_memory(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned flags, type;
	CUdeviceptr d;
	void *p, *heap;

	new_context();
	OK(cuMemHostAlloc(&p, 10000, CU_MEMHOSTALLOC_PORTABLE));
	memset(p, 1, 10000);
	OK(cuMemHostGetDevicePointer(&d, p, 0));
	EXPECT(d == (CUdeviceptr)p);
	OK(cuMemHostGetFlags(&flags, p));
	EXPECT(flags & CU_MEMHOSTALLOC_PORTABLE);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 5000));
	EXPECT(type == CU_MEMORYTYPE_HOST);
	OK(cuMemFreeHost(p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(p));
	EXPECT(!posix_memalign(&heap, page, 4 * page));
	memset(heap, 0, 4 * page);
	OK(cuMemHostRegister(heap, 4 * page, 0));
	EXPECT_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister((char *)heap + page, page, 0));
	OK(cuMemHostUnregister(heap));
	EXPECT_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(heap));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)16, page, 0));
	OK(cuMemAllocHost(&p, 1));
}

static void pointers(void)
{
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	unsigned type = 77;
	size_t size;
	void *out[] = { &type, &size };
	int local, ordinal;
	CUcontext ctx = new_context(), owner;
	CUdeviceptr p;

	OK(cuMemAlloc(&p, 1000));
	OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p + 10));
	EXPECT(owner == ctx);
	OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	EXPECT(ordinal == 0);
	OK(cuPointerGetAttributes(2, what, out, p + 1));
	EXPECT(type == CU_MEMORYTYPE_DEVICE && size == 1000);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, what[0], (CUdeviceptr)&local));
	OK(cuPointerGetAttributes(2, what, out, (CUdeviceptr)&local));
	EXPECT(type == 0 && size == 0);
}

static void pools(void)
{
	cuuint64_t used, high;
	size_t before, after, total;
	CUmemoryPool pool;
	CUdeviceptr p;
	CUstream s;
	sem_t gate;

	new_context();
	sem_init(&gate, 0, 0);
	OK(cuMemGetInfo(&before, &total));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&p, 4 * MIB, s));
	OK(cuMemsetD8Async(p, 1, 4 * MIB, s));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	EXPECT(used == 4 * MIB);
	OK(cuLaunchHostFunc(s, wait_at_gate, &gate));
	OK(cuMemFreeAsync(p, s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p, s));
	OK(cuMemGetInfo(&after, &total));
	EXPECT(before - after == 4 * MIB); /* the stream has not come to the free */
	sem_post(&gate);
	OK(cuStreamSynchronize(s));
	OK(cuMemGetInfo(&after, &total));
	EXPECT(before == after);
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
	EXPECT(used == 0 && high == 4 * MIB);
}

/* What fits only once the stream has freed is waited for. */
static void pool_waits(void)
{
	size_t available, total;
	CUdeviceptr p, q;

	new_context();
	OK(cuMemGetInfo(&available, &total));
	OK(cuMemAllocAsync(&p, available / 4 * 3, 0));
	OK(cuMemFreeAsync(p, 0));
	OK(cuMemAllocAsync(&q, available / 4 * 3, 0));
	OK(cuMemFree(q));
}

/* Takes most of the device, says so, and waits for standard input to close. */
static void hold(void)
{
	size_t available, total;
	CUdeviceptr p;

	new_context();
	OK(cuMemGetInfo(&available, &total));
	OK(cuMemAlloc(&p, available / 4 * 3));
	printf("%zu\n", available);
	fflush(stdout);
	while (getchar() != EOF)
		;
}

static void try_most(void)
{
	size_t available, total;
	CUdeviceptr p;
	CUresult r;

	new_context();
	OK(cuMemGetInfo(&available, &total));
	r = cuMemAlloc(&p, total / 2);
	printf("%s %zu\n", error_name(r), available);
}

/* The machine has 1 GiB for all programs. */
static void limited(void)
{
	size_t available, total;
	CUdeviceptr p;

	new_context();
	OK(cuMemGetInfo(&available, &total));
	EXPECT(available < (size_t)1 << 30 && total > (size_t)1 << 30);
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, (size_t)1 << 30));
	OK(cuMemAlloc(&p, available / 2));
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, available / 4 * 3));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "allocate", allocate }, { "exhaust", exhaust }, { "copies", copies },
		{ "fills", fills }, { "copies_2d_3d", copies_2d_3d }, { "host_memory", host_memory },
		{ "pointers", pointers }, { "pools", pools }, { "pool_waits", pool_waits },
		{ "hold", hold }, { "try_most", try_most }, { "limited", limited }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
