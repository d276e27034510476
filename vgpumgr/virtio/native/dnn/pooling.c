/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of poolings and of dropout, of the classic interface. */
#include "dnn.h"

enum { LAST_POOLING = 3, ARRAYS = 3 };

/* Where the program asks for it. */
static void give(int *to, int value)
{
	if (to)
		*to = value;
}

/* Of the windows (0), paddings (1) or strides (2). */
static int place(const struct dnn_object *o, int array, int i)
{
	return (int)o->words[ARRAYS + array * (int)o->words[2] + i];
}

DNN_API int cudnnSetPoolingNdDescriptor(void *opaque, int mode, int nans, int count, const int *windows, const int *pads, const int *steps);
int cudnnSetPoolingNdDescriptor(void *opaque, int mode, int nans, int count, const int *windows, const int *pads, const int *steps)
{
	struct dnn_object *o = dnn_object(opaque, DNN_POOLING_ARGUMENT);

	if (!o || mode < 0 || mode > LAST_POOLING || nans < 0 || nans > 1 || count < 1 || count > DNN_DIMENSIONS || !windows || !pads || !steps)
		return DNN_BAD_PARAM;
	for (int i = 0; i < count; i++)
		if (windows[i] <= 0 || pads[i] < 0 || steps[i] <= 0)
			return DNN_BAD_PARAM;
	o->words[0] = (uint64_t)mode;
	o->words[1] = (uint64_t)nans;
	o->words[2] = (uint64_t)count;
	for (int i = 0; i < count; i++) {
		o->words[ARRAYS + i] = (uint64_t)windows[i];
		o->words[ARRAYS + count + i] = (uint64_t)pads[i];
		o->words[ARRAYS + 2 * count + i] = (uint64_t)steps[i];
	}
	o->count = (uint32_t)dnn_form_words(DNN_POOLING_ARGUMENT, o->words);
	return DNN_OK;
}

DNN_API int cudnnSetPooling2dDescriptor(void *opaque, int mode, int nans, int wh, int ww, int ph, int pw, int sh, int sw);
int cudnnSetPooling2dDescriptor(void *opaque, int mode, int nans, int wh, int ww, int ph, int pw, int sh, int sw)
{
	return cudnnSetPoolingNdDescriptor(opaque, mode, nans, 2, (const int[]){ wh, ww }, (const int[]){ ph, pw },
					   (const int[]){ sh, sw });
}

DNN_API int cudnnGetPoolingNdDescriptor(void *opaque, int wanted, int *mode, int *nans, int *count, int *windows, int *pads, int *steps);
int cudnnGetPoolingNdDescriptor(void *opaque, int wanted, int *mode, int *nans, int *count, int *windows, int *pads, int *steps)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_POOLING_ARGUMENT);

	if (!o)
		return DNN_BAD_PARAM;
	give(mode, (int)o->words[0]);
	give(nans, (int)o->words[1]);
	give(count, (int)o->words[2]);
	for (int i = 0; i < (int)o->words[2] && i < wanted; i++) {
		give(windows ? &windows[i] : NULL, place(o, 0, i));
		give(pads ? &pads[i] : NULL, place(o, 1, i));
		give(steps ? &steps[i] : NULL, place(o, 2, i));
	}
	return DNN_OK;
}

DNN_API int cudnnGetPooling2dDescriptor(void *opaque, int *mode, int *nans, int *wh, int *ww, int *ph, int *pw, int *sh, int *sw);
int cudnnGetPooling2dDescriptor(void *opaque, int *mode, int *nans, int *wh, int *ww, int *ph, int *pw, int *sh, int *sw)
{
	int *const at[] = { wh, ww, ph, pw, sh, sw };
	int values[6] = { 0 }, count;
	int status = cudnnGetPoolingNdDescriptor(opaque, 2, mode, nans, &count, values, values + 2, values + 4);

	if (status != DNN_OK || count != 2)
		return DNN_BAD_PARAM;
	for (int i = 0; i < 6; i++)
		give(at[i], values[i]);
	return DNN_OK;
}

/* As documented: 1 + (input + 2 * padding - window) / stride. */
DNN_API int cudnnGetPoolingNdForwardOutputDim(void *opaque, void *input, int count, int *sizes);
int cudnnGetPoolingNdForwardOutputDim(void *opaque, void *input, int count, int *sizes)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_POOLING_ARGUMENT), *x = dnn_object(input, DNN_TENSOR_ARGUMENT);

	if (!o || !x || !sizes || !o->count || count != (int)o->words[2] + 2 || count != (int)x->words[1])
		return DNN_BAD_PARAM;
	for (int i = 0; i < count; i++) {
		int size = (int)x->words[2 + i];
		int left = i < 2 ? 0 : size + 2 * place(o, 1, i - 2) - place(o, 0, i - 2);

		if (left < 0)
			return DNN_BAD_PARAM;
		sizes[i] = i < 2 ? size : 1 + left / place(o, 2, i - 2);
	}
	return DNN_OK;
}

DNN_API int cudnnGetPooling2dForwardOutputDim(void *opaque, void *input, int *n, int *c, int *h, int *w);
int cudnnGetPooling2dForwardOutputDim(void *opaque, void *input, int *n, int *c, int *h, int *w)
{
	int *const at[] = { n, c, h, w };
	int sizes[4], status = cudnnGetPoolingNdForwardOutputDim(opaque, input, 4, sizes);

	for (int i = 0; i < 4 && status == DNN_OK; i++)
		give(at[i], sizes[i]);
	return status;
}

/* ---- dropout: probability, states and their bytes, seed */

static int set_dropout(struct dnn_object *o, float probability, void *states, size_t bytes, unsigned long long seed)
{
	uint32_t bits;

	if (!o || !(probability >= 0 && probability <= 1))
		return DNN_BAD_PARAM;
	memcpy(&bits, &probability, sizeof(bits));
	o->words[0] = bits;
	o->words[1] = (uintptr_t)states;
	o->words[2] = bytes;
	o->words[3] = seed;
	o->count = (uint32_t)dnn_form_words(DNN_DROPOUT_ARGUMENT, o->words);
	return DNN_OK;
}

/* The library begins the states on the stream. */
DNN_API int cudnnSetDropoutDescriptor(void *opaque, void *handle, float probability, void *states, size_t bytes, unsigned long long seed);
int cudnnSetDropoutDescriptor(void *opaque, void *handle, float probability, void *states, size_t bytes, unsigned long long seed)
{
	struct dnn_object *o = dnn_object(opaque, DNN_DROPOUT_ARGUMENT);
	struct dnn_handle *h = dnn_handle(handle);
	int status = h ? set_dropout(o, probability, states, bytes, seed) : DNN_BAD_PARAM;
	uint64_t words[5];
	struct math_request request = { .function = DNN_SET_DROPOUT, .name = "cudnnSetDropoutDescriptor", .wait = MATH_POST,
					.arguments = words, .length = sizeof(words) };

	if (status != DNN_OK || !states)
		return status;
	words[0] = o->count;
	memcpy(words + 1, o->words, sizeof(words) - sizeof(words[0]));
	pthread_mutex_lock(&h->lock);
	request.stream = h->stream;
	status = dnn_send(h, &request, math_hash(math_hash(DNN_SET_DROPOUT, words[1]), bytes));
	pthread_mutex_unlock(&h->lock);
	return status;
}

DNN_API int cudnnRestoreDropoutDescriptor(void *opaque, void *handle, float probability, void *states, size_t bytes,
					  unsigned long long seed);
int cudnnRestoreDropoutDescriptor(void *opaque, void *handle, float probability, void *states, size_t bytes, unsigned long long seed)
{
	return dnn_handle(handle) ? set_dropout(dnn_object(opaque, DNN_DROPOUT_ARGUMENT), probability, states, bytes, seed) :
				    DNN_BAD_PARAM;
}

DNN_API int cudnnGetDropoutDescriptor(void *opaque, void *handle, float *probability, void **states, unsigned long long *seed);
int cudnnGetDropoutDescriptor(void *opaque, void *handle, float *probability, void **states, unsigned long long *seed)
{
	const struct dnn_object *o = dnn_object(opaque, DNN_DROPOUT_ARGUMENT);
	uint32_t bits;

	if (!o || !dnn_handle(handle))
		return DNN_BAD_PARAM;
	bits = (uint32_t)o->words[0];
	if (probability)
		memcpy(probability, &bits, sizeof(bits));
	if (states)
		*states = (void *)o->words[1];
	if (seed)
		*seed = o->words[3];
	return DNN_OK;
}
