/* SPDX-License-Identifier: Apache-2.0 */
/* Contents that describe something without computing it: tensors, operators. What is refused was found with NVIDIA's library. */
#include <string.h>

#include "operations.h"

static int check_shape(const struct dn_content *c)
{
	const struct dn_value *dims = dn_content_value(c, DN_A_TENSOR_DIMS), *strides = dn_content_value(c, DN_A_TENSOR_STRIDES);

	if (!dims)
		return dn_fail(DN_BAD_PARAM, "a tensor without dimensions");
	if (!strides || strides->count != dims->count)
		return dn_fail(DN_BAD_PARAM, "a tensor with another number of strides than dimensions");
	for (int64_t i = 0; i < dims->count; i++)
		if (((int64_t *)dims->data)[i] < 0 || ((int64_t *)strides->data)[i] < 0)
			return dn_fail(DN_BAD_PARAM, "a negative dimension or stride");
	return DN_SUCCESS;
}

static int check_vector(const struct dn_content *c, int type)
{
	int64_t vector = dn_content_int(c, DN_A_TENSOR_VECTOR, 1);

	if (dn_content_int(c, DN_A_TENSOR_VECTOR_DIM, -1) >= dn_content_count(c, DN_A_TENSOR_DIMS))
		return dn_fail(DN_BAD_PARAM, "vectors of a dimension that the tensor does not have");
	if (type == DN_INT8X4 || type == DN_UINT8X4 || type == DN_INT8X32)
		return dn_fail(DN_NOT_SUPPORTED, "vectors are no types of elements any more");
	if ((type == DN_INT8 && vector != 1 && vector != 4 && vector != 32) || (type == DN_UINT8 && vector != 1 && vector != 4))
		return dn_fail(DN_NOT_SUPPORTED, "vectors of 8-bit integers have 4 or, with a sign, 32 elements");
	return DN_SUCCESS;
}

int dn_tensor_check(struct dn_content *c)
{
	int64_t alignment = dn_content_int(c, DN_A_TENSOR_ALIGNMENT, 1);
	int type = (int)dn_content_int(c, DN_A_TENSOR_TYPE, DN_FLOAT), status = check_shape(c);

	if (status != DN_SUCCESS)
		return status;
	status = check_vector(c, type);
	if (status != DN_SUCCESS)
		return status;
	if (!dn_type_bytes(type))
		return dn_fail(DN_BAD_PARAM, "no such type of elements");
	if (alignment <= 0 || alignment % (int64_t)dn_type_bytes(type))
		return dn_fail(DN_BAD_PARAM, "the alignment is no multiple of an element");
	if (dn_content_default(c, DN_A_TENSOR_TYPE, DN_FLOAT) && dn_content_default(c, DN_A_TENSOR_VECTOR, 1) &&
	    dn_content_default(c, DN_A_TENSOR_VECTOR_DIM, -1) && dn_content_default(c, DN_A_TENSOR_VIRTUAL, 0) &&
	    dn_content_default(c, DN_A_TENSOR_BY_VALUE, 0) && dn_content_default(c, DN_A_TENSOR_REORDERING, 0) &&
	    dn_content_default(c, DN_A_TENSOR_UID, 0))
		return DN_SUCCESS;
	return dn_fail(DN_NO_HOST_MEMORY, "no memory for a tensor");
}

/* Paddings that are not set are zeros. */
static bool pad(struct dn_content *c, int id, int64_t n)
{
	static const int64_t zeros[DN_MAX_DIMS];

	return dn_content_value(c, id) || dn_content_store(c, id, DN_T_INT64, n, zeros);
}

int dn_operator_check(struct dn_content *c)
{
	static const struct {
		int id;
		int64_t least;
	} arrays[] = { { DN_A_CONV_DILATIONS, 1 }, { DN_A_CONV_STRIDES, 1 }, { DN_A_CONV_PRE, 0 }, { DN_A_CONV_POST, 0 } };
	int64_t n = dn_content_int(c, DN_A_CONV_DIMS, 0);

	if (n < 1 || n > DN_MAX_DIMS - 2)
		return dn_fail(DN_BAD_PARAM, "no such number of spatial dimensions");
	if (!pad(c, DN_A_CONV_PRE, n) || !pad(c, DN_A_CONV_POST, n) || !dn_content_default(c, DN_A_CONV_TYPE, DN_FLOAT) ||
	    !dn_content_default(c, DN_A_CONV_MODE, 0))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for an operator");
	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
		const struct dn_value *v = dn_content_value(c, arrays[i].id);

		if (!v || v->count != n)
			return dn_fail(DN_BAD_PARAM, "not as many values as spatial dimensions");
		for (int64_t k = 0; k < n; k++)
			if (((int64_t *)v->data)[k] < arrays[i].least || ((int64_t *)v->data)[k] > INT32_MAX)
				return dn_fail(DN_BAD_PARAM, "a dilation, stride or padding that cannot be");
	}
	return DN_SUCCESS;
}

int dn_reduction_check(const struct dn_content *c)
{
	enum { AMAX = 4, LAST = 8 };
	int64_t kind = dn_content_int(c, DN_A_REDUCTION_OPERATOR, 0);

	if (kind < 0 || kind > LAST)
		return dn_fail(DN_BAD_PARAM, "no such reduction");
	return kind <= AMAX ? DN_SUCCESS : dn_fail(DN_NOT_SUPPORTED, "a reduction that graphs do not have");
}
