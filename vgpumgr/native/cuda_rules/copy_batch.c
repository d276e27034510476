/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies between pointers: a copy each, in any order. */
#include "cuda_rules.h"

static bool known(const CUmemcpyAttributes *a)
{
	return a->srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && a->srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
	       !(a->flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

static CUresult check(const struct cuda_copies *c)
{
	if (!c->to || !c->from || !c->sizes || !c->attributes || !c->first || !c->kinds || c->kinds > c->count || c->first[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < c->kinds; i++)
		if (!known(&c->attributes[i]) || c->first[i] >= c->count || (i && c->first[i] <= c->first[i - 1]))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static bool must_wait(const struct cuda_copies *c, const struct cuda_copy_calls *calls)
{
	for (size_t i = 0, k = 0; i < c->count; i++) {
		k += k + 1 < c->kinds && c->first[k + 1] == i;
		if (c->attributes[k].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL &&
		    (!calls->reads_later || calls->reads_later(c->from[i])))
			return true;
	}
	return false;
}

CUresult cuda_copy_each(const struct cuda_copies *c, const struct cuda_copy_calls *calls, CUstream stream, size_t *failed)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = check(c);

	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; r == CUDA_SUCCESS && i < c->count; i++) {
		r = calls->copy(c->to[i], c->from[i], c->sizes[i], stream);
		if (r != CUDA_SUCCESS && failed)
			*failed = i;
	}
	if (r != CUDA_SUCCESS || !must_wait(c, calls))
		return r;
	r = calls->is_capturing(stream, &status);
	return r == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE ? calls->wait(stream) : r;
}
