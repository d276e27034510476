/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of tensors: the host's driver makes them, once for each content; a program passes them to kernels as bytes. */
#include <string.h>

#include "frame.h"
#include "shim.h"

_Static_assert((size_t)VG_MAX_tensor_map_request <= (size_t)SHIM_KEY_MAX, "a cached call's words are its key");

static CUresult put(CUtensorMap *map, const uint8_t *from, size_t length)
{
	if (length != sizeof(*map))
		return CUDA_ERROR_UNKNOWN;
	memcpy(map, from, sizeof(*map));
	return CUDA_SUCCESS;
}

/* Fills in what the rank says of the arrays. */
static CUresult make(struct vg_tensor_map_request *in, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *steps,
		     const cuuint32_t *box, const int *lower, const int *upper, CUtensorMap *map)
{
	bool given = map && sizes && steps && (strides || in->rank < 2) && (in->how == CUDA_TENSOR_TILED ? !!box : lower && upper);
	struct cuda_tensor_map m = { .how = in->how, .rank = in->rank };
	struct vg_tensor_map_reply out;
	CUresult r = shim_enter(&in->context);

	if (r == CUDA_SUCCESS)
		r = given ? cuda_check_tensor_rank(in->how, in->rank) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in->sizes = (struct vg_bytes){ sizes, m.rank * sizeof(*sizes) };
	in->strides = (struct vg_bytes){ strides, (m.rank - 1) * sizeof(*strides) };
	in->steps = (struct vg_bytes){ steps, m.rank * sizeof(*steps) };
	if (m.how == CUDA_TENSOR_TILED)
		in->box = (struct vg_bytes){ box, m.rank * sizeof(*box) };
	in->lower = (struct vg_bytes){ lower, cuda_tensor_corners(&m) * sizeof(*lower) };
	in->upper = (struct vg_bytes){ upper, cuda_tensor_corners(&m) * sizeof(*upper) };
	r = vg_send_tensor_map(in, &out);
	return r == CUDA_SUCCESS ? put(map, out.map, out.map_length) : r;
}

SHIM_API CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					 void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					 const cuuint32_t *boxDim, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_TILED, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .interleave = interleave, .swizzle = swizzle,
					    .promotion = l2Promotion, .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, boxDim, NULL, NULL, tensorMap);
}

SHIM_API CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					  void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					  const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
					  cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					  CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_IM2COL, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .channels = channelsPerPixel, .pixels = pixelsPerColumn,
					    .interleave = interleave, .swizzle = swizzle, .promotion = l2Promotion, .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, NULL, pixelBoxLowerCorner, pixelBoxUpperCorner, tensorMap);
}

SHIM_API CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
					      void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
					      int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
					      cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
					      CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
					      CUtensorMapFloatOOBfill oobFill)
{
	struct vg_tensor_map_request in = { .how = CUDA_TENSOR_IM2COL_WIDE, .type = tensorDataType, .rank = tensorRank,
					    .address = (uint64_t)globalAddress, .channels = channelsPerPixel, .pixels = pixelsPerColumn,
					    .interleave = interleave, .mode = mode, .swizzle = swizzle, .promotion = l2Promotion,
					    .fill = oobFill };

	return make(&in, globalDim, globalStrides, elementStrides, NULL, &pixelBoxLowerCornerWidth, &pixelBoxUpperCornerWidth, tensorMap);
}

SHIM_API CUresult cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
	struct vg_tensor_map_address_request in = { .address = (uint64_t)globalAddress };
	struct vg_tensor_map_address_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !tensorMap)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in.map = (struct vg_bytes){ tensorMap, sizeof(*tensorMap) };
	r = vg_send_tensor_map_address(&in, &out);
	return r == CUDA_SUCCESS ? put(tensorMap, out.map, out.map_length) : r;
}
