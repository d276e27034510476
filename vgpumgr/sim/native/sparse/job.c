/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as work on a stream. */
#include <stdlib.h>
#include <string.h>

#include "sparse_sim.h"

static bool load(struct sp_job *job, struct sp_scalar *scalar)
{
	if (!scalar->at)
		return true;
	if (!bl_reach(&job->work, scalar->at, (int64_t)bl_size(job->scalar_type)))
		return false;
	scalar->value = bl_load(scalar->at, job->scalar_type, 0);
	return true;
}

static void run(struct work *work)
{
	struct sp_job *job = (struct sp_job *)work;

	work->wild = false;
	if (load(job, &job->alpha) && load(job, &job->beta) && bl_reach(work, job->buffer, job->buffer ? SP_BUFFER : 0))
		job->compute(job);
}

void sp_leave_pivot(struct sp_pivot *pivot)
{
	if (pivot && atomic_fetch_sub(&pivot->users, 1) == 1)
		free(pivot);
}

void sp_end_product(struct sp_product *product)
{
	free(product->offsets);
	free(product->cols);
	free(product->values);
	memset(product, 0, sizeof *product);
}

static void release(struct work *work)
{
	struct sp_job *job = (struct sp_job *)work;

	sp_leave_pivot(job->pivot);
	sp_end_product(&job->given);
	free(job);
}

static struct sp_scalar scalar_of(const struct sp_handle *h, const void *at, int type)
{
	return h->pointer_mode ? (struct sp_scalar){ .at = at } : (struct sp_scalar){ .value = bl_load(at, type, 0) };
}

int sp_begin(void *handle, struct sp_job *job, void (*compute)(struct sp_job *), int scalar_type, const void *alpha, const void *beta)
{
	const struct sp_handle *h = sp_handle(handle);

	if (!h)
		return SPARSE_NOT_INITIALIZED;
	memset(job, 0, sizeof *job);
	job->compute = compute;
	job->scalar_type = scalar_type;
	if (!bl_size(scalar_type))
		return SPARSE_NOT_SUPPORTED;
	if (alpha)
		job->alpha = scalar_of(h, alpha, scalar_type);
	if (beta)
		job->beta = scalar_of(h, beta, scalar_type);
	return SPARSE_OK;
}

int sp_with_buffer(void *handle, struct sp_job *job, const void *buffer)
{
	job->buffer = buffer;
	return buffer ? sp_post(handle, job, false) : SPARSE_INVALID_VALUE;
}

int sp_size(void *handle, int status, size_t *size)
{
	if (!sp_handle(handle))
		return SPARSE_NOT_INITIALIZED;
	if (!size)
		return SPARSE_INVALID_VALUE;
	if (status == SPARSE_OK)
		*size = SP_BUFFER;
	return status;
}

int sp_post(void *handle, const struct sp_job *job, bool wait)
{
	struct bl_context *context;
	struct sp_job *copy;
	int status = sp_status(bl_context_current(&context));

	copy = status == SPARSE_OK ? malloc(sizeof *copy) : NULL;
	if (!copy)
		return status == SPARSE_OK ? SPARSE_ALLOC_FAILED : status;
	*copy = *job;
	if (copy->pivot)
		atomic_fetch_add(&copy->pivot->users, 1);
	copy->work = (struct work){ .run = run, .release = release, .context = context };
	return sp_status(bl_post(&copy->work, sp_handle(handle)->stream, wait));
}

void *sp_area(struct sp_job *job, int64_t count, size_t bytes)
{
	void *area = calloc((size_t)count + 1, bytes);

	if (!area)
		bl_reach(&job->work, NULL, 1);
	return area;
}
