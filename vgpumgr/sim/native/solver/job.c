/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as work on a stream. */
#include <stdlib.h>
#include <string.h>

#include "solver.h"

static void run(struct work *work)
{
	struct job *job = (struct job *)work;

	work->wild = false;
	for (int i = 0; i < job->count; i++)
		if (!bl_reach(work, job->spans[i].address, job->spans[i].bytes))
			return;
	job->compute(job);
}

static void release(struct work *work)
{
	free(work);
}

int sv_begin(void *handle, int type, const char *routine, struct job *job)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	if (type != BL_R_32F && type != BL_R_64F && type != BL_C_32F && type != BL_C_64F)
		return SV_INVALID_VALUE;
	memset(job, 0, sizeof *job);
	job->type = type;
	job->batch = 1;
	job->routine = bl_typed_routine(type, routine);
	return job->routine ? SV_SUCCESS : SV_NOT_SUPPORTED;
}

void sv_span(struct job *job, const void *address, int64_t bytes)
{
	if (job->count == SV_SPANS)
		abort();
	job->spans[job->count].address = address;
	job->spans[job->count++].bytes = bytes;
}

void sv_matrix(struct job *job, const void *address, int64_t rows, int64_t cols, int64_t ld)
{
	if (rows > 0 && cols > 0)
		sv_span(job, address, (ld * (cols - 1) + rows) * (int64_t)bl_size(job->type));
}

int sv_post(void *handle, const struct job *job)
{
	struct bl_context *context;
	struct job *copy;
	int status = sv_status(bl_context_current(&context));

	if (status != SV_SUCCESS)
		return status;
	copy = malloc(sizeof *copy);
	if (!copy)
		return SV_ALLOC_FAILED;
	*copy = *job;
	copy->work = (struct work){ .run = run, .release = release, .context = context };
	return sv_status(bl_post(&copy->work, sv_handle(handle)->stream, false));
}

int sv_begin_square(void *handle, int type, const char *routine, int uplo, int64_t n, const void *a, int64_t lda, struct job *job)
{
	int status = sv_begin(handle, type, routine, job);

	if (status != SV_SUCCESS)
		return status;
	if ((uplo != BL_FILL_LOWER && uplo != BL_FILL_UPPER) || !sv_is_size(n) || sv_short(lda, n))
		return SV_INVALID_VALUE;
	job->uplo = "LU"[uplo];
	job->n = (int)n;
	job->lda = (int)lda;
	job->a = (void *)a;
	return SV_SUCCESS;
}

int sv_add_area(struct job *job, const void *area, int64_t bytes, int64_t elements)
{
	if (bytes < elements * (int64_t)bl_size(job->type))
		return SV_INVALID_VALUE;
	sv_span(job, area, bytes);
	return SV_SUCCESS;
}

void *sv_area(struct job *job, int64_t bytes)
{
	void *area = calloc(1, (size_t)bytes + 1);

	if (!area)
		for (int i = 0; i < job->batch; i++)
			job->info[i] = -1;
	return area;
}

void *sv_work(struct job *job, int64_t count, int *elements)
{
	void *area;

	*elements = (int)sv_least(count, INT32_MAX);
	area = sv_area(job, *elements * (int64_t)bl_size(job->type));
	if (area)
		*job->info = 0;
	return area;
}
