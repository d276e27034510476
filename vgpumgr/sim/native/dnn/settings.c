/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of filters, activations and convolutions. What is refused was found with NVIDIA's library. */
#include <string.h>

#include "classic.h"
#include "exports.h"

enum { LAST_MATH = 3, LAST_NAN = 1 };

static void put(int *place, int64_t value)
{
	if (place)
		*place = (int)value;
}

int cudnnCreateFilterDescriptor(void **descriptor)
{
	return dn_object_give(DN_FILTER, sizeof(struct dn_filter_descriptor), descriptor);
}

int cudnnDestroyFilterDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_FILTER);
}

int cudnnSetFilterNdDescriptor(void *descriptor, int type, int format, int nd, const int *dims)
{
	struct dn_filter_descriptor *d = dn_object_find(descriptor, DN_FILTER);
	struct dn_tensor t = { 0 };
	int status;

	if (!d || format < DN_NCHW || format > DN_NCHW_VECT_C || nd < 3)
		return dn_fail(DN_BAD_PARAM, "no filter descriptor, no such format, or fewer than three dimensions");
	if (nd > DN_MAX_DIMS)
		return dn_fail(DN_NOT_SUPPORTED, "more than eight dimensions");
	status = dn_tensor_sizes(&t, type, nd, dims);
	if (status != DN_SUCCESS)
		return status;
	dn_tensor_spread(&t, format == DN_NHWC);
	d->tensor = t;
	d->format = format;
	return DN_SUCCESS;
}

int cudnnSetFilter4dDescriptor(void *descriptor, int type, int format, int k, int c, int h, int w)
{
	return cudnnSetFilterNdDescriptor(descriptor, type, format, 4, (const int[]){ k, c, h, w });
}

int cudnnGetFilterNdDescriptor(const void *descriptor, int wanted, int *type, int *format, int *nd, int *dims)
{
	const struct dn_filter_descriptor *d = dn_object_find(descriptor, DN_FILTER);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no filter descriptor");
	put(type, d->tensor.type);
	put(format, d->format);
	put(nd, d->tensor.nd);
	for (int i = 0; i < wanted && i < d->tensor.nd && dims; i++)
		dims[i] = (int)d->tensor.dims[i];
	return DN_SUCCESS;
}

int cudnnGetFilter4dDescriptor(const void *descriptor, int *type, int *format, int *k, int *c, int *h, int *w)
{
	int *const places[] = { k, c, h, w };
	int dims[DN_MAX_DIMS] = { 0 }, status = cudnnGetFilterNdDescriptor(descriptor, 4, type, format, NULL, dims);

	for (int i = 0; i < 4 && status == DN_SUCCESS; i++)
		put(places[i], dims[i]);
	return status;
}

int cudnnGetFilterSizeInBytes(const void *descriptor, size_t *bytes)
{
	const struct dn_filter_descriptor *d = dn_object_find(descriptor, DN_FILTER);

	if (!d || !d->tensor.nd || !bytes)
		return dn_fail(DN_BAD_PARAM, "no filter, or no place for its size");
	*bytes = (size_t)dn_bytes(&d->tensor);
	return DN_SUCCESS;
}

int cudnnCreateActivationDescriptor(void **descriptor)
{
	int status = dn_object_give(DN_ACTIVATION, sizeof(struct dn_activation_descriptor), descriptor);

	if (status == DN_SUCCESS)
		((struct dn_activation_descriptor *)*descriptor)->swish_beta = 1;
	return status;
}

int cudnnDestroyActivationDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_ACTIVATION);
}

int cudnnSetActivationDescriptor(void *descriptor, int mode, int nan, double coefficient)
{
	struct dn_activation_descriptor *d = dn_object_find(descriptor, DN_ACTIVATION);

	if (!d || mode < DN_ACT_SIGMOID || mode > DN_ACT_SWISH || nan < 0 || nan > LAST_NAN)
		return dn_fail(DN_BAD_PARAM, "no activation descriptor, or no such mode");
	d->mode = mode;
	d->nan = nan;
	d->coefficient = coefficient;
	return DN_SUCCESS;
}

int cudnnGetActivationDescriptor(const void *descriptor, int *mode, int *nan, double *coefficient)
{
	const struct dn_activation_descriptor *d = dn_object_find(descriptor, DN_ACTIVATION);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no activation descriptor");
	put(mode, d->mode);
	put(nan, d->nan);
	if (coefficient)
		*coefficient = d->coefficient;
	return DN_SUCCESS;
}

int cudnnSetActivationDescriptorSwishBeta(void *descriptor, double beta)
{
	struct dn_activation_descriptor *d = dn_object_find(descriptor, DN_ACTIVATION);

	if (!d)
		return dn_fail(DN_BAD_PARAM, "no activation descriptor");
	d->swish_beta = beta;
	return DN_SUCCESS;
}

int cudnnGetActivationDescriptorSwishBeta(void *descriptor, double *beta)
{
	const struct dn_activation_descriptor *d = dn_object_find(descriptor, DN_ACTIVATION);

	if (!d || !beta)
		return dn_fail(DN_BAD_PARAM, "no activation descriptor, or no place for its value");
	*beta = d->swish_beta;
	return DN_SUCCESS;
}

int cudnnCreateConvolutionDescriptor(void **descriptor)
{
	int status = dn_object_give(DN_CONVOLUTION, sizeof(struct dn_convolution_descriptor), descriptor);

	if (status == DN_SUCCESS)
		((struct dn_convolution_descriptor *)*descriptor)->groups = 1;
	return status;
}

int cudnnDestroyConvolutionDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_CONVOLUTION);
}

int cudnnSetConvolutionNdDescriptor(void *descriptor, int nd, const int *pads, const int *strides, const int *dilations, int mode,
				    int compute)
{
	struct dn_convolution_descriptor *d = dn_object_find(descriptor, DN_CONVOLUTION);
	struct dn_operator o = { .nd = nd, .compute = compute, .flip = mode == 0 };

	if (!d || nd < 0 || mode < 0 || mode > 1 || !dn_type_bytes(compute) || (nd && (!pads || !strides || !dilations)))
		return dn_fail(DN_BAD_PARAM, "no convolution descriptor, or a setting that cannot be");
	if (nd > DN_MAX_DIMS - 2)
		return dn_fail(DN_NOT_SUPPORTED, "more than six spatial dimensions");
	for (int i = 0; i < nd; i++) {
		if (pads[i] < 0 || strides[i] <= 0 || dilations[i] <= 0)
			return dn_fail(DN_BAD_PARAM, "a padding, stride or dilation that cannot be");
		o.pre[i] = o.post[i] = pads[i];
		o.stride[i] = strides[i];
		o.dilation[i] = dilations[i];
	}
	d->operator = o;
	return DN_SUCCESS;
}

int cudnnSetConvolution2dDescriptor(void *descriptor, int pad_h, int pad_w, int u, int v, int dilation_h, int dilation_w, int mode,
				    int compute)
{
	return cudnnSetConvolutionNdDescriptor(descriptor, 2, (const int[]){ pad_h, pad_w }, (const int[]){ u, v },
					       (const int[]){ dilation_h, dilation_w }, mode, compute);
}

int cudnnSetConvolutionGroupCount(void *descriptor, int groups)
{
	struct dn_convolution_descriptor *d = dn_object_find(descriptor, DN_CONVOLUTION);

	if (!d || groups < 1)
		return dn_fail(DN_BAD_PARAM, "no convolution descriptor, or no groups");
	d->groups = groups;
	return DN_SUCCESS;
}

int cudnnSetConvolutionMathType(void *descriptor, int math)
{
	struct dn_convolution_descriptor *d = dn_object_find(descriptor, DN_CONVOLUTION);

	if (!d || math < 0 || math > LAST_MATH)
		return dn_fail(DN_BAD_PARAM, "no convolution descriptor, or no such mode of mathematics");
	d->math = math;
	return DN_SUCCESS;
}
