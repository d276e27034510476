/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of tensors, on a device of 9.0; others have none. */
#include "check.h"

static const cuuint64_t SIZES[5] = { 64, 32, 16, 8, 4 }, STRIDES[4] = { 128, 4096, 65536, 1 << 20 };
static const cuuint32_t BOX[5] = { 64, 8, 1, 1, 1 }, STEPS[5] = { 1, 1, 1, 1, 1 };
static const int LOWER[3] = { -1, -1, 0 }, UPPER[3] = { 1, 1, 0 };

struct tiled {
	CUtensorMapDataType type;
	cuuint32_t rank;
	uint64_t address;
	cuuint64_t sizes[5], strides[4];
	cuuint32_t box[5], steps[5];
	CUtensorMapInterleave interleave;
	CUtensorMapSwizzle swizzle;
	CUtensorMapL2promotion promotion;
	CUtensorMapFloatOOBfill fill;
};

static CUresult encode(CUtensorMap *map, const struct tiled *t)
{
	return cuTensorMapEncodeTiled(map, t->type, t->rank, (void *)(uintptr_t)t->address, t->sizes, t->strides, t->box, t->steps,
				      t->interleave, t->swizzle, t->promotion, t->fill);
}

static struct tiled usual(CUdeviceptr address)
{
	struct tiled t = { .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16, .rank = 3, .address = address,
			   .swizzle = CU_TENSOR_MAP_SWIZZLE_128B };

	memcpy(t.sizes, SIZES, sizeof(SIZES));
	memcpy(t.strides, STRIDES, sizeof(STRIDES));
	memcpy(t.box, BOX, sizeof(BOX));
	memcpy(t.steps, STEPS, sizeof(STEPS));
	return t;
}

static CUresult encode_im2col(CUtensorMap *map, CUdeviceptr address, const int *lower)
{
	return cuTensorMapEncodeIm2col(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)(uintptr_t)address, SIZES, STRIDES, lower, UPPER,
				       64, 128, STEPS, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
				       CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static bool same(const CUtensorMap *a, const CUtensorMap *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void wrong(CUdeviceptr address)
{
	struct tiled t;
	CUtensorMap map;

#define WRONG(change)                                                          \
	do {                                                                   \
		t = usual(address);                                            \
		change;                                                        \
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, encode(&map, &t));      \
	} while (0)
	WRONG(t.rank = 0);
	WRONG(t.rank = 6);
	WRONG(t.address += 8);
	WRONG(t.address = 0);
	WRONG(t.sizes[1] = 0);
	WRONG(t.strides[1] = 24);
	WRONG(t.strides[0] = 1ull << 40);
	WRONG(t.box[1] = 0);
	WRONG(t.box[1] = 257);
	WRONG(t.steps[2] = 9);
	WRONG(t.type = 99);
	WRONG(t.swizzle = 99);
	WRONG(t.type = CU_TENSOR_MAP_DATA_TYPE_INT32; t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, encode_im2col(&map, address, (const int[]){ -40000, 0, 0 }));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, encode_im2col(&map, address, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(NULL, (void *)(uintptr_t)address));
}

static void descriptors(void)
{
	CUtensorMap first, second, third;
	CUdeviceptr address;
	struct tiled t;
	int major;

	new_context();
	OK(cuMemAlloc(&address, 1 << 16));
	OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	t = usual(address);
	if (major < 9) {
		EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, encode(&first, &t));
		return;
	}
	OK(encode(&first, &t));
	OK(encode(&second, &t));
	EXPECT(same(&first, &second));
	t.box[1] = 16;
	OK(encode(&third, &t));
	EXPECT(!same(&first, &third));
	t = usual(address + 4096);
	OK(encode(&third, &t));
	EXPECT(!same(&first, &third));
	OK(cuTensorMapReplaceAddress(&third, (void *)(uintptr_t)address));
	EXPECT(same(&first, &third));
	for (t.rank = 1; t.rank <= 5; t.rank++)
		OK(encode(&second, &t));
	OK(encode_im2col(&second, address, LOWER));
	EXPECT(!same(&first, &second));
	OK(encode_im2col(&third, address, (const int[]){ -1, -2, 0 }));
	EXPECT(!same(&second, &third));
	wrong(address);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { { "descriptors", descriptors }, { .name = NULL } };

	return run_case(cases, argc, argv);
}
