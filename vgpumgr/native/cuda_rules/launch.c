/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: attributes, dimensions and the ways to pass parameters. */
#include "cuda_rules.h"

#include <string.h>

static CUresult read_clusters(const CUlaunchAttribute *a, unsigned int cluster[3])
{
	cluster[0] = a->value.clusterDim.x;
	cluster[1] = a->value.clusterDim.y;
	cluster[2] = a->value.clusterDim.z;
	return cluster[0] && cluster[1] && cluster[2] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult read_attribute(const CUlaunchAttribute *a, struct cuda_launch_options *out)
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
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: /* a driver may take the required one */
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		out->cooperative = a->value.cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return read_clusters(a, out->cluster);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuda_read_launch_attributes(const CUlaunchConfig *config, struct cuda_launch_options *out)
{
	CUresult r = config && (!config->numAttrs || config->attrs) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	*out = (struct cuda_launch_options){ 0 };
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < config->numAttrs; i++)
		r = read_attribute(&config->attrs[i], out);
	return r;
}

CUresult cuda_check_clusters(const CUlaunchConfig *config, const struct cuda_cluster_limits *limits,
			     struct cuda_launch_options *options)
{
	const unsigned int grid[] = { config->gridDimX, config->gridDimY, config->gridDimZ };
	unsigned int *cluster = options->cluster;
	bool required = limits->required[0] || limits->required[1] || limits->required[2];
	uint64_t blocks = 1;

	if (!cluster[0])
		memcpy(cluster, limits->required, sizeof(limits->required));
	else if (required && memcmp(cluster, limits->required, sizeof(limits->required)))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (!cluster[0] && !required)
		return limits->must_be_set ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
	for (int i = 0; i < 3; i++) {
		if (!cluster[i] || cluster[i] > UINT16_MAX)
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		blocks *= cluster[i];
	}
	if (!limits->most && blocks > 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (limits->most && blocks > limits->most)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	for (int i = 0; i < 3; i++)
		if (grid[i] % cluster[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return CUDA_SUCCESS;
}

CUresult cuda_check_launch(const CUlaunchConfig *c, const struct cuda_launch_limits *limits)
{
	uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;

	/* each launch comes through here; 0 less 1 is more than any limit */
	if (c->gridDimX - 1 >= limits->grid[0] || c->gridDimY - 1 >= limits->grid[1] || c->gridDimZ - 1 >= limits->grid[2] ||
	    c->blockDimX - 1 >= limits->block[0] || c->blockDimY - 1 >= limits->block[1] || c->blockDimZ - 1 >= limits->block[2])
		return CUDA_ERROR_INVALID_VALUE;
	return threads > limits->threads || c->sharedMemBytes > limits->shared ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
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
