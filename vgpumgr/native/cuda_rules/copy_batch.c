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

CUresult cuda_copy_each(const struct cuda_copies *c, cuda_copy_call *copy, CUstream stream, size_t *failed)
{
	CUresult r = check(c);

	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; r == CUDA_SUCCESS && i < c->count; i++) {
		r = copy(c->to[i], c->from[i], c->sizes[i], stream);
		if (r != CUDA_SUCCESS && failed)
			*failed = i;
	}
	return r;
}

bool cuda_copies_end_with_call(const struct cuda_copies *c)
{
	for (size_t i = 0; i < c->kinds; i++)
		if (c->attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
			return true;
	return false;
}
