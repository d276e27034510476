/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and the objects that kernels name them by: the precision of filters, what is refused and by which code.
 */
#include "texture_kernels.h"

#include <math.h>

/* ---- precision */

/* Between 0 and 256, a filter's answer is its weight in 256ths: 9 bits of fixed point, of which 8 are behind the point. */
static void weights(void)
{
	const float values[] = { 0, 256 };
	float x[1024], out[1024];
	CUarray array;
	CUtexObject t;

	begin();
	array = new_array(2, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	OK(cuMemcpyHtoA(array, 0, values, sizeof(values)));
	t = new_texture(array, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
	for (int part = 0; part < 2; part++) {
		/* a quarter below and above each weight */
		for (int i = 0; i < 512; i++)
			x[i] = 0.5f + (float)(part * 128 * 4 + i) / 1024 + (i % 4 == 2 ? 0x1p-12f : 0);
		OK(run_sample(t, x, out, 512));
		for (int i = 0; i < 512; i++)
			if (out[i] != (float)((part * 512 + i + (i % 4 > 1 ? 4 - i % 4 : -(i % 4))) / 4))
				FAIL("at %.9g the weight is %g / 256", (double)x[i], (double)out[i]);
	}
	x[0] = 1.5f; /* exactly 1 */
	x[1] = 1.5f - 0x1p-10f; /* nearer to 1 than to 255 / 256 */
	OK(run_sample(t, x, out, 2));
	EXPECT(out[0] == 256 && out[1] == 256);
	OK(cuTexObjectDestroy(t));
	OK(cuArrayDestroy(array));
}

/* One texel's neighbours outside: itself, the other end, itself mirrored, the border's colour. */
static void outside(void)
{
	static const struct { CUaddress_mode mode; float left, right, far; } modes[] = {
		{ CU_TR_ADDRESS_MODE_CLAMP, 10, 40, 10 },
		{ CU_TR_ADDRESS_MODE_WRAP, 40, 10, 30 },
		{ CU_TR_ADDRESS_MODE_MIRROR, 10, 40, 30 },
		{ CU_TR_ADDRESS_MODE_BORDER, 77, 77, 77 },
	};
	const float values[] = { 10, 20, 30, 40 };
	const float normalized[] = { -0.125f, 1.125f, -1.375f, -0.0f, NAN, INFINITY };
	const float plain[] = { -0.5f, 4.5f, -5.5f };
	float out[6];
	CUarray array;
	CUtexObject t;

	begin();
	array = new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	OK(cuMemcpyHtoA(array, 0, values, sizeof(values)));
	for (int i = 0; i < 4; i++) {
		t = new_texture(array, modes[i].mode, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
		OK(run_sample(t, normalized, out, 6)); /* what is no number reads something, and nothing else */
		EXPECT(out[0] == modes[i].left && out[1] == modes[i].right && out[2] == modes[i].far && out[3] == 10);
		OK(cuTexObjectDestroy(t));
		/* wrap and mirror are clamp for coordinates that are not normalised */
		t = new_texture(array, modes[i].mode, CU_TR_FILTER_MODE_POINT, 0);
		OK(run_sample(t, plain, out, 3));
		EXPECT(out[0] == (i == 3 ? 77 : 10) && out[1] == (i == 3 ? 77 : 40) && out[2] == (i == 3 ? 77 : 10));
		OK(cuTexObjectDestroy(t));
	}
	t = new_texture(array, CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_LINEAR, 0);
	out[0] = 0.25f; /* three quarters of the first texel */
	OK(run_sample(t, out, out, 1));
	EXPECT(out[0] == 0.75f * 10 + 0.25f * 77);
	OK(cuTexObjectDestroy(t));
	OK(cuArrayDestroy(array));
}

static void queries(void)
{
	CUarray array, volume;
	unsigned told[6];
	CUdeviceptr out;
	CUsurfObject s;
	CUtexObject t;
	void *parameters[] = { &t, &s, &out };

	begin();
	array = new_array(12, 7, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
	volume = new_array(5, 6, 9, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0);
	s = new_surface(array);
	t = new_texture(volume, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
	OK(cuMemAlloc(&out, sizeof(told)));
	OK(cuLaunchKernel(query, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	OK(cuMemcpyDtoH(told, out, sizeof(told)));
	EXPECT(told[0] == 5 && told[1] == 6 && told[2] == 9 && told[3] == 1 && told[4] == 12 && told[5] == 7);
}

/* ---- copies */

static void parts(void)
{
	static unsigned char bytes[64 * 64];
	CUDA_MEMCPY3D good = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes, .srcPitch = 64, .srcHeight = 8,
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = 64, .Height = 8, .Depth = 3 }, c;
	CUarray array, gone;
	CUdeviceptr memory;

	begin();
	array = new_array(16, 8, 3, CU_AD_FORMAT_FLOAT, 1, 0);
	gone = new_array(16, 8, 3, CU_AD_FORMAT_FLOAT, 1, 0);
	OK(cuArrayDestroy(gone));
	good.dstArray = array;
	OK(cuMemcpy3D(&good));
#define BAD(code, field, value)                          \
	do {                                             \
		c = good;                                \
		c.field = (value);                       \
		EXPECT_ERROR(code, cuMemcpy3D(&c));      \
	} while (0)
	BAD(CUDA_ERROR_INVALID_VALUE, dstXInBytes, 4);
	BAD(CUDA_ERROR_INVALID_VALUE, dstY, 1);
	BAD(CUDA_ERROR_INVALID_VALUE, dstZ, 1);
	BAD(CUDA_ERROR_INVALID_VALUE, dstZ, SIZE_MAX);
	BAD(CUDA_ERROR_INVALID_VALUE, dstXInBytes, SIZE_MAX - 3);
	BAD(CUDA_ERROR_INVALID_VALUE, WidthInBytes, 62); /* no whole elements */
	BAD(CUDA_ERROR_INVALID_VALUE, Height, SIZE_MAX);
	BAD(CUDA_ERROR_INVALID_VALUE, Depth, SIZE_MAX / 2);
	BAD(CUDA_ERROR_INVALID_VALUE, srcPitch, SIZE_MAX);
	BAD(CUDA_ERROR_INVALID_VALUE, srcPitch, 63);
	BAD(CUDA_ERROR_INVALID_HANDLE, dstArray, gone);
	BAD(CUDA_ERROR_INVALID_VALUE, dstArray, NULL);
	BAD(CUDA_ERROR_INVALID_HANDLE, dstArray, (CUarray)bytes);
	OK(cuMemAlloc(&memory, 16 * 8 * 3 * 4));
	good.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	good.srcDevice = memory;
	OK(cuMemcpy3D(&good));
	BAD(CUDA_ERROR_INVALID_VALUE, srcDevice, memory + (1 << 20));
	BAD(CUDA_ERROR_INVALID_VALUE, srcHeight, SIZE_MAX / 64);
	BAD(CUDA_ERROR_INVALID_VALUE, srcPitch, 1 << 30);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(array, 60, bytes, 8));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(array, 0, NULL, 8));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoA(array, 0, NULL, 0, 8));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoD(memory, array, SIZE_MAX & ~3ull, 8));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH(bytes, gone, 0, 8));
	OK(cuMemcpyAtoA(array, 32, array, 0, 32));
	OK(cuMemcpyHtoA(array, 0, bytes, 0));
}

/* All the old copies, and those in the order of a stream. */
static void lines(void)
{
	unsigned words[64], back[64] = { 0 };
	CUdeviceptr memory;
	CUarray a, b;
	CUstream stream;

	begin();
	for (unsigned i = 0; i < 64; i++)
		words[i] = i * i;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&memory, 256));
	a = new_array(64, 0, 0, CU_AD_FORMAT_SIGNED_INT32, 1, 0);
	b = new_array(64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0);
	OK(cuMemcpyHtoAAsync(a, 0, words, 256, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyAtoD(memory, a, 0, 256));
	OK(cuMemcpyDtoA(b, 16, memory, 240));
	OK(cuMemcpyAtoA(b, 0, a, 240, 16));
	OK(cuCtxSynchronize()); /* nobody has waited for copies within the device, and the stream does not */
	OK(cuMemcpyAtoHAsync(back, b, 0, 256, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(!memcmp(back, words + 60, 16) && !memcmp(back + 4, words, 240));
}

/* ---- arguments */

static void arguments(void)
{
	CUDA_ARRAY3D_DESCRIPTOR good = { 8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, d, told;
	CUDA_ARRAY_DESCRIPTOR flat = { 4, 0, CU_AD_FORMAT_HALF, 2 };
	CUDA_TEXTURE_DESC how = { .filterMode = CU_TR_FILTER_MODE_LINEAR }, how_told;
	CUDA_RESOURCE_DESC what, what_told;
	CUtexObject t;
	CUsurfObject s;
	CUarray array;
	CUdeviceptr memory;
	size_t most;

	begin();
#define MAKE(code, field, value)                                   \
	do {                                                       \
		d = good;                                          \
		d.field = (value);                                 \
		EXPECT_ERROR(code, cuArray3DCreate(&array, &d));   \
	} while (0)
	MAKE(CUDA_ERROR_INVALID_VALUE, Width, 0);
	MAKE(CUDA_ERROR_INVALID_VALUE, Width, 131073);
	MAKE(CUDA_ERROR_INVALID_VALUE, Height, SIZE_MAX);
	MAKE(CUDA_ERROR_INVALID_VALUE, Depth, 16385);
	MAKE(CUDA_ERROR_INVALID_VALUE, NumChannels, 3);
	MAKE(CUDA_ERROR_INVALID_VALUE, NumChannels, 0);
	MAKE(CUDA_ERROR_INVALID_VALUE, Format, 0);
	MAKE(CUDA_ERROR_INVALID_VALUE, Flags, 1u << 30);
	MAKE(CUDA_ERROR_INVALID_VALUE, Flags, CUDA_ARRAY3D_LAYERED); /* without layers */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(NULL, &good));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&array, NULL));
	OK(cuArrayCreate(&array, &flat));
	OK(cuArray3DGetDescriptor(&told, array));
	EXPECT(told.Width == 4 && !told.Height && !told.Depth && told.Format == CU_AD_FORMAT_HALF && told.NumChannels == 2);
	OK(cuArrayDestroy(array));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor(&told, array));
	OK(cuArray3DCreate(&array, &good));
	what = of_array(array);
	OK(cuTexObjectCreate(&t, &what, &how, NULL));
	EXPECT(!(t >> 63));
	OK(cuTexObjectGetResourceDesc(&what_told, t));
	OK(cuTexObjectGetTextureDesc(&how_told, t));
	EXPECT(what_told.res.array.hArray == array && how_told.filterMode == CU_TR_FILTER_MODE_LINEAR);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(t));
	OK(cuTexObjectDestroy(t));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(t));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&s, &what)); /* it was not made for that */
	how.addressMode[1] = 4;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	how.addressMode[1] = 0;
	how.maxAnisotropy = 17;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	how.maxAnisotropy = 0;
	what.res.array.hArray = (CUarray)&what;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	/* lines of memory */
	OK(cuMemAlloc(&memory, 4096));
	what = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_LINEAR };
	what.res.linear.devPtr = memory;
	what.res.linear.format = CU_AD_FORMAT_FLOAT;
	what.res.linear.numChannels = 1;
	what.res.linear.sizeInBytes = 4096;
	OK(cuTexObjectCreate(&t, &what, &how, NULL));
	OK(cuTexObjectDestroy(t));
	what.res.linear.sizeInBytes = 1 << 22; /* more than there is */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	what.res.linear.sizeInBytes = SIZE_MAX;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	what.res.linear.sizeInBytes = 64;
	what.res.linear.devPtr = memory + 4; /* not aligned */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &what, &how, NULL));
	OK(cuDeviceGetTexture1DLinearMaxWidth(&most, CU_AD_FORMAT_FLOAT, 4, 0));
	EXPECT(most == 1 << 28);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetTexture1DLinearMaxWidth(&most, CU_AD_FORMAT_FLOAT, 3, 0));
}

/* Levels are arrays that nobody can destroy by themselves. */
static void levels(void)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { 8, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, told;
	CUmipmappedArray whole;
	CUarray first, again, level;
	float value = 3, back = 0;

	begin();
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(&whole, &made, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(&whole, &made, 5));
	OK(cuMipmappedArrayCreate(&whole, &made, 4));
	OK(cuMipmappedArrayGetLevel(&first, whole, 3));
	OK(cuMipmappedArrayGetLevel(&again, whole, 3));
	EXPECT(first == again);
	OK(cuArray3DGetDescriptor(&told, first));
	EXPECT(told.Width == 1 && told.Height == 1);
	OK(cuMemcpyHtoA(first, 0, &value, 4));
	OK(cuMemcpyAtoH(&back, first, 0, 4));
	EXPECT(back == 3);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, whole, 4));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(first));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy((CUarray)whole));
	OK(cuMipmappedArrayDestroy(whole));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH(&back, first, 0, 4));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, whole, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(whole));
}

/* What is known, and not done: nothing is made. */
static void not_done(void)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { 8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP };
	CUDA_TEXTURE_DESC how = { .flags = CU_TRSF_SRGB };
	CUDA_RESOURCE_VIEW_DESC view = { .format = CU_RES_VIEW_FORMAT_FLOAT_1X32 };
	CUDA_RESOURCE_DESC what;
	CUarray array;
	CUtexObject t;

	begin();
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate(&array, &made));
	made.Flags = CUDA_ARRAY3D_SPARSE;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate(&array, &made));
	made.Flags = 0;
	made.Format = CU_AD_FORMAT_BC1_UNORM;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate(&array, &made));
	array = new_array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	what = of_array(array);
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&t, &what, &how, NULL));
	how.flags = 0;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&t, &what, &how, &view));
	OK(cuTexObjectCreate(&t, &what, &how, NULL));
}

/* Memory comes back: of arrays, of levels, and of what a context leaves. */
static void memory(void)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, 0 };
	size_t before, with, after, total;
	CUmipmappedArray whole;
	CUcontext second;
	CUarray array;

	begin();
	OK(cuMemGetInfo(&before, &total));
	array = new_array(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, 0);
	OK(cuMemGetInfo(&with, &total));
	EXPECT(before - with >= 16 << 20);
	OK(cuArrayDestroy(array));
	OK(cuMipmappedArrayCreate(&whole, &made, 11));
	OK(cuMemGetInfo(&with, &total));
	EXPECT(before - with >= 20 << 20); /* small levels lie where there is room */
	OK(cuMipmappedArrayDestroy(whole));
	OK(cuMemGetInfo(&after, &total));
	EXPECT(after == before);
	OK(cuCtxCreate(&second, NULL, 0, 0));
	array = new_array(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, 0);
	OK(cuMipmappedArrayCreate(&whole, &made, 11));
	OK(cuCtxDestroy(second));
	OK(cuCtxSetCurrent(context));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
	OK(cuMemGetInfo(&after, &total));
	EXPECT(after == before);
	made.Depth = 16384, made.Width = made.Height = 16384;
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate(&array, &made));
	OK(cuMemGetInfo(&after, &total));
	EXPECT(after == before);
}

/* A kernel with an instruction that is not done is refused by itself. */
static void cubemaps(void)
{
	CUfunction cube;
	CUmodule module;
	CUtexObject t = 0;
	void *parameters[] = { &t };
	CUresult r;

	begin();
	OK(cuModuleLoadData(&module, kernels));
	cube = find_kernel(module, "cube");
	r = cuLaunchKernel(cube, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	EXPECT_ERROR(CUDA_ERROR_INVALID_PTX, r == CUDA_SUCCESS ? cuCtxSynchronize() : r);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "weights", weights }, { "outside", outside }, { "queries", queries },
		{ "parts", parts }, { "lines", lines },
		{ "arguments", arguments }, { "levels", levels }, { "not_done", not_done }, { "memory", memory },
		{ "cubemaps", cubemaps },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
