/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of tensors in a form of our own. The interpreter has no copies by them: a kernel that wants one is refused when
 * its module is loaded, and CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED is 0.
 */
#include <string.h>

#include "cuda_sim.h"

enum { FROM_CC = 90, WIDE_FROM_CC = 100 };
static const uint64_t MARK = 0x70616d2d736e6574; /* "tens-map" */

struct form {
	uint64_t mark, address, kinds, box, strides[CUDA_TENSOR_RANK - 1], sizes[CUDA_TENSOR_RANK], rest[3];
};
_Static_assert(sizeof(struct form) == sizeof(CUtensorMap), "all of a descriptor");

static uint64_t mix(uint64_t to, uint64_t word)
{
	return (to ^ word) * 0x100000001b3;
}

/* All that is asked for is in it, so that two that differ in anything are different. */
static void encode(const struct cuda_tensor_map *m, CUtensorMap *out)
{
	struct form f = { .mark = MARK, .address = m->address };

	f.kinds = m->how | m->rank << 4 | (uint64_t)m->type << 8 | (uint64_t)m->interleave << 16 | (uint64_t)m->swizzle << 24 |
		  (uint64_t)m->promotion << 32 | (uint64_t)m->fill << 40 | (uint64_t)m->mode << 48;
	for (uint32_t i = 0; i < m->rank; i++) {
		f.sizes[i] = m->sizes[i];
		f.box = mix(f.box, m->box[i] | (uint64_t)m->steps[i] << 32);
	}
	for (uint32_t i = 0; i + 1 < m->rank; i++)
		f.strides[i] = m->strides[i];
	for (uint32_t i = 0; i < cuda_tensor_corners(m); i++)
		f.rest[0] = mix(f.rest[0], (uint32_t)m->lower[i] | (uint64_t)(uint32_t)m->upper[i] << 32);
	f.rest[1] = m->channels;
	f.rest[2] = m->pixels;
	memcpy(out, &f, sizeof(f));
}

static CUresult check_device(const struct context *ctx, uint32_t how)
{
	uint32_t cc = ctx->dev->info.cc_major * 10 + ctx->dev->info.cc_minor;

	return cc >= (how == CUDA_TENSOR_IM2COL_WIDE ? WIDE_FROM_CC : FROM_CC) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult make(struct cuda_tensor_map *m, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *steps,
		     const cuuint32_t *box, const int *lower, const int *upper, CUtensorMap *out)
{
	bool given = out && sizes && steps && (strides || m->rank < 2) && (m->how == CUDA_TENSOR_TILED ? !!box : lower && upper);
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = given ? cuda_check_tensor_rank(m->how, m->rank) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_device(ctx, m->how);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(m->sizes, sizes, m->rank * sizeof(*sizes));
	memcpy(m->steps, steps, m->rank * sizeof(*steps));
	if (m->rank > 1)
		memcpy(m->strides, strides, (m->rank - 1) * sizeof(*strides));
	if (m->how == CUDA_TENSOR_TILED)
		memcpy(m->box, box, m->rank * sizeof(*box));
	else
		memcpy(m->lower, lower, cuda_tensor_corners(m) * sizeof(*lower)),
			memcpy(m->upper, upper, cuda_tensor_corners(m) * sizeof(*upper));
	r = cuda_check_tensor_map(m);
	if (r == CUDA_SUCCESS)
		encode(m, out);
	return r;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
				const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
				CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
				CUtensorMapFloatOOBfill fill)
{
	struct cuda_tensor_map m = { .how = CUDA_TENSOR_TILED, .rank = rank, .type = type, .address = (uint64_t)address,
				     .interleave = interleave, .swizzle = swizzle, .promotion = promotion, .fill = fill };

	return make(&m, sizes, strides, steps, box, NULL, NULL, map);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
				 const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
				 const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct cuda_tensor_map m = { .how = CUDA_TENSOR_IM2COL, .rank = rank, .type = type, .address = (uint64_t)address,
				     .channels = channels, .pixels = pixels, .interleave = interleave, .swizzle = swizzle,
				     .promotion = promotion, .fill = fill };

	return make(&m, sizes, strides, steps, NULL, lower, upper, map);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
				     const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper, cuuint32_t channels,
				     cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave,
				     CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
				     CUtensorMapFloatOOBfill fill)
{
	struct cuda_tensor_map m = { .how = CUDA_TENSOR_IM2COL_WIDE, .rank = rank, .type = type, .address = (uint64_t)address,
				     .channels = channels, .pixels = pixels, .interleave = interleave, .mode = mode, .swizzle = swizzle,
				     .promotion = promotion, .fill = fill };

	return make(&m, sizes, strides, steps, NULL, &lower, &upper, map);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	struct form f;

	CONTEXT_ENTER(ctx);
	(void)ctx;
	if (!map || !address || (uint64_t)address % 16)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&f, map, sizeof(f));
	if (f.mark != MARK)
		return CUDA_ERROR_INVALID_VALUE;
	f.address = (uint64_t)address;
	memcpy(map, &f, sizeof(f));
	return CUDA_SUCCESS;
}
