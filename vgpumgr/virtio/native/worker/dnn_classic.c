/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's classic interface. Descriptors are made from what the guest has set, for one call. */
#include <string.h>

#include "networks.h"
#include "dnn_calls.h"

static const struct {
	const char *create, *destroy;
} made[DNN_KINDS] = {
	[DNN_TENSOR_ARGUMENT] = { "cudnnCreateTensorDescriptor", "cudnnDestroyTensorDescriptor" },
	[DNN_FILTER_ARGUMENT] = { "cudnnCreateFilterDescriptor", "cudnnDestroyFilterDescriptor" },
	[DNN_CONVOLUTION_ARGUMENT] = { "cudnnCreateConvolutionDescriptor", "cudnnDestroyConvolutionDescriptor" },
	[DNN_POOLING_ARGUMENT] = { "cudnnCreatePoolingDescriptor", "cudnnDestroyPoolingDescriptor" },
	[DNN_ACTIVATION_ARGUMENT] = { "cudnnCreateActivationDescriptor", "cudnnDestroyActivationDescriptor" },
	[DNN_OPTENSOR_ARGUMENT] = { "cudnnCreateOpTensorDescriptor", "cudnnDestroyOpTensorDescriptor" },
	[DNN_REDUCTION_ARGUMENT] = { "cudnnCreateReduceTensorDescriptor", "cudnnDestroyReduceTensorDescriptor" },
	[DNN_LRN_ARGUMENT] = { "cudnnCreateLRNDescriptor", "cudnnDestroyLRNDescriptor" },
};

/* A call while it is made: words are what the library's function gets. */
struct frame {
	uint64_t words[DNN_ARGUMENTS];
	_Alignas(16) uint64_t values[DNN_ARGUMENTS];
	void *descriptors[DNN_ARGUMENTS];
};

/* The arrays of a descriptor, as the library takes them. */
struct arrays {
	int at[3][DNN_DIMENSIONS];
};

static struct arrays read_arrays(enum dnn_kind kind, const uint64_t *w)
{
	const struct dnn_form *form = &dnn_forms[kind];
	uint64_t count = form->arrays ? w[form->dimensions] : 0;
	struct arrays arrays = { 0 };

	for (unsigned int a = 0; a < form->arrays; a++)
		for (uint64_t i = 0; i < count; i++)
			arrays.at[a][i] = (int)w[form->words + a * count + i];
	return arrays;
}

/* Without a function the library is another than these were described for. */
#define CALL(name, type, ...)                                                        \
	({                                                                           \
		void *function_ = wk_dnn(name);                                      \
		function_ ? ((int (*) type)function_)(__VA_ARGS__) : DNN_NOT_SUPPORTED; \
	})

static int set_convolution(void *d, const uint64_t *w, const struct arrays *a)
{
	int status = CALL("cudnnSetConvolutionNdDescriptor", (void *, int, const int *, const int *, const int *, int, int), d,
			  (int)w[5], a->at[0], a->at[1], a->at[2], (int)w[0], (int)w[1]);

	if (status == DNN_OK)
		status = CALL("cudnnSetConvolutionMathType", (void *, int), d, (int)w[2]);
	if (status == DNN_OK)
		status = CALL("cudnnSetConvolutionGroupCount", (void *, int), d, (int)w[3]);
	return status == DNN_OK ? CALL("cudnnSetConvolutionReorderType", (void *, int), d, (int)w[4]) : status;
}

static int set_activation(void *d, const uint64_t *w)
{
	int status = CALL("cudnnSetActivationDescriptor", (void *, int, int, double), d, (int)w[0], (int)w[1], dnn_double(w[2]));

	return status == DNN_OK && dnn_double(w[3]) != 0 ?
		CALL("cudnnSetActivationDescriptorSwishBeta", (void *, double), d, dnn_double(w[3])) : status;
}

static int set(enum dnn_kind kind, void *d, const uint64_t *w)
{
	struct arrays a = read_arrays(kind, w);

	switch (kind) {
	case DNN_TENSOR_ARGUMENT:
		return CALL("cudnnSetTensorNdDescriptor", (void *, int, int, const int *, const int *), d, (int)w[0], (int)w[1],
			    a.at[0], a.at[1]);
	case DNN_FILTER_ARGUMENT:
		return CALL("cudnnSetFilterNdDescriptor", (void *, int, int, int, const int *), d, (int)w[0], (int)w[1],
			    (int)w[2], a.at[0]);
	case DNN_CONVOLUTION_ARGUMENT:
		return set_convolution(d, w, &a);
	case DNN_POOLING_ARGUMENT:
		return CALL("cudnnSetPoolingNdDescriptor", (void *, int, int, int, const int *, const int *, const int *), d,
			    (int)w[0], (int)w[1], (int)w[2], a.at[0], a.at[1], a.at[2]);
	case DNN_ACTIVATION_ARGUMENT:
		return set_activation(d, w);
	case DNN_OPTENSOR_ARGUMENT:
		return CALL("cudnnSetOpTensorDescriptor", (void *, int, int, int), d, (int)w[0], (int)w[1], (int)w[2]);
	case DNN_REDUCTION_ARGUMENT:
		return CALL("cudnnSetReduceTensorDescriptor", (void *, int, int, int, int, int), d, (int)w[0], (int)w[1],
			    (int)w[2], (int)w[3], (int)w[4]);
	default:
		return CALL("cudnnSetLRNDescriptor", (void *, unsigned int, double, double, double), d, (unsigned int)w[0],
			    dnn_double(w[1]), dnn_double(w[2]), dnn_double(w[3]));
	}
}

static int make(enum dnn_kind kind, struct wk_reader *r, void **descriptor)
{
	uint64_t count = wk_take_word(r), words[DNN_FORM_WORDS];
	const uint8_t *from;
	int status;

	if (!r->wrong && !count)
		return DNN_OK; /* none */
	if (r->wrong || count < dnn_forms[kind].words || count > DNN_FORM_WORDS)
		return DNN_BAD_PARAM;
	from = wk_take_bytes(r, count * sizeof(*words));
	if (!from)
		return DNN_BAD_PARAM;
	memcpy(words, from, count * sizeof(*words));
	if (dnn_form_words(kind, words) != count)
		return DNN_BAD_PARAM;
	status = CALL(made[kind].create, (void **), descriptor);
	return status == DNN_OK ? set(kind, *descriptor, words) : status;
}

static int read_argument(struct frame *frame, enum dnn_kind kind, unsigned int i, struct wk_reader *r)
{
	int status;

	switch (kind) {
	case DNN_IN_ARGUMENT:
	case DNN_VALUE_ARGUMENT:
		frame->words[i] = wk_take_word(r) ? (uintptr_t)&frame->values[i] : 0;
		frame->values[i] = wk_take_word(r);
		return DNN_OK;
	case DNN_OUT_ARGUMENT:
		frame->words[i] = (uintptr_t)&frame->values[i];
		return DNN_OK;
	case DNN_INT_ARGUMENT:
	case DNN_SIZE_ARGUMENT:
	case DNN_DOUBLE_ARGUMENT:
	case DNN_DEVICE_ARGUMENT:
		frame->words[i] = wk_take_word(r);
		return DNN_OK;
	default:
		status = make(kind, r, &frame->descriptors[i]);
		frame->words[i] = (uintptr_t)frame->descriptors[i];
		return status;
	}
}

static void drop(struct frame *frame, const struct dnn_function *f)
{
	for (unsigned int i = 0; i < f->count; i++)
		if (frame->descriptors[i])
			CALL(made[f->arguments[i]].destroy, (void *), frame->descriptors[i]);
}

int wk_dnn_classic(struct math_call *call, const struct dnn_function *f)
{
	struct wk_reader r = { call->arguments, call->length, false };
	struct frame frame = { .words = { 0 } };
	void *function = wk_dnn(f->name);
	int status = function ? DNN_OK : DNN_NOT_SUPPORTED;

	for (unsigned int i = 0; i < f->count && status == DNN_OK; i++)
		status = read_argument(&frame, f->arguments[i], i, &r);
	if (status == DNN_OK && (r.wrong || r.left))
		status = DNN_BAD_PARAM;
	if (status == DNN_OK)
		status = dnn_callers[f - dnn_functions](function, call->math->handle, frame.words);
	for (unsigned int i = 0; i < f->count && status == DNN_OK; i++)
		if (f->arguments[i] == DNN_OUT_ARGUMENT)
			wk_give_word(call, frame.values[i]);
	drop(&frame, f);
	return status;
}
