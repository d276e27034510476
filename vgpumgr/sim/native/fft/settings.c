/* SPDX-License-Identifier: Apache-2.0 */
/* Plans begin and end, and what is set of them; plans that are made at once. */
#include "fft.h"

int cufftCreate(int *plan)
{
	return plan ? ft_plan_new(plan) : FT_INVALID_VALUE;
}

int cufftDestroy(int plan)
{
	return ft_plan_end(plan);
}

int cufftSetStream(int plan, void *stream)
{
	struct ft_plan *p = ft_plan_find(plan);

	if (!p)
		return FT_INVALID_PLAN;
	p->stream = stream;
	return FT_SUCCESS;
}

int cufftSetWorkArea(int plan, void *area)
{
	struct ft_plan *p = ft_plan_find(plan);

	if (!p)
		return FT_INVALID_PLAN;
	ft_plan_release(p);
	p->area = (CUdeviceptr)area;
	return FT_SUCCESS;
}

int cufftSetAutoAllocation(int plan, int allocate)
{
	struct ft_plan *p = ft_plan_find(plan);

	if (!p)
		return FT_INVALID_PLAN;
	p->allocates = allocate != 0;
	return FT_SUCCESS;
}

int cufftGetSize(int plan, size_t *bytes)
{
	struct ft_plan *p = ft_plan_find(plan);

	if (!p || !p->made || !bytes)
		return p && p->made ? FT_INVALID_VALUE : FT_INVALID_PLAN;
	*bytes = p->bytes;
	return FT_SUCCESS;
}

/* ---- properties: kept, and nothing is another by them */

static int find_property(int plan, int property, bool to_set, int64_t **out)
{
	struct ft_plan *p = ft_plan_find(plan);

	if (!p || (to_set && p->made))
		return FT_INVALID_PLAN;
	if (property < 1 || property > FT_PROPERTIES)
		return FT_INVALID_VALUE;
	*out = &p->properties[property - 1];
	return FT_SUCCESS;
}

int cufftSetPlanPropertyInt64(int plan, int property, int64_t value)
{
	int64_t *place;
	int status = find_property(plan, property, true, &place);

	if (status == FT_SUCCESS)
		*place = value;
	return status;
}

int cufftResetPlanProperty(int plan, int property)
{
	return cufftSetPlanPropertyInt64(plan, property, 0);
}

int cufftGetPlanPropertyInt64(int plan, int property, int64_t *value)
{
	int64_t *place;
	int status = find_property(plan, property, false, &place);

	if (status == FT_SUCCESS && !value)
		status = FT_INVALID_VALUE;
	if (status == FT_SUCCESS)
		*value = *place;
	return status;
}

/* ---- a number and a plan at once */

/* One that could not be made ends. */
static int keep(int *plan, int number, int status)
{
	if (status == FT_SUCCESS)
		*plan = number;
	else
		ft_plan_end(number);
	return status;
}

int cufftPlan1d(int *plan, int nx, int type, int batch)
{
	size_t bytes;
	int number, status = plan ? ft_plan_new(&number) : FT_INVALID_VALUE;

	return status == FT_SUCCESS ? keep(plan, number, cufftMakePlan1d(number, nx, type, batch, &bytes)) : status;
}

int cufftPlan2d(int *plan, int nx, int ny, int type)
{
	size_t bytes;
	int number, status = plan ? ft_plan_new(&number) : FT_INVALID_VALUE;

	return status == FT_SUCCESS ? keep(plan, number, cufftMakePlan2d(number, nx, ny, type, &bytes)) : status;
}

int cufftPlan3d(int *plan, int nx, int ny, int nz, int type)
{
	size_t bytes;
	int number, status = plan ? ft_plan_new(&number) : FT_INVALID_VALUE;

	return status == FT_SUCCESS ? keep(plan, number, cufftMakePlan3d(number, nx, ny, nz, type, &bytes)) : status;
}

int cufftPlanMany(int *plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance,
		  int type, int batch)
{
	size_t bytes;
	int number, status = plan ? ft_plan_new(&number) : FT_INVALID_VALUE;

	if (status != FT_SUCCESS)
		return status;
	status = cufftMakePlanMany(number, rank, n, in, in_stride, in_distance, out, out_stride, out_distance, type, batch, &bytes);
	return keep(plan, number, status);
}
