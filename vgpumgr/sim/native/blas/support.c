/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the functions of cuBLAS that take several. */
#include "tables.h"
#include "families.h"
#include "product_types.h"

int bl_call_scale(const struct function *f, const int64_t *args)
{
	const struct family *family = f->family;
	int result = -1, compute = -1;

	for (int i = 0; i < family->n; i++) {
		if (family->args[i].kind == ARG_TYPE)
			result = (int)args[i]; /* C's is the last */
		if (family->args[i].kind == ARG_COMPUTE)
			compute = (int)args[i];
	}
	return bl_scale_type(compute, bl_is_complex(result));
}

enum { MAX_TYPES = 4 };

static int find_types(const struct family *family, const int64_t *args, int *types)
{
	int n = 0;

	for (int i = 0; i < family->n; i++)
		if (family->args[i].kind == ARG_TYPE)
			types[n++] = (int)args[i];
	return n;
}

static bool is_vector_type(int type)
{
	return type == BL_R_32F || type == BL_R_64F || type == BL_C_32F || type == BL_C_64F || type == BL_R_16F ||
	       type == BL_R_16BF;
}

static int real_of(int type)
{
	return type == BL_C_32F ? BL_R_32F : type == BL_C_64F ? BL_R_64F : type;
}

/* What vectors of a type are computed in: half precision in single. */
static bool may_execute(int type, int execution)
{
	return execution == bl_base(type) || execution == real_of(bl_base(type));
}

static int need(bool good)
{
	return good ? BL_SUCCESS : BL_NOT_SUPPORTED;
}

/* alpha has the type of the vectors, or the one that they are computed in. */
static bool may_scale(int alpha, int x, int execution)
{
	return alpha == x || alpha == execution || alpha == bl_base(x);
}

/* Types in the order of the arguments. */
static int check_vectors(const struct family *f, const int *t)
{
	if (f == &family_nrm2Ex || f == &family_asumEx)
		return need(is_vector_type(t[0]) && t[1] == real_of(t[0]) && may_execute(t[0], t[2]));
	if (f == &family_dotEx || f == &family_dotcEx)
		return need(is_vector_type(t[0]) && t[0] == t[1] && t[2] == t[0] && may_execute(t[0], t[3]));
	if (f == &family_scalEx)
		return need(is_vector_type(t[1]) && may_scale(t[0], t[1], t[2]) && may_execute(t[1], t[2]));
	if (f == &family_axpyEx)
		return need(is_vector_type(t[1]) && t[1] == t[2] && may_scale(t[0], t[1], t[3]) && may_execute(t[1], t[3]));
	if (f == &family_rotEx || f == &family_rotmEx)
		return need(is_vector_type(t[0]) && t[0] == t[1] && (t[2] == real_of(t[0]) || may_scale(t[2], t[0], t[3])) &&
			    may_execute(t[0], t[3]) && (f == &family_rotEx || !bl_is_complex(t[0])));
	if (f == &family_amaxEx || f == &family_aminEx)
		return need(is_vector_type(t[0]));
	return need(bl_size(t[0]) && t[0] == t[1]); /* copies */
}

static int check_products(const struct function *f, const int64_t *args, const int *t)
{
	const struct family *family = f->family;
	bool complex_scale = f->scalar == BL_C_32F;
	int compute = -1;

	if (family == &family_syrkEx || family == &family_herkEx)
		return need((t[0] == BL_C_8I || t[0] == BL_C_32F) && t[1] == BL_C_32F);
	if (family == &family_gemmT)
		return bl_check_gemm(BL_COMPUTE_32F, complex_scale ? BL_C_32F : BL_R_32F, t[0], t[1], t[2]);
	for (int i = 0; i < family->n; i++)
		if (family->args[i].kind == ARG_COMPUTE)
			compute = (int)args[i];
	if (bl_scale_type(compute, false) < 0)
		return BL_INVALID_VALUE;
	return bl_check_gemm(compute, bl_scale_type(compute, bl_is_complex(t[2])), t[0], t[1], t[2]);
}

int bl_check_types(const struct function *function, const int64_t *args)
{
	const struct family *f = function->family;
	int types[MAX_TYPES] = { 0 }, n = find_types(f, args, types);

	if (!n)
		return BL_SUCCESS;
	if (f == &family_syrkEx || f == &family_herkEx || n == 3) {
		if (f == &family_syrkEx || f == &family_herkEx || f == &family_gemmT || f == &family_gemmEx ||
		    f == &family_gemmBatchedEx || f == &family_gemmStridedEx)
			return check_products(function, args, types);
	}
	return check_vectors(f, types);
}
