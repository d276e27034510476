/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the classic interface: what a program sets is kept as it travels, with each call that needs it. */
#include <stdlib.h>

#include "dnn.h"

#define MAGIC 0x7667646e6e000003

/* cudnnTensorFormat_t */
enum { NCHW = 0, NHWC = 1, VECTORS = 2 };

struct dnn_object *dnn_object(void *opaque, enum dnn_kind kind)
{
	struct dnn_object *o = opaque;

	return dnn_is_live(o) && o->magic == MAGIC && o->kind == (uint32_t)kind ? o : NULL;
}

static int create(void **opaque, enum dnn_kind kind)
{
	struct dnn_object *o;

	if (!opaque)
		return DNN_BAD_PARAM;
	o = calloc(1, sizeof(*o));
	if (!o || !dnn_live_add(o)) {
		free(o);
		return DNN_ALLOC_FAILED;
	}
	o->magic = MAGIC;
	o->kind = kind;
	*opaque = o;
	return DNN_OK;
}

static int destroy(void *opaque, enum dnn_kind kind)
{
	struct dnn_object *o = dnn_object(opaque, kind);

	if (!o)
		return opaque ? DNN_BAD_PARAM : DNN_OK;
	dnn_live_remove(o);
	o->magic = 0;
	free(o);
	return DNN_OK;
}

#define OBJECTS(name, kind)                                      \
	DNN_API int cudnnCreate##name##Descriptor(void **opaque);  \
	int cudnnCreate##name##Descriptor(void **opaque)           \
	{                                                        \
		return create(opaque, kind);                     \
	}                                                        \
	DNN_API int cudnnDestroy##name##Descriptor(void *opaque);  \
	int cudnnDestroy##name##Descriptor(void *opaque)           \
	{                                                        \
		return destroy(opaque, kind);                    \
	}

OBJECTS(Tensor, DNN_TENSOR_ARGUMENT)
OBJECTS(Filter, DNN_FILTER_ARGUMENT)
OBJECTS(Convolution, DNN_CONVOLUTION_ARGUMENT)
OBJECTS(Pooling, DNN_POOLING_ARGUMENT)
OBJECTS(Activation, DNN_ACTIVATION_ARGUMENT)
OBJECTS(OpTensor, DNN_OPTENSOR_ARGUMENT)
OBJECTS(ReduceTensor, DNN_REDUCTION_ARGUMENT)
OBJECTS(LRN, DNN_LRN_ARGUMENT)
OBJECTS(Dropout, DNN_DROPOUT_ARGUMENT)

/* ---- arrays, which stand behind a descriptor's own words */

/* How many dimensions; 0: it has no arrays, or nothing was set. */
static int dimensions_of(const struct dnn_object *o)
{
	const struct dnn_form *form = &dnn_forms[o->kind];

	return form->arrays && o->count ? (int)o->words[form->dimensions] : 0;
}

static void put_array(struct dnn_object *o, int array, const int *values, int count)
{
	for (int i = 0; i < count; i++)
		o->words[dnn_forms[o->kind].words + array * count + i] = (uint64_t)values[i];
}

static void get_array(const struct dnn_object *o, int array, int *values, int wanted)
{
	int count = dimensions_of(o);

	for (int i = 0; values && i < count && i < wanted; i++)
		values[i] = (int)o->words[dnn_forms[o->kind].words + array * count + i];
}

static int number(const struct dnn_object *o, int place)
{
	return (int)o->words[place];
}

/* Where the program asks for it. */
static void give(int *to, int value)
{
	if (to)
		*to = value;
}

static void end_setting(struct dnn_object *o)
{
	o->count = (uint32_t)dnn_form_words(o->kind, o->words);
}

static bool is_data_type(int type)
{
	return type >= 0 && type <= DNN_LAST_DATA_TYPE;
}

/* ---- tensors */

/* Places of elements are counted in 31 bits. */
static bool is_small(int count, const int *sizes, const int *strides)
{
	long long last = 0, elements = 1;

	for (int i = 0; i < count; i++) {
		last += (long long)(sizes[i] - 1) * strides[i];
		elements *= sizes[i];
		if (last >= INT32_MAX || elements >= INT32_MAX)
			return false;
	}
	return true;
}

static int set_tensor(void *opaque, int type, int count, const int *sizes, const int *strides)
{
	struct dnn_object *o = dnn_object(opaque, DNN_TENSOR_ARGUMENT);

	if (!o || count < 2 || !is_data_type(type) || !sizes || !strides)
		return DNN_BAD_PARAM;
	if (count > DNN_DIMENSIONS)
		return DNN_NOT_SUPPORTED;
	for (int i = 0; i < count; i++)
		if (sizes[i] <= 0 || strides[i] <= 0)
			return DNN_BAD_PARAM;
	if (!is_small(count, sizes, strides))
		return DNN_NOT_SUPPORTED;
	o->words[0] = (uint64_t)type;
	o->words[1] = (uint64_t)count;
	put_array(o, 0, sizes, count);
	put_array(o, 1, strides, count);
	end_setting(o);
	return DNN_OK;
}

/* Strides of a dense tensor; false: of a format that has none, or too large. */
static bool find_strides(int format, int count, const int *sizes, int *strides)
{
	long long stride = 1;

	if (format != NCHW && format != NHWC)
		return false;
	for (int i = 0; i < count; i++) {
		/* NHWC: channels first, then from the last dimension to the second; then images */
		int place = format == NCHW ? count - 1 - i : !i ? 1 : i < count - 1 ? count - i : 0;

		if (sizes[place] <= 0 || stride > INT32_MAX)
			return false;
		strides[place] = (int)stride;
		stride *= sizes[place];
	}
	return stride <= INT32_MAX;
}

DNN_API int cudnnSetTensorNdDescriptor(void *opaque, int type, int count, const int *sizes, const int *strides);
int cudnnSetTensorNdDescriptor(void *opaque, int type, int count, const int *sizes, const int *strides)
{
	return set_tensor(opaque, type, count, sizes, strides);
}

DNN_API int cudnnSetTensorNdDescriptorEx(void *opaque, int format, int type, int count, const int *sizes);
int cudnnSetTensorNdDescriptorEx(void *opaque, int format, int type, int count, const int *sizes)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int strides[DNN_DIMENSIONS];

	if (format == VECTORS && dnn_object(opaque, DNN_TENSOR_ARGUMENT))
		return dnn_unsupported("a tensor of cuDNN whose elements are vectors", &told);
	if (!sizes || count < 2 || count > DNN_DIMENSIONS || !find_strides(format, count, sizes, strides))
		return DNN_BAD_PARAM;
	return set_tensor(opaque, type, count, sizes, strides);
}

DNN_API int cudnnSetTensor4dDescriptor(void *opaque, int format, int type, int n, int c, int h, int w);
int cudnnSetTensor4dDescriptor(void *opaque, int format, int type, int n, int c, int h, int w)
{
	return cudnnSetTensorNdDescriptorEx(opaque, format, type, 4, (const int[]){ n, c, h, w });
}

DNN_API int cudnnSetTensor4dDescriptorEx(void *opaque, int type, int n, int c, int h, int w, int ns, int cs, int hs, int ws);
int cudnnSetTensor4dDescriptorEx(void *opaque, int type, int n, int c, int h, int w, int ns, int cs, int hs, int ws)
{
	return set_tensor(opaque, type, 4, (const int[]){ n, c, h, w }, (const int[]){ ns, cs, hs, ws });
}

DNN_API int cudnnGetTensorNdDescriptor(void *opaque, int wanted, int *type, int *count, int *sizes, int *strides);
int cudnnGetTensorNdDescriptor(void *opaque, int wanted, int *type, int *count, int *sizes, int *strides)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_TENSOR_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	give(type, number(o, 0));
	give(count, number(o, 1));
	get_array(o, 0, sizes, wanted);
	get_array(o, 1, strides, wanted);
	return DNN_OK;
}

DNN_API int cudnnGetTensor4dDescriptor(void *opaque, int *type, int *n, int *c, int *h, int *w, int *ns, int *cs, int *hs, int *ws);
int cudnnGetTensor4dDescriptor(void *opaque, int *type, int *n, int *c, int *h, int *w, int *ns, int *cs, int *hs, int *ws)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_TENSOR_ARGUMENT);
	int *const at[] = { n, c, h, w, ns, cs, hs, ws };
	int values[8];

	if (!o || dimensions_of(o) != 4)
		return DNN_BAD_PARAM;
	give(type, number(o, 0));
	get_array(o, 0, values, 4);
	get_array(o, 1, values + 4, 4);
	for (int i = 0; i < 8; i++)
		give(at[i], values[i]);
	return DNN_OK;
}

DNN_API int cudnnGetTensorSizeInBytes(void *opaque, size_t *bytes);
int cudnnGetTensorSizeInBytes(void *opaque, size_t *bytes)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_TENSOR_ARGUMENT);
	int sizes[DNN_DIMENSIONS], strides[DNN_DIMENSIONS];
	size_t last = 1;

	if (!o || !bytes || !o->count)
		return DNN_BAD_PARAM;
	if (!dnn_data_bytes(o->words[0]))
		return DNN_NOT_SUPPORTED; /* elements that share bytes */
	get_array(o, 0, sizes, DNN_DIMENSIONS);
	get_array(o, 1, strides, DNN_DIMENSIONS);
	for (int i = 0; i < dimensions_of(o); i++)
		last += (size_t)(sizes[i] - 1) * (size_t)strides[i];
	*bytes = last * dnn_data_bytes(o->words[0]);
	return DNN_OK;
}

/* Of a batch normalisation: one value for each channel (1, spatial modes), or for each place of an image (0). */
DNN_API int cudnnDeriveBNTensorDescriptor(void *derived, void *of, int mode);
int cudnnDeriveBNTensorDescriptor(void *derived, void *of, int mode)
{
	const struct dnn_object *o = dnn_object(of, DNN_TENSOR_ARGUMENT);
	int sizes[DNN_DIMENSIONS] = { 0 }, strides[DNN_DIMENSIONS], count = o ? dimensions_of(o) : 0;

	if (count < 4 || mode < 0 || mode > 2)
		return DNN_BAD_PARAM;
	get_array(o, 0, sizes, count);
	sizes[0] = 1;
	for (int i = 2; mode && i < count; i++)
		sizes[i] = 1;
	if (!find_strides(NCHW, count, sizes, strides))
		return DNN_BAD_PARAM;
	/* statistics are in the arithmetic's type */
	return set_tensor(derived, o->words[0] == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT, count, sizes, strides);
}

/* ---- filters */

DNN_API int cudnnSetFilterNdDescriptor(void *opaque, int type, int format, int count, const int *sizes);
int cudnnSetFilterNdDescriptor(void *opaque, int type, int format, int count, const int *sizes)
{
	struct dnn_object *o = dnn_object(opaque, DNN_FILTER_ARGUMENT);

	if (!o || count < 3 || !is_data_type(type) || format < NCHW || format > VECTORS || !sizes)
		return DNN_BAD_PARAM;
	if (count > DNN_DIMENSIONS)
		return DNN_NOT_SUPPORTED;
	for (int i = 0; i < count; i++)
		if (sizes[i] <= 0)
			return DNN_BAD_PARAM;
	o->words[0] = (uint64_t)type;
	o->words[1] = (uint64_t)format;
	o->words[2] = (uint64_t)count;
	put_array(o, 0, sizes, count);
	end_setting(o);
	return DNN_OK;
}

DNN_API int cudnnGetFilterSizeInBytes(void *opaque, size_t *bytes);
int cudnnGetFilterSizeInBytes(void *opaque, size_t *bytes)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_FILTER_ARGUMENT);

	if (!o || !bytes || !o->count)
		return DNN_BAD_PARAM;
	*bytes = dnn_data_bytes(o->words[0]);
	for (int i = 0; i < dimensions_of(o); i++)
		*bytes *= o->words[3 + i];
	return DNN_OK;
}

DNN_API int cudnnSetFilter4dDescriptor(void *opaque, int type, int format, int k, int c, int h, int w);
int cudnnSetFilter4dDescriptor(void *opaque, int type, int format, int k, int c, int h, int w)
{
	return cudnnSetFilterNdDescriptor(opaque, type, format, 4, (const int[]){ k, c, h, w });
}

DNN_API int cudnnGetFilterNdDescriptor(void *opaque, int wanted, int *type, int *format, int *count, int *sizes);
int cudnnGetFilterNdDescriptor(void *opaque, int wanted, int *type, int *format, int *count, int *sizes)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_FILTER_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	give(type, number(o, 0));
	give(format, number(o, 1));
	give(count, number(o, 2));
	get_array(o, 0, sizes, wanted);
	return DNN_OK;
}

DNN_API int cudnnGetFilter4dDescriptor(void *opaque, int *type, int *format, int *k, int *c, int *h, int *w);
int cudnnGetFilter4dDescriptor(void *opaque, int *type, int *format, int *k, int *c, int *h, int *w)
{
	int sizes[4], count, status = cudnnGetFilterNdDescriptor(opaque, 4, type, format, &count, sizes);

	if (status != DNN_OK || count != 4)
		return DNN_BAD_PARAM;
	give(k, sizes[0]);
	give(c, sizes[1]);
	give(h, sizes[2]);
	give(w, sizes[3]);
	return DNN_OK;
}

/* ---- those without arrays */

/* The last of each enumeration. */
enum { LAST_ACTIVATION = 6, LAST_OPERATION = 5, LAST_REDUCTION = 8 };

static int set_words(void *opaque, enum dnn_kind kind, const uint64_t *words)
{
	struct dnn_object *o = dnn_object(opaque, kind);

	if (!o)
		return DNN_BAD_PARAM;
	memcpy(o->words, words, dnn_forms[kind].words * sizeof(*words));
	end_setting(o);
	return DNN_OK;
}

static int get_numbers(void *opaque, enum dnn_kind kind, int *const *to)
{
	const struct dnn_object *o = dnn_object(opaque, kind);

	if (!o)
		return DNN_BAD_PARAM;
	for (int i = 0; i < dnn_forms[kind].words; i++)
		give(to[i], number(o, i));
	return DNN_OK;
}

DNN_API int cudnnSetActivationDescriptor(void *opaque, int mode, int nans, double coefficient);
int cudnnSetActivationDescriptor(void *opaque, int mode, int nans, double coefficient)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_ACTIVATION_ARGUMENT);

	if (!o || mode < 0 || mode > LAST_ACTIVATION || nans < 0 || nans > 1)
		return DNN_BAD_PARAM;
	/* a beta that was set stays */
	return set_words(opaque, DNN_ACTIVATION_ARGUMENT,
			 (const uint64_t[]){ (uint64_t)mode, (uint64_t)nans, dnn_bits(coefficient), o->words[3] });
}

DNN_API int cudnnGetActivationDescriptor(void *opaque, int *mode, int *nans, double *coefficient);
int cudnnGetActivationDescriptor(void *opaque, int *mode, int *nans, double *coefficient)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_ACTIVATION_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	give(mode, number(o, 0));
	give(nans, number(o, 1));
	if (coefficient)
		*coefficient = dnn_double(o->words[2]);
	return DNN_OK;
}

DNN_API int cudnnSetActivationDescriptorSwishBeta(void *opaque, double beta);
int cudnnSetActivationDescriptorSwishBeta(void *opaque, double beta)
{
	struct dnn_object *o = dnn_object(opaque, DNN_ACTIVATION_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	o->words[3] = dnn_bits(beta);
	return DNN_OK;
}

DNN_API int cudnnGetActivationDescriptorSwishBeta(void *opaque, double *beta);
int cudnnGetActivationDescriptorSwishBeta(void *opaque, double *beta)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_ACTIVATION_ARGUMENT);

	if (!o || !beta)
		return DNN_BAD_PARAM;
	*beta = dnn_double(o->words[3]);
	return DNN_OK;
}

DNN_API int cudnnSetOpTensorDescriptor(void *opaque, int operation, int type, int nans);
int cudnnSetOpTensorDescriptor(void *opaque, int operation, int type, int nans)
{
	if (operation < 0 || operation > LAST_OPERATION || !is_data_type(type) || nans < 0 || nans > 1)
		return DNN_BAD_PARAM;
	return set_words(opaque, DNN_OPTENSOR_ARGUMENT, (const uint64_t[]){ (uint64_t)operation, (uint64_t)type, (uint64_t)nans });
}

DNN_API int cudnnGetOpTensorDescriptor(void *opaque, int *operation, int *type, int *nans);
int cudnnGetOpTensorDescriptor(void *opaque, int *operation, int *type, int *nans)
{
	return get_numbers(opaque, DNN_OPTENSOR_ARGUMENT, (int *const[]){ operation, type, nans });
}

DNN_API int cudnnSetReduceTensorDescriptor(void *opaque, int operation, int type, int nans, int indices, int index_type);
int cudnnSetReduceTensorDescriptor(void *opaque, int operation, int type, int nans, int indices, int index_type)
{
	if (operation < 0 || operation > LAST_REDUCTION || !is_data_type(type) || nans < 0 || nans > 1 || indices < 0 || indices > 1 ||
	    index_type < 0 || index_type > 3)
		return DNN_BAD_PARAM;
	return set_words(opaque, DNN_REDUCTION_ARGUMENT, (const uint64_t[]){ (uint64_t)operation, (uint64_t)type, (uint64_t)nans,
								       (uint64_t)indices, (uint64_t)index_type });
}

DNN_API int cudnnGetReduceTensorDescriptor(void *opaque, int *operation, int *type, int *nans, int *indices, int *index_type);
int cudnnGetReduceTensorDescriptor(void *opaque, int *operation, int *type, int *nans, int *indices, int *index_type)
{
	return get_numbers(opaque, DNN_REDUCTION_ARGUMENT, (int *const[]){ operation, type, nans, indices, index_type });
}

DNN_API int cudnnSetLRNDescriptor(void *opaque, unsigned int n, double alpha, double beta, double k);
int cudnnSetLRNDescriptor(void *opaque, unsigned int n, double alpha, double beta, double k)
{
	return set_words(opaque, DNN_LRN_ARGUMENT, (const uint64_t[]){ n, dnn_bits(alpha), dnn_bits(beta), dnn_bits(k) });
}

DNN_API int cudnnGetLRNDescriptor(void *opaque, unsigned int *n, double *alpha, double *beta, double *k);
int cudnnGetLRNDescriptor(void *opaque, unsigned int *n, double *alpha, double *beta, double *k)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_LRN_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	if (n)
		*n = (unsigned int)o->words[0];
	if (alpha)
		*alpha = dnn_double(o->words[1]);
	if (beta)
		*beta = dnn_double(o->words[2]);
	if (k)
		*k = dnn_double(o->words[3]);
	return DNN_OK;
}
