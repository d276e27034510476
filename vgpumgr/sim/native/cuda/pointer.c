/* SPDX-License-Identifier: Apache-2.0 */
/* What an address is: cuPointerGetAttribute(s). */
#include <string.h>

#include "ipc.h"

#define PUT(type, value)                            \
	do {                                        \
		type v_ = (value);                  \
		memcpy(data, &v_, sizeof(v_));      \
	} while (0)

/* Writes the value for an address that is ours. */
static CUresult put(void *data, CUpointer_attribute attribute, CUdeviceptr addr, const struct allocation *a)
{
	bool device = !is_host_memory(a);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		PUT(CUcontext, a->pool ? NULL : (CUcontext)a->ctx);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		PUT(unsigned int, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		PUT(CUdeviceptr, addr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		PUT(void *, device && !a->managed ? NULL : (void *)addr);
		return device && !a->managed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		PUT(unsigned int, a->sync_memops);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		PUT(unsigned long long, a->id);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		PUT(unsigned int, a->managed);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		PUT(unsigned int, vm_is_lendable(a));
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		PUT(unsigned int, 0);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		PUT(int, allocation_device(a)->ordinal);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		PUT(CUdeviceptr, a->addr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		PUT(size_t, a->size);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		PUT(unsigned int, 1);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		PUT(unsigned int, a->kind == ALLOCATION_MAPPED && !a->access ?
					  CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE :
					  CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		PUT(CUmemoryPool, (CUmemoryPool)a->pool);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* What is asked of reserved addresses, mapped or not. */
static CUresult put_space(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
	struct allocation a;
	uint64_t start, bytes;

	if (attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE &&
	    attribute != CU_POINTER_ATTRIBUTE_MAPPED)
		return CUDA_ERROR_NOT_FOUND;
	if (!virtual_space(addr, &start, &bytes))
		return CUDA_ERROR_NOT_FOUND;
	if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		PUT(CUdeviceptr, start);
	else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		PUT(size_t, bytes);
	else
		PUT(unsigned int, vm_find(addr, &a));
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
	struct allocation a;

	CONTEXT_ENTER(ctx);
	if (!data || !addr)
		return CUDA_ERROR_INVALID_VALUE;
	if (put_space(data, attribute, addr) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (!vm_find(addr, &a))
		return CUDA_ERROR_INVALID_VALUE;
	return put(data, attribute, addr, &a);
}

/* Unlike the single form, this one succeeds for any address. */
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr addr)
{
	struct allocation a;
	bool known;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_pointer_attributes(n, attributes, data);
	if (r != CUDA_SUCCESS)
		return r;
	known = vm_find(addr, &a);
	for (unsigned i = 0; i < n; i++) {
		if (put_space(data[i], attributes[i], addr) == CUDA_SUCCESS)
			continue;
		if (!known)
			cuda_put_unknown_pointer(attributes[i], data[i]);
		else if (put(data[i], attributes[i], addr, &a) == CUDA_ERROR_NOT_SUPPORTED)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

static void set_sync(struct allocation *a, const void *value)
{
	memcpy(&a->sync_memops, value, sizeof(a->sync_memops));
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr addr)
{
	bool sync;

	CONTEXT_ENTER(ctx);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	sync = *(const unsigned int *)value != 0;
	return vm_update(addr, set_sync, &sync) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
