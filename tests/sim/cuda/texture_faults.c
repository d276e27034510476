/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel comes to that names a texture or surface, or a place in one, that is not there. */
#include "texture_kernels.h"

#include <sys/wait.h>
#include <unistd.h>

/* A fault costs the process its device: each has one of its own, from before the driver is used. */
static void in_child(void (*work)(void))
{
	pid_t child = fork();
	int status;

	if (!child) {
		work();
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child && !status);
}

static void expect_fault(CUresult r)
{
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, r);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static CUresult sample(CUtexObject t)
{
	float x = 0.5f, out;

	return run_sample(t, &x, &out, 1);
}

static CUtexObject forged_texture;

static void sample_forged(void)
{
	begin();
	expect_fault(sample(forged_texture));
}

/* A number is not given again at once. */
static void sample_destroyed(void)
{
	CUDA_RESOURCE_DESC what;
	CUtexObject t;

	begin();
	t = new_texture(new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST), CU_TR_ADDRESS_MODE_CLAMP,
			CU_TR_FILTER_MODE_POINT, 0);
	OK(sample(t));
	OK(cuTexObjectDestroy(t));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&what, t));
	expect_fault(sample(t));
}

static void sample_surface(void)
{
	begin();
	expect_fault(sample(new_surface(new_array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST))));
}

static CUtexObject new_plane(void)
{
	return new_texture(new_array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
}

/* Two dimensions are not one. */
static void sample_plane(void)
{
	begin();
	expect_fault(sample(new_plane()));
}

static void sample_of_last_context(void)
{
	CUtexObject t;

	begin();
	t = new_plane();
	OK(cuCtxDestroy(context));
	begin();
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(t));
	expect_fault(sample(t));
}

static void forged(void)
{
	static const CUtexObject wrong[] = { 0, 1ull << 40 | 77, ~0ull };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		forged_texture = wrong[i];
		in_child(sample_forged);
	}
	in_child(sample_destroyed);
	in_child(sample_surface);
	in_child(sample_plane);
	in_child(sample_of_last_context);
}

static void array_gone(void)
{
	CUarray array;
	CUtexObject t;

	begin();
	array = new_array(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	OK(cuArrayDestroy(array));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
	array = new_array(100000, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0);
	t = new_texture(array, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
	OK(cuArrayDestroy(array));
	expect_fault(sample(t));
}

static CUsurfObject new_table(CUarray *array)
{
	*array = new_array(4, 3, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST);
	return new_surface(*array);
}

static int outside[2];

static void store_outside(void)
{
	CUarray array;

	begin();
	expect_fault(run_store(new_table(&array), outside[0], outside[1], 1));
}

static void stores(void)
{
	static const int wrong[][2] = { { 4 * 4, 0 } /* not in the next row */, { -4, 0 }, { 0, 3 } };
	unsigned values[12];
	CUarray array;
	CUsurfObject s;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memcpy(outside, wrong[i], sizeof(outside));
		in_child(store_outside);
	}
	begin();
	s = new_table(&array);
	OK(run_store(s, 3 * 4, 2, 99));
	OK(cuMemcpyAtoH(values, array, 0, 16));
	CUDA_MEMCPY2D rows = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = values, .dstPitch = 16, .WidthInBytes = 16, .Height = 3 };
	OK(cuMemcpy2D(&rows));
	EXPECT(values[11] == 99);
	EXPECT_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, run_store(s, 2, 0, 1));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "forged", forged }, { "array_gone", array_gone }, { "stores", stores }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
