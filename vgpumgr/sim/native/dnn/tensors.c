/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor descriptors. What is refused was found with NVIDIA's library. */
#include <string.h>

#include "classic.h"
#include "exports.h"

int dn_object_give(enum dn_kind kind, size_t bytes, void **place)
{
	if (!place)
		return dn_fail(DN_BAD_PARAM, "no place for the descriptor");
	*place = dn_object_create(kind, bytes);
	return *place ? DN_SUCCESS : dn_fail(DN_NO_HOST_MEMORY, "no memory for a descriptor");
}

int dn_object_take(void *pointer, enum dn_kind kind)
{
	if (!pointer || dn_object_destroy(pointer, kind))
		return DN_SUCCESS;
	return dn_fail(DN_BAD_PARAM, "no descriptor");
}

double dn_scale(const void *scale, int type)
{
	return type == DN_DOUBLE ? *(const double *)scale : *(const float *)scale;
}

const struct dn_tensor *dn_tensor_find(const void *descriptor)
{
	const struct dn_tensor_descriptor *d = dn_object_find(descriptor, DN_TENSOR);

	return d && d->tensor.nd ? &d->tensor : NULL;
}

void dn_tensor_spread(struct dn_tensor *t, bool last)
{
	int64_t step = 1;

	if (last) {
		t->strides[1] = 1;
		step = t->dims[1];
	}
	for (int i = t->nd - 1; i >= 0; i--) {
		if (last && i == 1)
			continue;
		t->strides[i] = step;
		step *= t->dims[i];
	}
}

int dn_tensor_sizes(struct dn_tensor *t, int type, int nd, const int *dims)
{
	int64_t elements = 1;

	if (!dims || !dn_type_bytes(type))
		return dn_fail(DN_BAD_PARAM, "no sizes, or no such type");
	memset(t, 0, sizeof *t);
	t->type = type;
	t->nd = nd;
	for (int i = 0; i < nd; i++) {
		if (dims[i] <= 0)
			return dn_fail(DN_BAD_PARAM, "a size that is not positive");
		t->dims[i] = dims[i];
		elements *= dims[i];
		if (elements > INT32_MAX)
			return dn_fail(DN_NOT_SUPPORTED, "more elements than 32 bits count");
	}
	return DN_SUCCESS;
}

int cudnnCreateTensorDescriptor(void **descriptor)
{
	return dn_object_give(DN_TENSOR, sizeof(struct dn_tensor_descriptor), descriptor);
}

int cudnnDestroyTensorDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_TENSOR);
}

/* Puts a tensor into a descriptor once it is known to be good. */
static int set(void *descriptor, int status, const struct dn_tensor *t)
{
	struct dn_tensor_descriptor *d = dn_object_find(descriptor, DN_TENSOR);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no tensor descriptor");
	if (status == DN_SUCCESS)
		d->tensor = *t;
	return status;
}

static int set_packed(void *descriptor, int format, int type, int nd, const int *dims)
{
	struct dn_tensor t = { 0 };
	bool vectors = type == DN_INT8X4 || type == DN_UINT8X4 || type == DN_INT8X32;
	int status;

	if (format < DN_NCHW || format > DN_NCHW_VECT_C || (format == DN_NCHW_VECT_C) != vectors)
		return dn_fail(DN_BAD_PARAM, "no such format, or not with this type");
	status = dn_tensor_sizes(&t, type, nd, dims);
	if (status == DN_SUCCESS)
		dn_tensor_spread(&t, format == DN_NHWC);
	return set(descriptor, status, &t);
}

static int set_strided(void *descriptor, int type, int nd, const int *dims, const int *strides)
{
	struct dn_tensor t = { 0 };
	int status = strides ? dn_tensor_sizes(&t, type, nd, dims) : dn_fail(DN_BAD_PARAM, "no strides");

	for (int i = 0; i < nd && status == DN_SUCCESS; i++) {
		if (strides[i] <= 0)
			status = dn_fail(DN_BAD_PARAM, "a stride that is not positive");
		t.strides[i] = strides[i];
	}
	if (status == DN_SUCCESS && dn_bytes(&t) / (int64_t)dn_type_bytes(type) > INT32_MAX)
		status = dn_fail(DN_NOT_SUPPORTED, "more elements than 32 bits count");
	return set(descriptor, status, &t);
}

int cudnnSetTensor4dDescriptor(void *descriptor, int format, int type, int n, int c, int h, int w)
{
	return set_packed(descriptor, format, type, 4, (const int[]){ n, c, h, w });
}

int cudnnSetTensor4dDescriptorEx(void *descriptor, int type, int n, int c, int h, int w, int ns, int cs, int hs, int ws)
{
	return set_strided(descriptor, type, 4, (const int[]){ n, c, h, w }, (const int[]){ ns, cs, hs, ws });
}

static int check_rank(int nd)
{
	if (nd > DN_MAX_DIMS)
		return dn_fail(DN_NOT_SUPPORTED, "more than eight dimensions");
	return nd < 2 ? dn_fail(DN_BAD_PARAM, "fewer than two dimensions") : DN_SUCCESS;
}

int cudnnSetTensorNdDescriptor(void *descriptor, int type, int nd, const int *dims, const int *strides)
{
	int status = check_rank(nd);

	return status == DN_SUCCESS ? set_strided(descriptor, type, nd, dims, strides) : status;
}

int cudnnSetTensorNdDescriptorEx(void *descriptor, int format, int type, int nd, const int *dims)
{
	int status = check_rank(nd);

	return status == DN_SUCCESS ? set_packed(descriptor, format, type, nd, dims) : status;
}

/* What the program wants to know: a null place is left out. */
static void put(int *place, int64_t value)
{
	if (place)
		*place = (int)value;
}

int cudnnGetTensor4dDescriptor(const void *descriptor, int *type, int *n, int *c, int *h, int *w, int *ns, int *cs, int *hs, int *ws)
{
	const struct dn_tensor_descriptor *d = dn_object_find(descriptor, DN_TENSOR);
	int *const sizes[] = { n, c, h, w }, *const strides[] = { ns, cs, hs, ws };

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no tensor descriptor");
	put(type, d->tensor.type);
	for (int i = 0; i < 4; i++) {
		put(sizes[i], d->tensor.dims[i]);
		put(strides[i], d->tensor.strides[i]);
	}
	return DN_SUCCESS;
}

int cudnnGetTensorNdDescriptor(const void *descriptor, int wanted, int *type, int *nd, int *dims, int *strides)
{
	const struct dn_tensor_descriptor *d = dn_object_find(descriptor, DN_TENSOR);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no tensor descriptor");
	put(type, d->tensor.type);
	put(nd, d->tensor.nd);
	for (int i = 0; i < wanted && i < d->tensor.nd; i++) {
		put(dims ? &dims[i] : NULL, d->tensor.dims[i]);
		put(strides ? &strides[i] : NULL, d->tensor.strides[i]);
	}
	return DN_SUCCESS;
}

int cudnnGetTensorSizeInBytes(const void *descriptor, size_t *bytes)
{
	const struct dn_tensor *t = dn_tensor_find(descriptor);

	if (!t || !bytes)
		return dn_fail(DN_BAD_PARAM, "no tensor, or no place for its size");
	*bytes = (size_t)dn_bytes(t);
	return DN_SUCCESS;
}
