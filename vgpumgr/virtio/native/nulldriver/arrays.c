/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays without memory: what is copied into one is read and forgotten, what is copied out of one is zero. A part that does
 * not lie in an array, or memory that a copy or a texture may not name, ends the process.
 */
#include <stdlib.h>
#include <string.h>

#include "books.h"

struct shape {
	size_t row, rows, slices;
};

static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *made)
{
	size_t bytes = made->Format == CU_AD_FORMAT_UNSIGNED_INT8 || made->Format == CU_AD_FORMAT_SIGNED_INT8 ? 1 :
		       made->Format == CU_AD_FORMAT_UNSIGNED_INT32 || made->Format == CU_AD_FORMAT_SIGNED_INT32 ||
				       made->Format == CU_AD_FORMAT_FLOAT ?
											      4 :
											      2;

	return bytes * made->NumChannels;
}

static void *new_array(enum null_kind kind, const CUDA_ARRAY3D_DESCRIPTOR *made, unsigned int level)
{
	size_t width = made->Width >> level, height = made->Height >> level, depth = made->Depth;
	struct shape *shape = malloc(sizeof(*shape));
	void *array = null_object(kind);

	if (!shape)
		null_abort("out of memory");
	if (!(made->Flags & CUDA_ARRAY3D_LAYERED))
		depth >>= level;
	*shape = (struct shape){ (width ? width : 1) * element_bytes(made), height ? height : 1, depth ? depth : 1 };
	null_kept(array)[0] = shape;
	return array;
}

static void end_array(enum null_kind kind, void *array)
{
	null_check(kind, array);
	free(null_kept(array)[0]);
	null_end(kind, array);
}

NULL_API CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *made)
{
	ENTER;
	if (made->Width * element_bytes(made) > 1ull << 34 || made->Height > 1ull << 20)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*array = new_array(NULL_ARRAY, made, 0);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuArrayDestroy(CUarray array)
{
	end_array(NULL_ARRAY, array);
	return CUDA_SUCCESS;
}

/* ---- mipmapped arrays: levels are made when they are first asked for */

enum { LEVELS = 20 };

struct levels {
	CUDA_ARRAY3D_DESCRIPTOR made;
	unsigned int count;
	void *arrays[LEVELS];
};

NULL_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *made, unsigned int count)
{
	struct levels *l;

	ENTER;
	if (!count || count > LEVELS)
		null_abort("a mipmapped array of so many levels");
	l = calloc(1, sizeof(*l));
	if (!l)
		null_abort("out of memory");
	l->made = *made;
	l->count = count;
	*out = null_object(NULL_MIPMAP);
	null_kept(*out)[0] = l;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray array, unsigned int level)
{
	void *fresh, *none = NULL;
	struct levels *l;

	ENTER;
	null_check(NULL_MIPMAP, array);
	l = null_kept(array)[0];
	if (level >= l->count)
		null_abort("a level that there is not");
	fresh = new_array(NULL_ARRAY, &l->made, level);
	if (!__atomic_compare_exchange_n(&l->arrays[level], &none, fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		end_array(NULL_ARRAY, fresh);
		fresh = none;
	}
	*out = fresh;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct levels *l;

	null_check(NULL_MIPMAP, array);
	l = null_kept(array)[0];
	for (unsigned int i = 0; i < l->count; i++)
		if (l->arrays[i])
			end_array(NULL_ARRAY, l->arrays[i]);
	free(l);
	null_end(NULL_MIPMAP, array);
	return CUDA_SUCCESS;
}

/* ---- copies */

static void check_part(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *c)
{
	const struct shape *s;

	null_check(NULL_ARRAY, array);
	s = null_kept(array)[0];
	if (x > s->row || c->WidthInBytes > s->row - x || y > s->rows || c->Height > s->rows - y || z > s->slices ||
	    c->Depth > s->slices - z)
		null_abort("a copy beyond an array");
}

static size_t extent(const CUDA_MEMCPY3D *c, size_t pitch, size_t height)
{
	return (c->Depth - 1) * pitch * height + (c->Height - 1) * pitch + c->WidthInBytes;
}

NULL_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream)
{
	unsigned char sum = 0;

	ENTER;
	null_check_stream(stream);
	if (!c->WidthInBytes || !c->Height || !c->Depth)
		return CUDA_SUCCESS;
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
		check_part(c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, c);
	else if (c->srcMemoryType == CU_MEMORYTYPE_DEVICE)
		null_check_memory(c->srcDevice, extent(c, c->srcPitch, c->srcHeight));
	else /* read whole: a sanitizer sees what is not there */
		for (size_t i = 0; i < extent(c, c->srcPitch, c->srcHeight); i++)
			sum += ((const unsigned char *)c->srcHost)[i];
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		check_part(c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, c);
		null_mark(c->dstArray, sum);
	} else if (c->dstMemoryType == CU_MEMORYTYPE_DEVICE) {
		null_check_memory(c->dstDevice, extent(c, c->dstPitch, c->dstHeight));
	} else {
		memset(c->dstHost, 0, extent(c, c->dstPitch, c->dstHeight));
	}
	return CUDA_SUCCESS;
}

/* ---- objects: a number is an address */

static void check_resource(const CUDA_RESOURCE_DESC *resource)
{
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		null_check(NULL_ARRAY, resource->res.array.hArray);
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		null_check(NULL_MIPMAP, resource->res.mipmap.hMipmappedArray);
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		null_check_memory(resource->res.linear.devPtr, resource->res.linear.sizeInBytes);
		break;
	default:
		null_check_memory(resource->res.pitch2D.devPtr,
				  (resource->res.pitch2D.height - 1) * resource->res.pitch2D.pitchInBytes);
	}
}

NULL_API CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
				    const CUDA_RESOURCE_VIEW_DESC *view)
{
	ENTER;
	if (view || texture->filterMode > CU_TR_FILTER_MODE_LINEAR)
		null_abort("a texture that is read otherwise");
	check_resource(resource);
	*out = (CUtexObject)null_object(NULL_TEXTURE);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuTexObjectDestroy(CUtexObject object)
{
	null_end(NULL_TEXTURE, (void *)object);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
	ENTER;
	if (resource->resType != CU_RESOURCE_TYPE_ARRAY)
		null_abort("a surface that is no array");
	check_resource(resource);
	*out = (CUsurfObject)null_object(NULL_SURFACE);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuSurfObjectDestroy(CUsurfObject object)
{
	null_end(NULL_SURFACE, (void *)object);
	return CUDA_SUCCESS;
}

/* ---- descriptors of tensors: a driver reads arrays as long as the rank says */

static CUresult encode(CUtensorMap *map, cuuint32_t rank, const void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
		       const cuuint32_t *steps)
{
	if (!rank || rank > 5)
		null_abort("a tensor's rank");
	memset(map, 0, sizeof(*map));
	map->opaque[0] = (cuuint64_t)address;
	for (cuuint32_t i = 0; i < rank; i++)
		map->opaque[1] += sizes[i] + steps[i] + (i + 1 < rank ? strides[i] : 0);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
					 const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
					 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
					 CUtensorMapFloatOOBfill fill)
{
	ENTER;
	(void)type, (void)box, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
	return encode(map, rank, address, sizes, strides, steps);
}

NULL_API CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
					  const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
					  cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
					  CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
					  CUtensorMapFloatOOBfill fill)
{
	ENTER;
	(void)type, (void)channels, (void)pixels, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
	for (cuuint32_t i = 0; i + 2 < rank; i++)
		if (lower[i] == upper[i] && lower[i] == INT32_MIN)
			return CUDA_ERROR_INVALID_VALUE;
	return encode(map, rank, address, sizes, strides, steps);
}

NULL_API CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
					      const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper,
					      cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
					      CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
					      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	ENTER;
	(void)type, (void)lower, (void)upper, (void)channels, (void)pixels, (void)interleave, (void)mode, (void)swizzle, (void)promotion,
		(void)fill;
	return encode(map, rank, address, sizes, strides, steps);
}

NULL_API CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	ENTER;
	map->opaque[0] = (cuuint64_t)address;
	return CUDA_SUCCESS;
}
