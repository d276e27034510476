/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread sets of a function, while others set and launch it. */
#include "check.h"

#include <pthread.h>

enum { LITTLE = 2048, MUCH = 60000, BLOCK = 256, ROUNDS = 300 };

static struct {
	CUcontext context;
	CUfunction function;
	CUdeviceptr in, out;
	bool done;
} shared;

/* Orders nothing: a sanitizer shall see what the library does. */
static bool is_done(void)
{
	return __atomic_load_n(&shared.done, __ATOMIC_RELAXED);
}

static CUresult launch_with(unsigned int bytes)
{
	void *parameters[] = { &shared.in, &shared.out };

	return cuLaunchKernel(shared.function, 1, 1, 1, BLOCK, 1, 1, bytes, NULL, parameters, NULL);
}

static void *set_carveout(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(shared.context));
	for (int i = 0; !is_done(); i++)
		OK(cuFuncSetAttribute(shared.function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, i % 100));
	return NULL;
}

static void *launch_little(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(shared.context));
	for (int i = 0; !is_done(); i++) {
		OK(launch_with(LITTLE));
		if (i % 16 == 0)
			OK(cuCtxSynchronize()); /* the others are not to wait for more than these */
	}
	return NULL;
}

/* What a thread has set holds at its next launch. */
static void set_beside_launches(void)
{
	void *(*const work[])(void *) = { set_carveout, launch_little };
	pthread_t threads[2];

	shared.context = new_context();
	shared.function = find_kernel(load_kernels(), "reduce");
	OK(cuMemAlloc(&shared.in, BLOCK * sizeof(float)));
	OK(cuMemAlloc(&shared.out, sizeof(float)));
	for (int i = 0; i < 2; i++)
		EXPECT(!pthread_create(&threads[i], NULL, work[i], NULL));
	for (int i = 0; i < ROUNDS; i++) {
		OK(cuFuncSetAttribute(shared.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, LITTLE));
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, launch_with(MUCH));
		OK(cuFuncSetAttribute(shared.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, MUCH));
		OK(launch_with(MUCH));
	}
	__atomic_store_n(&shared.done, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { { "set_beside_launches", set_beside_launches }, { NULL, NULL } };

	return run_case(cases, argc, argv);
}
