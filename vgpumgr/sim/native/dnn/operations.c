/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the backend interface: their operands and what they need of each other. */
#include <float.h>
#include <string.h>

#include "operations.h"

static void read_tensor(const struct dn_content *c, struct dn_tensor *out)
{
	const struct dn_value *dims = dn_content_value(c, DN_A_TENSOR_DIMS), *strides = dn_content_value(c, DN_A_TENSOR_STRIDES);

	memset(out, 0, sizeof *out);
	out->uid = dn_content_int(c, DN_A_TENSOR_UID, 0);
	out->type = (int)dn_content_int(c, DN_A_TENSOR_TYPE, 0);
	out->nd = (int)dims->count;
	memcpy(out->dims, dims->data, (size_t)dims->count * sizeof *out->dims);
	memcpy(out->strides, strides->data, (size_t)dims->count * sizeof *out->strides);
	out->alignment = dn_content_int(c, DN_A_TENSOR_ALIGNMENT, 1);
	out->is_virtual = dn_content_int(c, DN_A_TENSOR_VIRTUAL, 0);
	out->by_value = dn_content_int(c, DN_A_TENSOR_BY_VALUE, 0);
}

/* Sizes that can be multiplied without care. Empty dimensions count as one. */
static bool is_moderate(const struct dn_tensor *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->nd; i++)
		if (__builtin_mul_overflow(n, t->dims[i] ? t->dims[i] : 1, &n) || n > INT32_MAX)
			return false;
	return dn_bytes(t) >= 0;
}

/* Reads operands by their attributes (-1: none). */
static int read_operands(const struct dn_content *c, const int ids[4], unsigned needed, struct dn_operands *out)
{
	memset(out, 0, sizeof *out);
	for (int i = 0; i < 4; i++) {
		const struct dn_content *tensor = ids[i] < 0 ? NULL : dn_content_ref(c, ids[i], 0);

		if (!tensor && (needed >> i & 1))
			return dn_fail(DN_BAD_PARAM, "an operation without one of its tensors");
		if (!tensor)
			continue;
		read_tensor(tensor, &out->tensors[i]);
		if (!is_moderate(&out->tensors[i]))
			return dn_fail(DN_BAD_SHAPE, "a tensor has more elements than are simulated");
		out->present[i] = &out->tensors[i];
	}
	return DN_SUCCESS;
}

static bool is_wide(int compute, const struct dn_operands *operands)
{
	bool wide = compute == DN_DOUBLE || compute == DN_INT32;

	for (int i = 0; i < 4; i++) {
		int type = operands->present[i] ? operands->present[i]->type : DN_FLOAT;

		wide |= type == DN_DOUBLE || type == DN_INT32 || type == DN_INT64;
	}
	return wide;
}

static void read_operator(const struct dn_content *c, struct dn_operator *out)
{
	memset(out, 0, sizeof *out);
	out->nd = (int)dn_content_int(c, DN_A_CONV_DIMS, 0);
	out->compute = (int)dn_content_int(c, DN_A_CONV_TYPE, DN_FLOAT);
	out->flip = dn_content_int(c, DN_A_CONV_MODE, 0) == 0;
	for (int i = 0; i < out->nd; i++) {
		out->dilation[i] = ((int64_t *)dn_content_value(c, DN_A_CONV_DILATIONS)->data)[i];
		out->stride[i] = ((int64_t *)dn_content_value(c, DN_A_CONV_STRIDES)->data)[i];
		out->pre[i] = ((int64_t *)dn_content_value(c, DN_A_CONV_PRE)->data)[i];
		out->post[i] = ((int64_t *)dn_content_value(c, DN_A_CONV_POST)->data)[i];
	}
}

static int read_convolution(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands)
{
	/* attributes follow each other: W X Y, W DX DY, but DW X DY; operands are X W Y */
	int first = c->type == DN_D_FORWARD ? DN_A_FORWARD : c->type == DN_D_BACKWARD_DATA ? DN_A_BACKWARD_DATA : DN_A_BACKWARD_FILTER;
	const int ids[4] = { first + 4, first + 3, first + 5, -1 };
	const struct dn_content *description = dn_content_ref(c, first + 2, 0);
	struct dn_operator operator;
	int status = read_operands(c, ids, 7, operands);

	if (status != DN_SUCCESS)
		return status;
	if (!description)
		return dn_fail(DN_BAD_PARAM, "a convolution without its operator");
	read_operator(description, &operator);
	out->output = c->type == DN_D_FORWARD ? 2 : c->type == DN_D_BACKWARD_DATA ? 0 : 1;
	out->compute = operator.compute;
	out->wide = is_wide(operator.compute, operands);
	out->alpha = dn_content_real(c, first, 1);
	out->beta = dn_content_real(c, first + 1, 0);
	return dn_geometry_make(&operator, operands->present[0], operands->present[1], operands->present[2], &out->geometry);
}

static void read_mode(const struct dn_content *c, const struct dn_content *operation, struct dn_pointwise *out)
{
	*out = (struct dn_pointwise){
		.mode = (int)dn_content_int(c, DN_A_POINTWISE_MODE, 0), .lower = dn_content_real(c, DN_A_RELU_LOWER, 0),
		.upper = dn_content_real(c, DN_A_RELU_UPPER, DBL_MAX), .slope = dn_content_real(c, DN_A_RELU_SLOPE, 0),
		.elu = dn_content_real(c, DN_A_ELU_ALPHA, 1), .softplus = dn_content_real(c, DN_A_SOFTPLUS_BETA, 1),
		.swish = dn_content_real(c, DN_A_SWISH_BETA, 1), .axis = (int)dn_content_int(c, DN_A_POINTWISE_AXIS, -1),
		.alpha1 = dn_content_real(operation, DN_A_PW_ALPHA1, 1), .alpha2 = dn_content_real(operation, DN_A_PW_ALPHA2, 1),
	};
}

/* Each dimension of an input is the output's, or 1. */
static int check_broadcast(const struct dn_tensor *in, const struct dn_tensor *out)
{
	if (in->nd != out->nd)
		return dn_fail(DN_BAD_PARAM, "the ranks of a pointwise operation's tensors differ");
	for (int i = 0; i < in->nd; i++)
		if (in->dims[i] != out->dims[i] && in->dims[i] != 1)
			return dn_fail(DN_BAD_PARAM, "an operand of a pointwise operation does not fit the result");
	return DN_SUCCESS;
}

static int read_pointwise(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands)
{
	const struct dn_content *mode = dn_content_ref(c, DN_A_PW_DESC, 0);
	int ids[4] = { DN_A_PW_X, DN_A_PW_B, DN_A_PW_T, DN_A_PW_Y }, inputs, status;

	if (!mode)
		return dn_fail(DN_BAD_PARAM, "a pointwise operation without its mode");
	read_mode(mode, c, &out->pointwise);
	inputs = dn_pointwise_inputs(out->pointwise.mode);
	if (!inputs)
		return dn_fail(DN_BAD_PARAM, "no such pointwise mode");
	if (dn_pointwise_is_gradient(out->pointwise.mode)) {
		ids[0] = DN_A_PW_DY;
		ids[1] = DN_A_PW_X;
		ids[3] = DN_A_PW_DX;
	}
	for (int i = inputs; i < 3; i++) /* what a mode does not need is not used */
		ids[i] = -1;
	status = read_operands(c, ids, 8 | ((1u << inputs) - 1), operands);
	if (status != DN_SUCCESS)
		return status;
	out->output = 3;
	out->compute = (int)dn_content_int(mode, DN_A_POINTWISE_PRECISION, DN_FLOAT);
	for (int i = 0; i < inputs && status == DN_SUCCESS; i++)
		status = check_broadcast(operands->present[i], operands->present[3]);
	if (out->pointwise.axis >= operands->present[3]->nd || (out->pointwise.axis < 0 && dn_pointwise_needs_axis(out->pointwise.mode)))
		return dn_fail(DN_BAD_PARAM, "no such axis");
	return status;
}

/* A batch dimension of an operand is the result's, or 1. */
static int read_product(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands)
{
	static const int ids[4] = { DN_A_MATMUL_A, DN_A_MATMUL_B, DN_A_MATMUL_C, -1 };
	const struct dn_content *description = dn_content_ref(c, DN_A_MATMUL_DESC, 0);
	const struct dn_tensor *a = &operands->tensors[0], *b = &operands->tensors[1], *r = &operands->tensors[2];
	int row, col, status = read_operands(c, ids, 7, operands);

	if (status != DN_SUCCESS)
		return status;
	if (!description)
		return dn_fail(DN_BAD_PARAM, "a product without its description");
	if (r->nd < 2 || a->nd != r->nd || b->nd != r->nd)
		return dn_fail(DN_BAD_PARAM, "the ranks of a product's tensors differ");
	row = r->nd - 2;
	col = r->nd - 1;
	if (a->dims[col] != b->dims[row] || a->dims[row] != r->dims[row] || b->dims[col] != r->dims[col])
		return dn_fail(DN_BAD_PARAM, "the sizes of a product's matrices do not fit");
	for (int i = 0; i < row; i++)
		if ((a->dims[i] != b->dims[i] && a->dims[i] != 1 && b->dims[i] != 1) ||
		    r->dims[i] != (a->dims[i] == 1 ? b->dims[i] : a->dims[i]))
			return dn_fail(DN_BAD_PARAM, "the batches of a product do not fit");
	out->output = 2;
	out->compute = (int)dn_content_int(description, DN_A_MATMUL_TYPE, DN_FLOAT);
	out->wide = is_wide(out->compute, operands);
	return DN_SUCCESS;
}

static int read_reduction(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands)
{
	static const int ids[4] = { DN_A_REDUCTION_X, DN_A_REDUCTION_Y, -1, -1 };
	const struct dn_content *description = dn_content_ref(c, DN_A_REDUCTION_DESC, 0);
	const struct dn_tensor *x = &operands->tensors[0], *y = &operands->tensors[1];
	int status = read_operands(c, ids, 3, operands);

	if (status != DN_SUCCESS)
		return status;
	if (!description)
		return dn_fail(DN_BAD_PARAM, "a reduction without its description");
	if (x->nd != y->nd)
		return dn_fail(DN_BAD_PARAM, "the ranks of a reduction's tensors differ");
	for (int i = 0; i < x->nd; i++)
		if (!y->dims[i] || x->dims[i] % y->dims[i])
			return dn_fail(DN_BAD_PARAM, "a dimension of a reduction's result is no divisor of the operand's");
	out->output = 1;
	out->compute = (int)dn_content_int(description, DN_A_REDUCTION_TYPE, DN_FLOAT);
	out->reduction = (int)dn_content_int(description, DN_A_REDUCTION_OPERATOR, 0);
	return DN_SUCCESS;
}

int dn_operation_read(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands)
{
	*out = (struct dn_operation){ .kind = c->type, .alpha = 1 };
	switch (c->type) {
	case DN_D_POINTWISE_OP:
		return read_pointwise(c, out, operands);
	case DN_D_MATMUL_OP:
		return read_product(c, out, operands);
	case DN_D_REDUCTION_OP:
		return read_reduction(c, out, operands);
	default:
		return read_convolution(c, out, operands);
	}
}
