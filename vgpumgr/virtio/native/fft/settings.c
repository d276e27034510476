/* SPDX-License-Identifier: Apache-2.0 */
/* What is set of a plan: nothing of it is sent before the plan is made or executed. */
#include "fft.h"

int cufftCreate(int *plan)
{
	return plan ? fft_new(plan) : FFT_INVALID_VALUE;
}

int cufftDestroy(int plan)
{
	struct fft_plan *p = fft_find(plan);

	return p ? fft_end(p) : FFT_INVALID_PLAN;
}

int cufftSetStream(int plan, void *stream)
{
	struct fft_plan *p = fft_enter(plan);

	if (!p)
		return FFT_INVALID_PLAN;
	p->stream = stream;
	fft_leave(p);
	return FFT_OK;
}

int cufftSetWorkArea(int plan, void *area)
{
	struct fft_plan *p = fft_enter(plan);

	if (!p)
		return FFT_INVALID_PLAN;
	fft_release(p);
	p->area = (uintptr_t)area;
	fft_leave(p);
	return FFT_OK;
}

/* Of a plan that is to be made. */
int cufftSetAutoAllocation(int plan, int allocate)
{
	struct fft_plan *p = fft_enter(plan);

	if (!p)
		return FFT_INVALID_PLAN;
	p->allocates = allocate != 0;
	fft_leave(p);
	return FFT_OK;
}

int cufftGetSize(int plan, size_t *bytes)
{
	struct fft_plan *p = fft_enter(plan);
	int status = !p || !p->made ? FFT_INVALID_PLAN : bytes ? FFT_OK : FFT_INVALID_VALUE;

	if (status == FFT_OK)
		*bytes = p->bytes;
	if (p)
		fft_leave(p);
	return status;
}

/* ---- properties, before it is made; one that was not set is 0 */

static int change(int plan, int property, int64_t value, bool set)
{
	struct fft_plan *p = fft_enter(plan);
	int status = p && !p->made ? FFT_OK : FFT_INVALID_PLAN;

	if (status == FFT_OK && (property < 1 || property > FFT_PROPERTIES))
		status = FFT_INVALID_VALUE;
	if (status == FFT_OK) {
		p->set = set ? p->set | 1ull << (property - 1) : p->set & ~(1ull << (property - 1));
		p->properties[property - 1] = value;
	}
	if (p)
		fft_leave(p);
	return status;
}

int cufftSetPlanPropertyInt64(int plan, int property, int64_t value)
{
	return change(plan, property, value, true);
}

int cufftResetPlanProperty(int plan, int property)
{
	return change(plan, property, 0, false);
}

int cufftGetPlanPropertyInt64(int plan, int property, int64_t *value)
{
	struct fft_plan *p = fft_enter(plan);
	int status = p ? FFT_OK : FFT_INVALID_PLAN;

	if (p && (!value || property < 1 || property > FFT_PROPERTIES))
		status = FFT_INVALID_VALUE;
	if (status == FFT_OK)
		*value = p->set >> (property - 1) & 1 ? p->properties[property - 1] : 0;
	if (p)
		fft_leave(p);
	return status;
}
