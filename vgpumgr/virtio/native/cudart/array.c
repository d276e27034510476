/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: making them, asking what they are, and copies in which one takes part. */
#include "copy.h"
#include "format.h"

/* The runtime's flags have the driver's numbers. */
static cudaError_t describe(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int flags,
			    CUDA_ARRAY3D_DESCRIPTOR *made)
{
	*made = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags };
	return desc ? rt_format(desc, &made->Format, &made->NumChannels) : cudaErrorInvalidValue;
}

static cudaError_t make(cudaArray_t *out, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
			unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	CUarray array;
	cudaError_t error = out ? describe(desc, extent, flags, &made) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = RT_CALL(cuArray3DCreate, &array, &made);
	if (error == cudaSuccess)
		*out = (cudaArray_t)array;
	return error;
}

API cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, size_t width, size_t height,
				unsigned int flags)
{
	return rt_done(make(array, desc, (struct cudaExtent){ width, height, 0 }, flags));
}

API cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
				  unsigned int flags)
{
	return rt_done(make(array, desc, extent, flags));
}

API cudaError_t cudaFreeArray(cudaArray_t array)
{
	return rt_done(array ? RT_CALL(cuArrayDestroy, (CUarray)array) : rt_enter());
}

static cudaError_t make_levels(cudaMipmappedArray_t *out, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
			       unsigned int levels, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	CUmipmappedArray array;
	cudaError_t error = out ? describe(desc, extent, flags, &made) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = RT_CALL(cuMipmappedArrayCreate, &array, &made, levels);
	if (error == cudaSuccess)
		*out = (cudaMipmappedArray_t)array;
	return error;
}

API cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *mipmappedArray, const struct cudaChannelFormatDesc *desc,
					 struct cudaExtent extent, unsigned int numLevels, unsigned int flags)
{
	return rt_done(make_levels(mipmappedArray, desc, extent, numLevels, flags));
}

API cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *levelArray, cudaMipmappedArray_const_t mipmappedArray,
					   unsigned int level)
{
	CUarray array;
	cudaError_t error = levelArray ? RT_CALL(cuMipmappedArrayGetLevel, &array, (CUmipmappedArray)mipmappedArray, level) :
					 cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*levelArray = (cudaArray_t)array;
	return rt_done(error);
}

API cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t mipmappedArray)
{
	return rt_done(mipmappedArray ? RT_CALL(cuMipmappedArrayDestroy, (CUmipmappedArray)mipmappedArray) : rt_enter());
}

API cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, cudaArray_const_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	cudaError_t error = desc ? rt_made_of(array, &made) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*desc = rt_channels(made.Format, made.NumChannels);
	return rt_done(error);
}

API cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent, unsigned int *flags,
				 cudaArray_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	cudaError_t error = rt_made_of(array, &made);

	if (error == cudaSuccess && desc)
		*desc = rt_channels(made.Format, made.NumChannels);
	if (error == cudaSuccess && extent)
		*extent = (struct cudaExtent){ made.Width, made.Height, made.Depth };
	if (error == cudaSuccess && flags)
		*flags = made.Flags;
	return rt_done(error);
}

/* ---- copies of rows: offsets and widths are in bytes */

static struct rt_end in_array(cudaArray_const_t array, size_t x, size_t y)
{
	return (struct rt_end){ .type = CU_MEMORYTYPE_ARRAY, .array = (CUarray)array, .x = x, .y = y };
}

static cudaError_t copy_rows(const struct rt_end *to, const struct rt_end *from, size_t width, size_t height, struct lane lane)
{
	CUDA_MEMCPY2D copy = {
		.srcXInBytes = from->x, .srcY = from->y, .srcMemoryType = from->type, .srcHost = from->host,
		.srcDevice = from->device, .srcArray = from->array, .srcPitch = from->pitch,
		.dstXInBytes = to->x, .dstY = to->y, .dstMemoryType = to->type, .dstHost = (void *)to->host,
		.dstDevice = to->device, .dstArray = to->array, .dstPitch = to->pitch,
		.WidthInBytes = width, .Height = height,
	};
	cudaError_t error = rt_enter();

	if (error != cudaSuccess || !width || !height)
		return error;
	if (lane.wait == LANE_LEGACY)
		return rt_error(CU(cuMemcpy2DUnaligned, &copy));
	return rt_settle(CU(cuMemcpy2DAsync, &copy, lane.stream), lane);
}

static cudaError_t to_array(cudaArray_t dst, size_t x, size_t y, const void *src, size_t pitch, size_t width, size_t height,
			    enum cudaMemcpyKind kind, struct lane lane)
{
	struct rt_end to = in_array(dst, x, y), from = rt_source(src, kind);

	if ((unsigned int)kind > cudaMemcpyDefault || kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost)
		return cudaErrorInvalidMemcpyDirection;
	if (width > pitch && height > 1)
		return cudaErrorInvalidPitchValue;
	if (!dst || !src)
		return cudaErrorInvalidValue;
	from.pitch = pitch;
	return copy_rows(&to, &from, width, height, lane);
}

static cudaError_t from_array(void *dst, size_t pitch, cudaArray_const_t src, size_t x, size_t y, size_t width, size_t height,
			      enum cudaMemcpyKind kind, struct lane lane)
{
	struct rt_end to = rt_target(dst, kind), from = in_array(src, x, y);

	if ((unsigned int)kind > cudaMemcpyDefault || kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost)
		return cudaErrorInvalidMemcpyDirection;
	if (width > pitch && height > 1)
		return cudaErrorInvalidPitchValue;
	if (!dst || !src)
		return cudaErrorInvalidValue;
	to.pitch = pitch;
	return copy_rows(&to, &from, width, height, lane);
}

BLOCKING_API(cudaMemcpy2DToArray,
	     (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch, size_t width, size_t height,
	      enum cudaMemcpyKind kind),
	     to_array(dst, wOffset, hOffset, src, spitch, width, height, kind, lane))
ASYNC_API(cudaMemcpy2DToArrayAsync,
	  (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t spitch, size_t width, size_t height,
	   enum cudaMemcpyKind kind, cudaStream_t stream),
	  to_array(dst, wOffset, hOffset, src, spitch, width, height, kind, lane))
BLOCKING_API(cudaMemcpy2DFromArray,
	     (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t width, size_t height,
	      enum cudaMemcpyKind kind),
	     from_array(dst, dpitch, src, wOffset, hOffset, width, height, kind, lane))
ASYNC_API(cudaMemcpy2DFromArrayAsync,
	  (void *dst, size_t dpitch, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t width, size_t height,
	   enum cudaMemcpyKind kind, cudaStream_t stream),
	  from_array(dst, dpitch, src, wOffset, hOffset, width, height, kind, lane))

static cudaError_t between_arrays(cudaArray_t dst, size_t to_x, size_t to_y, cudaArray_const_t src, size_t from_x,
				  size_t from_y, size_t width, size_t height, enum cudaMemcpyKind kind, struct lane lane)
{
	struct rt_end to = in_array(dst, to_x, to_y), from = in_array(src, from_x, from_y);

	if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	return dst && src ? copy_rows(&to, &from, width, height, lane) : cudaErrorInvalidValue;
}

BLOCKING_API(cudaMemcpy2DArrayToArray,
	     (cudaArray_t dst, size_t wOffsetDst, size_t hOffsetDst, cudaArray_const_t src, size_t wOffsetSrc,
	      size_t hOffsetSrc, size_t width, size_t height, enum cudaMemcpyKind kind),
	     between_arrays(dst, wOffsetDst, hOffsetDst, src, wOffsetSrc, hOffsetSrc, width, height, kind, lane))

/* ---- the older copies: bytes that go on in the next row */

/* A run of bytes as at most three rectangles: the first row's rest, whole rows, the last row's beginning. */
static cudaError_t copy_run(struct rt_end *array, struct rt_end *memory, size_t count, bool into, struct lane lane)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	cudaError_t error = rt_made_of((cudaArray_const_t)array->array, &made);
	size_t row = 0, width, rows;

	if (error == cudaSuccess)
		row = made.Width * ((size_t)rt_channels(made.Format, 1).x / 8 * made.NumChannels);
	if (error == cudaSuccess && count && array->x >= row)
		error = cudaErrorInvalidValue;
	for (; error == cudaSuccess && count; count -= width * rows) {
		width = array->x || count < row ? row - array->x : row;
		width = width < count ? width : count;
		rows = !array->x && width == row ? count / row : 1;
		memory->pitch = width;
		error = into ? copy_rows(array, memory, width, rows, lane) : copy_rows(memory, array, width, rows, lane);
		array->x = 0;
		array->y += rows;
		if (memory->host)
			memory->host = (const uint8_t *)memory->host + width * rows;
		else
			memory->device += width * rows;
	}
	return error;
}

static cudaError_t run_to_array(cudaArray_t dst, size_t x, size_t y, const void *src, size_t count, enum cudaMemcpyKind kind,
				struct lane lane)
{
	struct rt_end to = in_array(dst, x, y), from = rt_source(src, kind);

	if ((unsigned int)kind > cudaMemcpyDefault || kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost)
		return cudaErrorInvalidMemcpyDirection;
	return src ? copy_run(&to, &from, count, true, lane) : cudaErrorInvalidValue;
}

static cudaError_t run_from_array(void *dst, cudaArray_const_t src, size_t x, size_t y, size_t count, enum cudaMemcpyKind kind,
				  struct lane lane)
{
	struct rt_end to = rt_target(dst, kind), from = in_array(src, x, y);

	if ((unsigned int)kind > cudaMemcpyDefault || kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost)
		return cudaErrorInvalidMemcpyDirection;
	return dst ? copy_run(&from, &to, count, false, lane) : cudaErrorInvalidValue;
}

BLOCKING_API(cudaMemcpyToArray,
	     (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count, enum cudaMemcpyKind kind),
	     run_to_array(dst, wOffset, hOffset, src, count, kind, lane))
ASYNC_API(cudaMemcpyToArrayAsync,
	  (cudaArray_t dst, size_t wOffset, size_t hOffset, const void *src, size_t count, enum cudaMemcpyKind kind,
	   cudaStream_t stream),
	  run_to_array(dst, wOffset, hOffset, src, count, kind, lane))
BLOCKING_API(cudaMemcpyFromArray,
	     (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count, enum cudaMemcpyKind kind),
	     run_from_array(dst, src, wOffset, hOffset, count, kind, lane))
ASYNC_API(cudaMemcpyFromArrayAsync,
	  (void *dst, cudaArray_const_t src, size_t wOffset, size_t hOffset, size_t count, enum cudaMemcpyKind kind,
	   cudaStream_t stream),
	  run_from_array(dst, src, wOffset, hOffset, count, kind, lane))

_Static_assert(sizeof(struct cudaArraySparseProperties) == sizeof(CUDA_ARRAY_SPARSE_PROPERTIES) &&
		       sizeof(struct cudaArrayMemoryRequirements) == sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS),
	       "one and the same");

API cudaError_t cudaArrayGetPlane(cudaArray_t *pPlaneArray, cudaArray_t hArray, unsigned int planeIdx)
{
	return rt_done(RT_CALL(cuArrayGetPlane, (CUarray *)pPlaneArray, (CUarray)hArray, planeIdx));
}

API cudaError_t cudaArrayGetSparseProperties(struct cudaArraySparseProperties *sparseProperties, cudaArray_t array)
{
	return rt_done(RT_CALL(cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *)sparseProperties, (CUarray)array));
}

API cudaError_t cudaMipmappedArrayGetSparseProperties(struct cudaArraySparseProperties *sparseProperties, cudaMipmappedArray_t mipmap)
{
	return rt_done(
		RT_CALL(cuMipmappedArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *)sparseProperties, (CUmipmappedArray)mipmap));
}

API cudaError_t cudaArrayGetMemoryRequirements(struct cudaArrayMemoryRequirements *memoryRequirements, cudaArray_t array, int device)
{
	return rt_done(RT_CALL(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *)memoryRequirements, (CUarray)array, device));
}

API cudaError_t cudaMipmappedArrayGetMemoryRequirements(struct cudaArrayMemoryRequirements *memoryRequirements,
							cudaMipmappedArray_t mipmap, int device)
{
	return rt_done(RT_CALL(cuMipmappedArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *)memoryRequirements,
			       (CUmipmappedArray)mipmap, device));
}
