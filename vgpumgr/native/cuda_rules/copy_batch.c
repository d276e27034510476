/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies between pointers: a copy each, in any order. */
#include "cuda_rules.h"

static bool known(CUmemcpySrcAccessOrder order, unsigned int flags)
{
	return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
	       !(flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

CUresult cuda_check_parts(const size_t *first, size_t kinds, size_t count)
{
	if (!first || !kinds || kinds > count || first[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < kinds; i++)
		if (first[i] >= count || (i && first[i] <= first[i - 1]))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check(const struct cuda_copies *c)
{
	if (!c->to || !c->from || !c->sizes || !c->attributes)
		return CUDA_ERROR_INVALID_VALUE;
	if (cuda_check_parts(c->first, c->kinds, c->count) != CUDA_SUCCESS) /* before more attributes are read than there are */
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < c->kinds; i++)
		if (!known(c->attributes[i].srcAccessOrder, c->attributes[i].flags))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static bool waits(CUmemcpySrcAccessOrder order, uint64_t from, const struct cuda_copy_calls *calls)
{
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && (!calls->reads_later || calls->reads_later(from));
}

/* An array is the device's: no caller reads it at the call. */
static bool box_waits(CUmemcpySrcAccessOrder order, const CUDA_MEMCPY3D *copy, const struct cuda_copy_calls *calls)
{
	if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY)
		return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	return waits(order, copy->srcDevice, calls);
}

static bool must_wait(const struct cuda_copies *c, const struct cuda_copy_calls *calls)
{
	for (size_t i = 0, k = 0; i < c->count; i++) {
		k += k + 1 < c->kinds && c->first[k + 1] == i;
		if (waits(c->attributes[k].srcAccessOrder, c->from[i], calls))
			return true;
	}
	return false;
}

static CUresult wait_for(const struct cuda_copy_calls *calls, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = calls->is_capturing(stream, &status);

	return r == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE ? calls->wait(stream) : r;
}

CUresult cuda_copy_each(const struct cuda_copies *c, const struct cuda_copy_calls *calls, CUstream stream, size_t *failed)
{
	CUresult r = check(c);

	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; r == CUDA_SUCCESS && i < c->count; i++) {
		r = calls->copy(c->to[i], c->from[i], c->sizes[i], stream);
		if (r != CUDA_SUCCESS && failed)
			*failed = i;
	}
	return r == CUDA_SUCCESS && must_wait(c, calls) ? wait_for(calls, stream) : r;
}

/* An end that is a pointer: elements of `element` bytes, rows and layers without gaps where nothing is said. */
static CUresult read_pointer(const CUmemcpy3DOperand *o, const CUextent3D *extent, size_t element, size_t *pitch, size_t *height)
{
	size_t row = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width;

	*height = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height;
	if (!o->op.ptr.ptr || row < extent->width || *height < extent->height || __builtin_mul_overflow(row, element, pitch))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Bytes of an element: of an array's, both arrays' alike; of pointers 1. */
static CUresult read_element(const CUmemcpy3DOperand *o, const struct cuda_copy_calls *calls, size_t *element)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	size_t bytes;
	CUresult r;

	if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_SUCCESS;
	if (o->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	r = calls->describe(&made, o->op.array.array);
	bytes = r == CUDA_SUCCESS ? cuda_element_bytes(made.Format, made.NumChannels) : 0;
	if (r == CUDA_SUCCESS && *element && bytes != *element)
		r = CUDA_ERROR_INVALID_VALUE;
	*element = bytes;
	return r;
}

static CUresult read_one(const CUDA_MEMCPY3D_BATCH_OP *op, const struct cuda_copy_calls *calls, CUDA_MEMCPY3D *copy)
{
	const CUextent3D *e = &op->extent;
	const CUmemcpy3DOperand *from = &op->src, *to = &op->dst;
	size_t element = 0, from_x = 0, to_x = 0;
	CUresult r;

	*copy = (CUDA_MEMCPY3D){ .Height = e->height, .Depth = e->depth };
	if (!e->width || !e->height || !e->depth || !known(op->srcAccessOrder, op->flags))
		return CUDA_ERROR_INVALID_VALUE;
	r = read_element(from, calls, &element);
	if (r == CUDA_SUCCESS)
		r = read_element(to, calls, &element);
	element = element ? element : 1;
	if (r == CUDA_SUCCESS && __builtin_mul_overflow(e->width, element, &copy->WidthInBytes))
		r = CUDA_ERROR_INVALID_VALUE;
	copy->srcMemoryType = copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	if (r == CUDA_SUCCESS && from->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
		copy->srcDevice = from->op.ptr.ptr;
		r = read_pointer(from, e, element, &copy->srcPitch, &copy->srcHeight);
	} else if (r == CUDA_SUCCESS) {
		copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		copy->srcArray = from->op.array.array;
		copy->srcY = from->op.array.offset.y;
		copy->srcZ = from->op.array.offset.z;
		from_x = from->op.array.offset.x;
	}
	if (r == CUDA_SUCCESS && to->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
		copy->dstDevice = to->op.ptr.ptr;
		r = read_pointer(to, e, element, &copy->dstPitch, &copy->dstHeight);
	} else if (r == CUDA_SUCCESS) {
		copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		copy->dstArray = to->op.array.array;
		copy->dstY = to->op.array.offset.y;
		copy->dstZ = to->op.array.offset.z;
		to_x = to->op.array.offset.x;
	}
	if (r == CUDA_SUCCESS && (__builtin_mul_overflow(from_x, element, &copy->srcXInBytes) ||
				  __builtin_mul_overflow(to_x, element, &copy->dstXInBytes)))
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

CUresult cuda_copy_each_3d(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, unsigned long long flags,
			   const struct cuda_copy_calls *calls, CUstream stream, size_t *failed)
{
	CUresult r = list && count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	bool later = false;
	CUDA_MEMCPY3D copy;

	if (failed)
		*failed = SIZE_MAX;
	for (int pass = 0; pass < 2; pass++) { /* nothing is copied where a description is wrong */
		for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
			r = read_one(&list[i], calls, &copy);
			if (r == CUDA_SUCCESS && pass)
				r = calls->copy_3d(&copy, stream);
			later |= r == CUDA_SUCCESS && box_waits(list[i].srcAccessOrder, &copy, calls);
			if (r != CUDA_SUCCESS && failed)
				*failed = i;
		}
	}
	return r == CUDA_SUCCESS && later ? wait_for(calls, stream) : r;
}
