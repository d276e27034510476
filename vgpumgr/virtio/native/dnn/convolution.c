/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of convolutions, of the classic interface. */
#include "dnn.h"

/* Spatial dimensions at most; the last of cudnnMathType_t, and of cudnnReorderType_t. */
enum { SPATIAL = DNN_DIMENSIONS - 2, LAST_MATHEMATICS = 3, LAST_REORDERING = 1 };
/* Words of a descriptor. */
enum { MODE, TYPE, MATHEMATICS, GROUPS, REORDERING, DIMENSIONS, ARRAYS };

static struct dnn_object *convolution(void *opaque)
{
	return dnn_object(opaque, DNN_CONVOLUTION_ARGUMENT);
}

DNN_API int cudnnSetConvolutionNdDescriptor(void *opaque, int count, const int *pads, const int *strides, const int *dilations, int mode,
					    int type);
int cudnnSetConvolutionNdDescriptor(void *opaque, int count, const int *pads, const int *strides, const int *dilations, int mode,
				    int type)
{
	struct dnn_object *o = convolution(opaque);
	const int *const arrays[] = { pads, strides, dilations };

	if (!o || count < 1 || !pads || !strides || !dilations || mode < 0 || mode > 1 || type < 0 || type > DNN_LAST_DATA_TYPE)
		return DNN_BAD_PARAM;
	if (count > SPATIAL)
		return DNN_NOT_SUPPORTED;
	for (int i = 0; i < count; i++)
		if (pads[i] < 0 || strides[i] <= 0 || dilations[i] <= 0)
			return DNN_BAD_PARAM;
	o->words[MODE] = (uint64_t)mode;
	o->words[TYPE] = (uint64_t)type;
	if (!o->words[GROUPS])
		o->words[GROUPS] = 1;
	o->words[DIMENSIONS] = (uint64_t)count;
	for (int a = 0; a < 3; a++)
		for (int i = 0; i < count; i++)
			o->words[ARRAYS + a * count + i] = (uint64_t)arrays[a][i];
	o->count = (uint32_t)dnn_form_words(DNN_CONVOLUTION_ARGUMENT, o->words);
	return DNN_OK;
}

DNN_API int cudnnSetConvolution2dDescriptor(void *opaque, int ph, int pw, int u, int v, int dh, int dw, int mode, int type);
int cudnnSetConvolution2dDescriptor(void *opaque, int ph, int pw, int u, int v, int dh, int dw, int mode, int type)
{
	return cudnnSetConvolutionNdDescriptor(opaque, 2, (const int[]){ ph, pw }, (const int[]){ u, v }, (const int[]){ dh, dw }, mode,
					       type);
}

DNN_API int cudnnGetConvolutionNdDescriptor(void *opaque, int wanted, int *count, int *pads, int *strides, int *dilations, int *mode,
					    int *type);
int cudnnGetConvolutionNdDescriptor(void *opaque, int wanted, int *count, int *pads, int *strides, int *dilations, int *mode, int *type)
{
	const struct dnn_object *o = convolution(opaque);
	int *const arrays[] = { pads, strides, dilations };
	int have = o ? (int)o->words[DIMENSIONS] : 0;

	if (!o)
		return DNN_BAD_PARAM;
	if (count)
		*count = have;
	for (int a = 0; a < 3; a++)
		for (int i = 0; arrays[a] && i < have && i < wanted; i++)
			arrays[a][i] = (int)o->words[ARRAYS + a * have + i];
	if (mode)
		*mode = (int)o->words[MODE];
	if (type)
		*type = (int)o->words[TYPE];
	return DNN_OK;
}

DNN_API int cudnnGetConvolution2dDescriptor(void *opaque, int *ph, int *pw, int *u, int *v, int *dh, int *dw, int *mode, int *type);
int cudnnGetConvolution2dDescriptor(void *opaque, int *ph, int *pw, int *u, int *v, int *dh, int *dw, int *mode, int *type)
{
	int *const at[] = { ph, pw, u, v, dh, dw };
	int values[6] = { 0 }, count;
	int status = cudnnGetConvolutionNdDescriptor(opaque, 2, &count, values, values + 2, values + 4, mode, type);

	if (status != DNN_OK || count != 2)
		return DNN_BAD_PARAM;
	for (int i = 0; i < 6; i++)
		if (at[i])
			*at[i] = values[i];
	return DNN_OK;
}

static int set_number(void *opaque, int place, int value, int least, int most)
{
	struct dnn_object *o = convolution(opaque);

	if (!o || value < least || value > most)
		return DNN_BAD_PARAM;
	o->words[place] = (uint64_t)value;
	return DNN_OK;
}

static int get_number(void *opaque, int place, int *value)
{
	const struct dnn_object *o = convolution(opaque);

	if (!o || !value)
		return DNN_BAD_PARAM;
	*value = place == GROUPS && !o->words[place] ? 1 : (int)o->words[place];
	return DNN_OK;
}

#define NUMBER(name, place, least, most)                             \
	DNN_API int cudnnSetConvolution##name(void *opaque, int value);  \
	int cudnnSetConvolution##name(void *opaque, int value)           \
	{                                                          \
		return set_number(opaque, place, value, least, most);\
	}                                                          \
	DNN_API int cudnnGetConvolution##name(void *opaque, int *value); \
	int cudnnGetConvolution##name(void *opaque, int *value)          \
	{                                                          \
		return get_number(opaque, place, value);           \
	}

NUMBER(MathType, MATHEMATICS, 0, LAST_MATHEMATICS)
NUMBER(GroupCount, GROUPS, 1, INT32_MAX)
NUMBER(ReorderType, REORDERING, 0, LAST_REORDERING)

/* As documented: 1 + (input + 2 * padding - ((filter - 1) * dilation + 1)) / stride. */
DNN_API int cudnnGetConvolutionNdForwardOutputDim(void *opaque, void *input, void *filter, int count, int *sizes);
int cudnnGetConvolutionNdForwardOutputDim(void *opaque, void *input, void *filter, int count, int *sizes)
{
	const struct dnn_object *o = convolution(opaque), *x = dnn_object(input, DNN_TENSOR_ARGUMENT);
	const struct dnn_object *f = dnn_object(filter, DNN_FILTER_ARGUMENT);
	int spatial = o ? (int)o->words[DIMENSIONS] : 0;

	if (!o || !x || !f || !sizes || !spatial || count != spatial + 2 || (int)x->words[1] != count || (int)f->words[2] != count)
		return DNN_BAD_PARAM;
	sizes[0] = (int)x->words[2];
	sizes[1] = (int)f->words[3];
	for (int i = 0; i < spatial; i++) {
		int in = (int)x->words[2 + 2 + i], window = (int)f->words[3 + 2 + i];
		int pad = (int)o->words[ARRAYS + i], stride = (int)o->words[ARRAYS + spatial + i];
		int dilation = (int)o->words[ARRAYS + 2 * spatial + i], left = in + 2 * pad - ((window - 1) * dilation + 1);

		if (left < 0)
			return DNN_BAD_PARAM;
		sizes[2 + i] = 1 + left / stride;
	}
	return DNN_OK;
}

DNN_API int cudnnGetConvolution2dForwardOutputDim(void *opaque, void *input, void *filter, int *n, int *c, int *h, int *w);
int cudnnGetConvolution2dForwardOutputDim(void *opaque, void *input, void *filter, int *n, int *c, int *h, int *w)
{
	int *const at[] = { n, c, h, w };
	int sizes[4], status = cudnnGetConvolutionNdForwardOutputDim(opaque, input, filter, 4, sizes);

	for (int i = 0; i < 4 && status == DNN_OK; i++)
		if (at[i])
			*at[i] = sizes[i];
	return status;
}
