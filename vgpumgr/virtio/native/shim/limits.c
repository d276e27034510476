/* SPDX-License-Identifier: Apache-2.0 */
/* What a function's attributes and its device allow a launch: worked out once, since each launch asks. */
#include "shim.h"

void shim_set_launch_limits(struct shim_object *f, CUdevice device)
{
	struct cuda_launch_limits *limits = &f->function.limits;
	unsigned int threads = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);

	f->function.wants_clusters = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
	for (int i = 0; i < 3; i++) {
		limits->grid[i] = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
		limits->block[i] = shim_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
		if (shim_function_attribute(f, (CUfunction_attribute)(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i)))
			f->function.wants_clusters = true;
	}
	limits->threads = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	if (limits->threads > threads)
		limits->threads = threads;
	limits->shared = shim_function_attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}
