/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that something is kept in from one call to the next. */
#include <stdlib.h>

#include "sparse_sim.h"

#define MARK 0x5370000000000000

struct sp_object *sp_object(void *object, uint64_t kind)
{
	struct sp_object *o = object;

	return o && o->kind == (MARK | kind) ? o : NULL;
}

static int create(void **object, uint64_t kind)
{
	struct sp_object *o = object ? calloc(1, sizeof *o) : NULL;

	if (o)
		o->pivot = calloc(1, sizeof *o->pivot);
	if (!o || !o->pivot) {
		free(o);
		return object ? SPARSE_ALLOC_FAILED : SPARSE_INVALID_VALUE;
	}
	o->kind = MARK | kind;
	o->pivot->users = 1;
	o->pivot->at = -1;
	*object = o;
	return SPARSE_OK;
}

static int destroy(struct sp_object *o)
{
	if (!o)
		return SPARSE_INVALID_VALUE;
	o->kind = 0;
	sp_leave_pivot(o->pivot);
	sp_end_product(&o->product);
	free(o);
	return SPARSE_OK;
}

#define OBJECT(created, ended, kind)                   \
	SP_API(created, void **object)                 \
	{                                              \
		return create(object, kind);           \
	}                                              \
	SP_API(ended, void *object)                    \
	{                                              \
		return destroy(sp_object(object, kind)); \
	}

OBJECT(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr, SPARSE_SPGEMM)
OBJECT(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr, SPARSE_SPSV)
OBJECT(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr, SPARSE_SPSM)
OBJECT(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info, SPARSE_BSRSV2)
OBJECT(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info, SPARSE_BSRSM2)

static void tell_pivot(struct sp_job *job)
{
	if (!job->areas[1])
		*(int *)job->areas[0] = job->pivot->at;
	else if (bl_reach(&job->work, job->areas[1], sizeof(int)))
		*(int *)job->areas[1] = job->pivot->at;
}

static int zero_pivot(void *handle, struct sp_object *o, int *position)
{
	struct sp_job job;
	int status = sp_begin(handle, &job, tell_pivot, BL_R_32F, NULL, NULL), at;

	if (status != SPARSE_OK)
		return status;
	if (!o || !position)
		return SPARSE_INVALID_VALUE;
	job.areas[sp_handle(handle)->pointer_mode] = position;
	job.pivot = o->pivot;
	status = sp_post(handle, &job, true);
	at = o->pivot->at;
	return status == SPARSE_OK && at >= 0 ? SPARSE_ZERO_PIVOT : status;
}

SP_API(cusparseXbsrsv2_zeroPivot, void *handle, void *object, int *position)
{
	return zero_pivot(handle, sp_object(object, SPARSE_BSRSV2), position);
}

SP_API(cusparseXbsrsm2_zeroPivot, void *handle, void *object, int *position)
{
	return zero_pivot(handle, sp_object(object, SPARSE_BSRSM2), position);
}
