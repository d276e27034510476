/* SPDX-License-Identifier: Apache-2.0 */
/* Flags, options and addresses. */
#include <stdio.h>
#include <string.h>

#include "cuda_rules.h"

static CUresult valid_if(bool valid)
{
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_flags(unsigned int flags, unsigned int known)
{
	return valid_if(!(flags & ~known));
}

/* At most one way to wait. */
CUresult cuda_check_context_flags(unsigned int flags)
{
	unsigned int schedule = flags & CU_CTX_SCHED_MASK;

	return valid_if(!(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) && !(schedule & (schedule - 1)));
}

CUresult cuda_check_exec_affinity(const CUexecAffinityParam *params, int count)
{
	if (count < 0 || (count && !params))
		return CUDA_ERROR_INVALID_VALUE;
	return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_SUCCESS;
}

CUresult cuda_check_context_params(const CUctxCreateParams *params)
{
	if (!params)
		return CUDA_SUCCESS;
	return params->cigParams ? CUDA_ERROR_NOT_SUPPORTED :
				   cuda_check_exec_affinity(params->execAffinityParams, params->numExecAffinityParams);
}

CUresult cuda_check_exec_affinity_type(CUexecAffinityType type)
{
	return valid_if((int)type >= 0 && type < CU_EXEC_AFFINITY_TYPE_MAX);
}

CUresult cuda_check_peer_attribute(CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
	if ((int)attribute < 1 || attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	return device == peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuda_check_atomic_operations(const unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count)
{
	if (!capabilities || !operations || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if ((unsigned int)operations[i] >= CU_ATOMIC_OPERATION_MAX)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuda_check_host_task(unsigned int mode)
{
	return mode <= CU_HOST_TASK_SPINWAIT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_check_peer_access(CUcontext peer, unsigned int flags)
{
	return peer ? valid_if(!flags) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuda_check_stream_flags(unsigned int flags)
{
	return check_flags(flags, CU_STREAM_NON_BLOCKING);
}

/* Events of several processes are not supported; they cannot keep times in any case. */
CUresult cuda_check_event_flags(unsigned int flags)
{
	if (flags & ~(unsigned int)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_VALUE;
	return flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuda_check_event_record_flags(unsigned int flags)
{
	return check_flags(flags, CU_EVENT_RECORD_EXTERNAL);
}

CUresult cuda_check_host_alloc(void *const *out, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				   CU_MEMHOSTALLOC_WRITECOMBINED;

	return out && bytes ? check_flags(flags, known) : CUDA_ERROR_INVALID_VALUE;
}

/* Memory of other devices is not supported. */
CUresult cuda_check_host_register(const void *memory, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				   CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

	if (!memory || !bytes || flags & ~known || (uint64_t)memory + bytes < (uint64_t)memory)
		return CUDA_ERROR_INVALID_VALUE;
	return flags & CU_MEMHOSTREGISTER_IOMEMORY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuda_check_alloc_managed(const CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	return valid_if(out && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
}

CUresult cuda_check_alloc_pitch(const CUdeviceptr *out, const size_t *pitch, size_t width, size_t height,
				unsigned int element)
{
	return valid_if(out && pitch && width && height && (element == 4 || element == 8 || element == 16));
}

CUresult cuda_check_jit_options(unsigned int count, const CUjit_option *options, void *const *values)
{
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if ((int)options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuda_check_pointer_attributes(unsigned int count, const CUpointer_attribute *attributes, void *const *data)
{
	if (!count || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if (!data[i])
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

void cuda_put_unknown_pointer(CUpointer_attribute attribute, void *data)
{
	const int no_device = -2; /* as NVIDIA's driver answers: neither a device nor the CPU */

	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		memcpy(data, &no_device, sizeof(no_device));
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		memset(data, 0, sizeof(uint64_t));
		break;
	default:
		memset(data, 0, sizeof(unsigned int));
		break;
	}
}

CUresult cuda_parse_pci_address(const char *text, unsigned int part[4])
{
	int end = 0;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	part[0] = part[3] = 0;
	if (sscanf(text, "%x:%x:%x.%x%n", &part[0], &part[1], &part[2], &part[3], &end) == 4 && !text[end])
		return CUDA_SUCCESS;
	part[3] = 0;
	if (sscanf(text, "%x:%x:%x%n", &part[0], &part[1], &part[2], &end) == 3 && !text[end])
		return CUDA_SUCCESS;
	part[0] = 0;
	return valid_if(sscanf(text, "%x:%x.%x%n", &part[1], &part[2], &part[3], &end) == 3 && !text[end]);
}
