/* SPDX-License-Identifier: Apache-2.0 */
/* Calls before graphs on whole tensors: copies in another layout, operations of two tensors, reductions. */
#include "builder.h"
#include "classic.h"
#include "exports.h"

/* Modes of pointwise operations (pointwise.c), and cudnnOpTensorOp_t. */
enum { MODE_ADD = 0, MODE_IDENTITY = 21 };
enum { OP_SQRT = 4, OP_NOT = 5 };
enum { LAST_NAN = 1, LAST_REDUCTION = 8, LAST_INDICES = 3 };

static const struct dn_setting plain = { .engine = 1, .tiles = 1 };

struct operation {
	struct dn_object object;
	int kind, compute, nan;
};

struct reduction {
	struct dn_object object;
	int kind, compute, nan, indices, index_type;
};

static void put(int *place, int value)
{
	if (place)
		*place = value;
}

/* Each dimension of a tensor is the result's, or 1 where that is allowed. */
static bool fits(const struct dn_tensor *t, const struct dn_tensor *result, bool repeated)
{
	if (!t || !result || t->nd != result->nd)
		return false;
	for (int i = 0; i < t->nd; i++)
		if (t->dims[i] != result->dims[i] && !(repeated && t->dims[i] == 1))
			return false;
	return true;
}

int cudnnTransformTensor(void *handle, const void *alpha, const void *x_desc, const void *x, const void *beta, const void *y_desc,
			 void *y)
{
	const struct dn_tensor *from = dn_tensor_find(x_desc), *to = dn_tensor_find(y_desc);
	struct dn_tensor in, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!fits(from, to, false) || !x || !y || !alpha || !beta)
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the tensors differ");
	o = dn_builder_map(MODE_IDENTITY, to->type, dn_scale(alpha, to->type), dn_scale(beta, to->type));
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, from, x);
	out = dn_builder_tensor(&b, 1, to, y);
	dn_builder_add(&b, &o, &in, NULL, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}

int cudnnCreateOpTensorDescriptor(void **descriptor)
{
	return dn_object_give(DN_OPERATION, sizeof(struct operation), descriptor);
}

int cudnnDestroyOpTensorDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_OPERATION);
}

int cudnnSetOpTensorDescriptor(void *descriptor, int kind, int compute, int nan)
{
	struct operation *d = dn_object_find(descriptor, DN_OPERATION);

	if (!d || kind < 0 || kind > OP_NOT || (compute != DN_FLOAT && compute != DN_DOUBLE) || nan < 0 || nan > LAST_NAN)
		return dn_fail(DN_BAD_PARAM, "no descriptor of an operation, or no such one");
	d->kind = kind;
	d->compute = compute;
	d->nan = nan;
	return DN_SUCCESS;
}

int cudnnGetOpTensorDescriptor(const void *descriptor, int *kind, int *compute, int *nan)
{
	const struct operation *d = dn_object_find(descriptor, DN_OPERATION);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no descriptor of an operation");
	put(kind, d->kind);
	put(compute, d->compute);
	put(nan, d->nan);
	return DN_SUCCESS;
}

/* C = op(alpha1 * A, alpha2 * B) + beta * C. The first modes of both interfaces have the same numbers; "not" is 1 - A. */
int cudnnOpTensor(void *handle, const void *descriptor, const void *alpha1, const void *a_desc, const void *a, const void *alpha2,
		  const void *b_desc, const void *b, const void *beta, const void *c_desc, void *c)
{
	static const int modes[] = { 0, 1, 2, 3, 4, MODE_ADD };
	static const double one = 1;
	const struct operation *d = dn_object_find(descriptor, DN_OPERATION);
	const struct dn_tensor *first = dn_tensor_find(a_desc), *second = dn_tensor_find(b_desc), *to = dn_tensor_find(c_desc);
	bool single = d && d->kind >= OP_SQRT;
	struct dn_tensor left, right = { 0 }, result;
	struct dn_operation o;
	struct dn_builder builder;

	if (!d || !fits(first, to, false) || !a || !c || !alpha1 || !beta || (!single && (!alpha2 || !b || !fits(second, to, true))))
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the tensors do not fit");
	o = dn_builder_map(modes[d->kind], d->compute, 1, dn_scale(beta, d->compute));
	o.pointwise.alpha1 = dn_scale(alpha1, d->compute);
	dn_builder_begin(&builder, 1);
	left = dn_builder_tensor(&builder, 0, first, a);
	result = dn_builder_tensor(&builder, 2, to, c);
	if (d->kind == OP_NOT) {
		right = dn_builder_tensor(&builder, 1, to, &one);
		right.type = DN_DOUBLE;
		right.by_value = true;
		for (int i = 0; i < right.nd; i++)
			right.dims[i] = 1;
		o.pointwise.alpha1 = -o.pointwise.alpha1;
	} else if (!single) {
		right = dn_builder_tensor(&builder, 1, second, b);
		o.pointwise.alpha2 = dn_scale(alpha2, d->compute);
	}
	dn_builder_add(&builder, &o, &left, d->kind == OP_SQRT ? NULL : &right, NULL, &result);
	return dn_builder_post(&builder, handle, &plain, NULL);
}

int cudnnCreateReduceTensorDescriptor(void **descriptor)
{
	return dn_object_give(DN_REDUCTION, sizeof(struct reduction), descriptor);
}

int cudnnDestroyReduceTensorDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_REDUCTION);
}

int cudnnSetReduceTensorDescriptor(void *descriptor, int kind, int compute, int nan, int indices, int index_type)
{
	struct reduction *d = dn_object_find(descriptor, DN_REDUCTION);

	if (!d || kind < 0 || kind > LAST_REDUCTION || (compute != DN_FLOAT && compute != DN_DOUBLE) || nan < 0 || nan > LAST_NAN)
		return dn_fail(DN_BAD_PARAM, "no descriptor of a reduction, or no such one");
	if (indices < 0 || indices > 1 || index_type < 0 || index_type > LAST_INDICES)
		return dn_fail(DN_BAD_PARAM, "no such indices");
	d->kind = kind;
	d->compute = compute;
	d->nan = nan;
	d->indices = indices;
	d->index_type = index_type;
	return DN_SUCCESS;
}

int cudnnGetReduceTensorDescriptor(const void *descriptor, int *kind, int *compute, int *nan, int *indices, int *index_type)
{
	const struct reduction *d = dn_object_find(descriptor, DN_REDUCTION);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no descriptor of a reduction");
	put(kind, d->kind);
	put(compute, d->compute);
	put(nan, d->nan);
	put(indices, d->indices);
	put(index_type, d->index_type);
	return DN_SUCCESS;
}

/* Neither a workspace nor a place for indices is used. */
static int get_none(const void *handle, const void *descriptor, const void *a_desc, const void *c_desc, size_t *bytes)
{
	if (!dn_object_find(handle, DN_HANDLE) || !dn_object_find(descriptor, DN_REDUCTION) || !dn_tensor_find(a_desc) ||
	    !dn_tensor_find(c_desc) || !bytes)
		return dn_fail(DN_BAD_PARAM, "an argument is missing");
	*bytes = 0;
	return DN_SUCCESS;
}

int cudnnGetReductionIndicesSize(void *handle, const void *descriptor, const void *a_desc, const void *c_desc, size_t *bytes)
{
	return get_none(handle, descriptor, a_desc, c_desc, bytes);
}

int cudnnGetReductionWorkspaceSize(void *handle, const void *descriptor, const void *a_desc, const void *c_desc, size_t *bytes)
{
	return get_none(handle, descriptor, a_desc, c_desc, bytes);
}

int cudnnReduceTensor(void *handle, const void *descriptor, void *indices, size_t indices_bytes, void *workspace, size_t bytes,
		      const void *alpha, const void *a_desc, const void *a, const void *beta, const void *c_desc, void *c)
{
	const struct reduction *d = dn_object_find(descriptor, DN_REDUCTION);
	const struct dn_tensor *from = dn_tensor_find(a_desc), *to = dn_tensor_find(c_desc);
	struct dn_operation o = { .kind = DN_D_REDUCTION_OP, .output = 1 };
	struct dn_tensor in, out;
	struct dn_builder b;

	(void)indices;
	(void)indices_bytes;
	(void)workspace;
	(void)bytes;
	if (!d || !fits(to, from, true) || !a || !c || !alpha || !beta)
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the tensors do not fit");
	if (d->indices)
		return dn_fail(DN_NOT_SUPPORTED, "indices are not simulated");
	o.reduction = d->kind;
	o.compute = d->compute;
	o.alpha = dn_scale(alpha, d->compute);
	o.beta = dn_scale(beta, d->compute);
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, from, a);
	out = dn_builder_tensor(&b, 1, to, c);
	dn_builder_add(&b, &o, &in, &out, NULL, NULL);
	return dn_builder_post(&b, handle, &plain, NULL);
}
