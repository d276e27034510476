/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of tensors for copies by the device's engine: what the documentation lets any driver decide. */
#include "cuda_rules.h"

enum { BOX_MOST = 256, STEP_MOST = 8, PIXELS_MOST = 1024, CORNER_LEAST = -32768, CORNER_MOST = 32767 };

static bool is_packed(CUtensorMapDataType type)
{
	return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

static bool is_float(CUtensorMapDataType type)
{
	return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static uint64_t alignment(const struct cuda_tensor_map *m)
{
	return m->interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_packed(m->type) ? 32 : 16;
}

static bool known(const struct cuda_tensor_map *m)
{
	return (unsigned)m->type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B && (unsigned)m->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
	       (unsigned)m->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B && (unsigned)m->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
	       (m->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
		(m->fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && is_float(m->type)));
}

static bool has_shape(const struct cuda_tensor_map *m)
{
	for (uint32_t i = 0; i < m->rank; i++)
		if (!m->sizes[i] || m->sizes[i] > 1ull << 32 || !m->steps[i] || m->steps[i] > STEP_MOST)
			return false;
	for (uint32_t i = 0; i + 1 < m->rank; i++)
		if (m->strides[i] % alignment(m) || m->strides[i] >> 40)
			return false;
	return true;
}

static bool has_box(const struct cuda_tensor_map *m)
{
	if (m->how == CUDA_TENSOR_TILED) {
		for (uint32_t i = 0; i < m->rank; i++)
			if (!m->box[i] || m->box[i] > BOX_MOST)
				return false;
		return !is_packed(m->type) || m->box[0] == 128;
	}
	for (uint32_t i = 0; i < cuda_tensor_corners(m); i++)
		if (m->lower[i] < CORNER_LEAST || m->lower[i] > CORNER_MOST || m->upper[i] < CORNER_LEAST || m->upper[i] > CORNER_MOST)
			return false;
	return m->channels <= BOX_MOST && m->pixels <= PIXELS_MOST;
}

uint32_t cuda_tensor_corners(const struct cuda_tensor_map *m)
{
	return m->how == CUDA_TENSOR_IM2COL ? m->rank - 2 : m->how == CUDA_TENSOR_IM2COL_WIDE ? 1 : 0;
}

CUresult cuda_check_tensor_rank(uint32_t how, uint32_t rank)
{
	uint32_t least = how == CUDA_TENSOR_TILED ? 1 : 3;

	return how <= CUDA_TENSOR_IM2COL_WIDE && rank >= least && rank <= CUDA_TENSOR_RANK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_check_tensor_map(const struct cuda_tensor_map *m)
{
	bool right = cuda_check_tensor_rank(m->how, m->rank) == CUDA_SUCCESS && known(m) && m->address && !(m->address % alignment(m)) &&
		     (m->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE || m->rank >= 3) && has_shape(m) && has_box(m);

	return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
