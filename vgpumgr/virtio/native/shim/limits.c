/* SPDX-License-Identifier: Apache-2.0 */
/* What a function's code and its device allow a launch: worked out once, since each launch asks. */
#include "shim.h"

void shim_set_launch_limits(struct shim_object *f, CUdevice device)
{
	struct cuda_launch_limits *limits = &f->function.limits;
	unsigned int threads = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);

	for (int i = 0; i < 3; i++) {
		limits->grid[i] = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
		limits->block[i] = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
	}
	limits->threads = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	if (limits->threads > threads)
		limits->threads = threads;
}
