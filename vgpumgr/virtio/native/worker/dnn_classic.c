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
	[DNN_DROPOUT_ARGUMENT] = { "cudnnCreateDropoutDescriptor", "cudnnDestroyDropoutDescriptor" },
};

/* A call while it is made: words are what the library's function gets. */
struct frame {
	uint64_t words[DNN_ARGUMENTS];
	_Alignas(16) uint64_t values[DNN_ARGUMENTS];
	_Alignas(16) uint8_t perfs[DNN_PERFS * DNN_PERF_BYTES];
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

	if (status == DNN_OK && w[2])
		status = CALL("cudnnSetConvolutionMathType", (void *, int), d, (int)w[2]);
	if (status == DNN_OK && w[3] != 1)
		status = CALL("cudnnSetConvolutionGroupCount", (void *, int), d, (int)w[3]);
	return status == DNN_OK && w[4] ? CALL("cudnnSetConvolutionReorderType", (void *, int), d, (int)w[4]) : status;
}

static int set_activation(void *d, const uint64_t *w)
{
	int status = CALL("cudnnSetActivationDescriptor", (void *, int, int, double), d, (int)w[0], (int)w[1], dnn_double(w[2]));

	return status == DNN_OK && dnn_double(w[3]) != 0 ?
		CALL("cudnnSetActivationDescriptorSwishBeta", (void *, double), d, dnn_double(w[3])) : status;
}

/* Its states are on the device already, unless it is made with new ones. */
static int set_dropout(const char *name, void *d, void *handle, const uint64_t *w)
{
	uint32_t bits = (uint32_t)w[0];
	float probability;

	memcpy(&probability, &bits, sizeof(probability));
	return CALL(name, (void *, void *, float, void *, size_t, unsigned long long), d, handle, probability, (void *)w[1], w[2], w[3]);
}

static int set(enum dnn_kind kind, void *d, void *handle, const uint64_t *w)
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
	case DNN_DROPOUT_ARGUMENT:
		return set_dropout("cudnnRestoreDropoutDescriptor", d, handle, w);
	default:
		return CALL("cudnnSetLRNDescriptor", (void *, unsigned int, double, double, double), d, (unsigned int)w[0],
			    dnn_double(w[1]), dnn_double(w[2]), dnn_double(w[3]));
	}
}

/* Its words; *count: 0 where there is none. */
static int take_form(enum dnn_kind kind, struct wk_reader *r, uint64_t *words, uint64_t *number)
{
	uint64_t count = *number = wk_take_word(r);
	const uint8_t *from;

	if (!r->wrong && !count)
		return DNN_OK;
	if (r->wrong || count < dnn_forms[kind].words || count > DNN_FORM_WORDS)
		return DNN_BAD_PARAM;
	from = wk_take_bytes(r, count * sizeof(*words));
	if (!from)
		return DNN_BAD_PARAM;
	memcpy(words, from, count * sizeof(*words));
	return dnn_form_words(kind, words) == count ? DNN_OK : DNN_BAD_PARAM;
}

static int make(enum dnn_kind kind, struct wk_reader *r, void *handle, void **descriptor)
{
	uint64_t words[DNN_FORM_WORDS], count;
	int status = take_form(kind, r, words, &count);

	if (status != DNN_OK || !count)
		return status;
	status = CALL(made[kind].create, (void **), descriptor);
	return status == DNN_OK ? set(kind, *descriptor, handle, words) : status;
}

int wk_dnn_set_dropout(struct math_call *call)
{
	struct wk_reader r = { call->arguments, call->length, false };
	uint64_t words[DNN_FORM_WORDS], count;
	int status = take_form(DNN_DROPOUT_ARGUMENT, &r, words, &count);
	void *descriptor = NULL;

	if (status != DNN_OK || !count || r.left)
		return DNN_BAD_PARAM;
	status = CALL(made[DNN_DROPOUT_ARGUMENT].create, (void **), &descriptor);
	if (status != DNN_OK)
		return status;
	status = set_dropout("cudnnSetDropoutDescriptor", descriptor, call->math->handle, words);
	CALL(made[DNN_DROPOUT_ARGUMENT].destroy, (void *), descriptor);
	return status;
}

static int read_argument(struct frame *frame, enum dnn_kind kind, unsigned int i, struct wk_reader *r, void *handle)
{
	int status;

	switch (kind) {
	case DNN_IN_ARGUMENT:
	case DNN_VALUE_ARGUMENT:
		frame->words[i] = wk_take_word(r) ? (uintptr_t)&frame->values[i] : 0;
		frame->values[i] = wk_take_word(r);
		return DNN_OK;
	case DNN_OUT_ARGUMENT:
	case DNN_NUMBER_ARGUMENT:
		frame->words[i] = (uintptr_t)&frame->values[i];
		return DNN_OK;
	case DNN_WANTED_ARGUMENT:
		frame->words[i] = wk_take_word(r);
		return frame->words[i] > DNN_PERFS ? DNN_BAD_PARAM : DNN_OK;
	case DNN_PERFS_ARGUMENT:
		frame->words[i] = (uintptr_t)frame->perfs;
		return DNN_OK;
	case DNN_INT_ARGUMENT:
	case DNN_SIZE_ARGUMENT:
	case DNN_DOUBLE_ARGUMENT:
	case DNN_DEVICE_ARGUMENT:
		frame->words[i] = wk_take_word(r);
		return DNN_OK;
	default:
		status = make(kind, r, handle, &frame->descriptors[i]);
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

/* Results stand behind their number. */
static void give_back(struct math_call *call, const struct dnn_function *f, const struct frame *frame)
{
	uint64_t number = 0;

	for (unsigned int i = 0; i < f->count; i++) {
		if (f->arguments[i] == DNN_OUT_ARGUMENT || f->arguments[i] == DNN_NUMBER_ARGUMENT)
			wk_give_word(call, number = frame->values[i]);
		if (f->arguments[i] == DNN_PERFS_ARGUMENT)
			wk_give(call, frame->perfs, (number < DNN_PERFS ? number : DNN_PERFS) * DNN_PERF_BYTES);
	}
}

int wk_dnn_classic(struct math_call *call, const struct dnn_function *f)
{
	struct wk_reader r = { call->arguments, call->length, false };
	struct frame frame = { .words = { 0 } };
	void *function = wk_dnn(f->name);
	int status = function ? DNN_OK : DNN_NOT_SUPPORTED;

	for (unsigned int i = 0; i < f->count && status == DNN_OK; i++)
		status = read_argument(&frame, f->arguments[i], i, &r, call->math->handle);
	if (status == DNN_OK && (r.wrong || r.left))
		status = DNN_BAD_PARAM;
	if (status == DNN_OK)
		status = dnn_callers[f - dnn_functions](function, call->math->handle, frame.words);
	if (status == DNN_OK)
		give_back(call, f, &frame);
	drop(&frame, f);
	return status;
}
