/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: attributes, dimensions and the ways to pass parameters. */
#include "cuda_rules.h"

static CUresult read_attribute(const CUlaunchAttribute *a, bool *cooperative)
{
	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* full serialisation is allowed */
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		*cooperative = a->value.cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		if (a->value.clusterDim.x == 1 && a->value.clusterDim.y == 1 && a->value.clusterDim.z == 1)
			return CUDA_SUCCESS;
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuda_read_launch_attributes(const CUlaunchConfig *config, bool *cooperative)
{
	CUresult r = config && (!config->numAttrs || config->attrs) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	*cooperative = false;
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < config->numAttrs; i++)
		r = read_attribute(&config->attrs[i], cooperative);
	return r;
}

CUresult cuda_check_launch(const CUlaunchConfig *config, const struct cuda_launch_limits *limits)
{
	const unsigned int grid[] = { config->gridDimX, config->gridDimY, config->gridDimZ };
	const unsigned int block[] = { config->blockDimX, config->blockDimY, config->blockDimZ };
	uint64_t threads = 1;

	for (int i = 0; i < 3; i++) {
		if (!grid[i] || !block[i] || grid[i] > limits->grid[i] || block[i] > limits->block[i])
			return CUDA_ERROR_INVALID_VALUE;
		threads *= block[i];
	}
	if (threads > limits->threads || config->sharedMemBytes > limits->shared)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* A buffer and its length, in any order, ended by CU_LAUNCH_PARAM_END. It may be padded at its end, never short. */
static CUresult read_extra(void **extra, size_t bytes, const void **buffer)
{
	const size_t *length = NULL;

	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			length = extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return !bytes || (*buffer && length && *length >= bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_read_parameters(void **params, void **extra, size_t bytes, const void **buffer)
{
	*buffer = NULL;
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return read_extra(extra, bytes, buffer);
	return params || !bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
