/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays: what they are made of is known here, so questions and wrong calls do not leave the guest. */
#include "arrays.h"
#include "captures.h"

static CUresult begin(const void *out, CUresult read, uint64_t *context)
{
	CUresult r = shim_enter(context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r != CUDA_SUCCESS)
		return r;
	return out ? read : CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(CUarray *out, CUresult read, const struct cuda_array *made, const char *name, atomic_flag *told)
{
	struct vg_array_create_request in = { .width = made->made.Width, .height = made->made.Height, .depth = made->made.Depth,
					      .format = made->made.Format, .channels = made->made.NumChannels,
					      .flags = made->made.Flags };
	CUresult r = begin(out, read, &in.context);
	struct shim_object *o;

	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported(name, told);
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_array_new(SHIM_ARRAY, in.context, made, 0, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = shim_array_publish(vg_send_array_create(&in), SHIM_ARRAY, o, in.created);
	if (r == CUDA_SUCCESS)
		*out = (CUarray)in.created;
	return r;
}

SHIM_API CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct cuda_array made = { 0 };
	CUresult r = cuda_read_array_2d(pAllocateArray, &made);

	return create(pHandle, r, &made, "an array of this format", &told);
}

SHIM_API CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct cuda_array made = { 0 };
	CUresult r = cuda_read_array(pAllocateArray, &made);

	return create(pHandle, r, &made, "an array of this format, a cubemap or a sparse array", &told);
}

SHIM_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	struct cuda_array array;
	uint64_t context;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_array(hArray, &array);
	if (r == CUDA_SUCCESS && !pArrayDescriptor)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pArrayDescriptor = array.made;
	return r;
}

SHIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	CUresult r = pArrayDescriptor ? cuArray3DGetDescriptor_v2(&made, hArray) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){ .Width = made.Width, .Height = made.Height, .Format = made.Format,
							     .NumChannels = made.NumChannels };
	return r;
}

SHIM_API CUresult cuArrayDestroy(CUarray hArray)
{
	struct vg_array_destroy_request in = { .array = (uint64_t)hArray };
	uint64_t context, *levels;
	uint32_t count;
	CUresult r = begin(&in, CUDA_SUCCESS, &context);

	if (r == CUDA_SUCCESS && !shim_array_retire(SHIM_ARRAY, in.array, &levels, &count))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return r;
	r = vg_send_array_destroy(&in);
	shim_object_recycle(SHIM_ARRAY, in.array);
	return r;
}

/* ---- mipmapped arrays */

SHIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
					 unsigned int numMipmapLevels)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_mipmap_create_request in = { .levels = numMipmapLevels };
	struct cuda_array made = { 0 };
	struct shim_object *o;
	CUresult r = cuda_read_array(pMipmappedArrayDesc, &made);

	if (r == CUDA_SUCCESS)
		r = cuda_check_levels(&made, numMipmapLevels);
	r = begin(pHandle, r, &in.context);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("a mipmapped array of this format, or a sparse one", &told);
	if (r != CUDA_SUCCESS)
		return r;
	in.width = made.made.Width, in.height = made.made.Height, in.depth = made.made.Depth;
	in.format = made.made.Format, in.channels = made.made.NumChannels, in.flags = made.made.Flags;
	o = shim_array_new(SHIM_MIPMAP, in.context, &made, numMipmapLevels, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = shim_array_publish(vg_send_mipmap_create(&in), SHIM_MIPMAP, o, in.created);
	if (r == CUDA_SUCCESS)
		*pHandle = (CUmipmappedArray)in.created;
	return r;
}

/* Under the lock. */
static CUresult make_level(struct shim_object *whole, uint64_t id, uint32_t level)
{
	struct vg_mipmap_level_request in = { .context = whole->context, .mipmap = id, .level = level };
	struct cuda_array made;
	struct shim_object *o;
	CUresult r = cuda_read_level(whole->array.made, level, whole->array.levels_count, &made);

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_array_new(SHIM_ARRAY, whole->context, &made, 0, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->array.is_level = true;
	r = shim_array_publish(vg_send_mipmap_level(&in), SHIM_ARRAY, o, in.created);
	if (r == CUDA_SUCCESS)
		whole->array.levels[level] = in.created;
	return r;
}

SHIM_API CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
	struct shim_object *whole;
	uint64_t context;
	CUresult r = shim_enter(&context);

	if (r != CUDA_SUCCESS)
		return r;
	shim_arrays_lock();
	whole = shim_object_get(SHIM_MIPMAP, (uint64_t)hMipmappedArray);
	if (!whole)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (!pLevelArray || level >= whole->array.levels_count)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!whole->array.levels[level])
		r = make_level(whole, (uint64_t)hMipmappedArray, level);
	if (r == CUDA_SUCCESS)
		*pLevelArray = (CUarray)whole->array.levels[level];
	shim_arrays_unlock();
	return r;
}

SHIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct vg_mipmap_destroy_request in = { .mipmap = (uint64_t)hMipmappedArray };
	uint64_t context, *levels;
	uint32_t count;
	CUresult r = begin(&in, CUDA_SUCCESS, &context);

	if (r == CUDA_SUCCESS && !shim_array_retire(SHIM_MIPMAP, in.mipmap, &levels, &count))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return r;
	r = vg_send_mipmap_destroy(&in);
	shim_levels_recycle(levels, count);
	shim_object_recycle(SHIM_MIPMAP, in.mipmap);
	return r;
}
