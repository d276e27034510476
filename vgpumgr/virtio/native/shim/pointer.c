/* SPDX-License-Identifier: Apache-2.0 */
/* What a pointer is, from what this process has allocated. */
#include "shim.h"

struct pointer {
	bool device, host, reserved;
	struct shim_range range, space; /* the space: reserved addresses around, mapped or not */
	int ordinal;
};

static void look(CUdeviceptr ptr, struct pointer *p)
{
	CUdevice ordinal = 0;

	p->device = shim_range_find(SHIM_RANGE_DEVICE, ptr, &p->range);
	p->host = p->device ? p->range.host : shim_range_find(SHIM_RANGE_HOST, ptr, &p->range);
	p->reserved = shim_range_find(SHIM_RANGE_RESERVED, ptr, &p->space);
	if (p->device && p->range.physical)
		ordinal = p->range.device;
	else if ((p->device || p->host) && cuCtxGetDevice_v2(&ordinal, (CUcontext)p->range.context) != CUDA_SUCCESS)
		ordinal = 0;
	p->ordinal = ordinal;
}

static CUresult answer(void *data, CUpointer_attribute attribute, CUdeviceptr ptr, const struct pointer *p)
{
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = (CUcontext)p->range.context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = p->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = p->device ? ptr : 0;
		return p->device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = p->host || p->range.managed ? (void *)ptr : NULL;
		return *(void **)data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = p->range.id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = p->range.managed && !p->host;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)data = p->device && shim_is_exportable(&p->range);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = 1; /* the strictest answer, and true of this channel */
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = p->ordinal;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = p->range.start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = p->range.bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = p->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* Documented of these: they are of the reserved addresses, and of those where nothing is mapped, too. */
static CUresult answer_reserved(void *data, CUpointer_attribute attribute, const struct pointer *p)
{
	if (!p->reserved)
		return CUDA_ERROR_NOT_FOUND;
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = p->space.start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = p->space.bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = p->device;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_FOUND;
	}
}

SHIM_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct pointer p;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && !data)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	look(ptr, &p);
	if (answer_reserved(data, attribute, &p) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	return p.device || p.host ? answer(data, attribute, ptr, &p) : CUDA_ERROR_INVALID_VALUE;
}

/* The one that can be set: copies of this channel are synchronous where that asks them to be, so there is nothing to do. */
SHIM_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !shim_range_find(SHIM_RANGE_DEVICE, ptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Unlike the single form, an unknown pointer is no error here: its attributes are zero, the ordinal is -2. */
SHIM_API CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
					 CUdeviceptr ptr)
{
	struct pointer p;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_pointer_attributes(numAttributes, attributes, data);
	if (r != CUDA_SUCCESS)
		return r;
	look(ptr, &p);
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (answer_reserved(data[i], attributes[i], &p) == CUDA_SUCCESS)
			continue;
		if (!(p.device || p.host) || answer(data[i], attributes[i], ptr, &p) == CUDA_ERROR_NOT_SUPPORTED)
			cuda_put_unknown_pointer(attributes[i], data[i]);
	}
	return CUDA_SUCCESS;
}
