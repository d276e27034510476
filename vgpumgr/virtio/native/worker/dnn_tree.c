/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees of the guest's descriptors. What is read here is what the library gets: each attribute once, of a type that is
 * documented for it, and never an address of this process.
 */
#include <string.h>

#include "networks.h"

uint64_t wk_take_word(struct wk_reader *r)
{
	uint64_t word = 0;

	if (r->wrong || r->left < sizeof(word)) {
		r->wrong = true;
		return 0;
	}
	memcpy(&word, r->at, sizeof(word));
	r->at += sizeof(word);
	r->left -= sizeof(word);
	return word;
}

const uint8_t *wk_take_bytes(struct wk_reader *r, size_t bytes)
{
	const uint8_t *at = r->at;

	if (r->wrong || bytes > r->left || dnn_padded(bytes) > r->left) {
		r->wrong = true;
		return NULL;
	}
	r->at += dnn_padded(bytes);
	r->left -= dnn_padded(bytes);
	return at;
}

bool wk_give(struct math_call *call, const void *data, size_t bytes)
{
	if (!bytes || bytes > call->room - call->filled)
		return !bytes;
	memcpy(call->values + call->filled, data, bytes);
	call->filled += bytes;
	return true;
}

bool wk_give_word(struct math_call *call, uint64_t word)
{
	return wk_give(call, &word, sizeof(word));
}

void *wk_dnn(const char *name)
{
	return wk_math_function(VG_MATH_DNN, name);
}

int wk_dnn_make(uint64_t type, void **descriptor)
{
	int (*create)(int, void **);

	*(void **)&create = wk_dnn("cudnnBackendCreateDescriptor");
	*descriptor = NULL;
	return create ? create((int)type, descriptor) : DNN_NOT_SUPPORTED;
}

void wk_dnn_end(void *descriptor)
{
	int (*destroy)(void *);

	*(void **)&destroy = wk_dnn("cudnnBackendDestroyDescriptor");
	if (destroy && descriptor)
		destroy(descriptor);
}

int wk_dnn_get(void *descriptor, uint64_t attribute, uint64_t type, int64_t wanted, int64_t *count, void *values)
{
	int (*get)(void *, int, int, int64_t, int64_t *, void *);

	*(void **)&get = wk_dnn("cudnnBackendGetAttribute");
	return get ? get(descriptor, (int)attribute, (int)type, wanted, count, values) : DNN_NOT_SUPPORTED;
}

static int set(void *descriptor, uint64_t attribute, uint64_t type, uint64_t count, const void *values)
{
	int (*function)(void *, int, int, int64_t, const void *);

	*(void **)&function = wk_dnn("cudnnBackendSetAttribute");
	return function ? function(descriptor, (int)attribute, (int)type, (int64_t)count, values) : DNN_NOT_SUPPORTED;
}

static int finalise(void *descriptor)
{
	int (*function)(void *);

	*(void **)&function = wk_dnn("cudnnBackendFinalize");
	return function ? function(descriptor) : DNN_NOT_SUPPORTED;
}

/* What decides where a tensor's value is. */
struct tensor {
	bool has_id, by_value, vectors;
	int64_t id;
	uint64_t data_type, elements;
};

/* Of a descriptor that is being read. */
struct reading {
	struct dnn_tree *tree;
	void *handle;
	void *descriptor;
	uint64_t type;
	struct tensor tensor;
	bool has_handle;
	unsigned int seen_count;
	uint16_t seen[DNN_TREE_ATTRIBUTES];
};

static bool is_seen(struct reading *d, uint64_t number)
{
	for (unsigned int i = 0; i < d->seen_count; i++)
		if (d->seen[i] == number)
			return true;
	d->seen[d->seen_count++] = (uint16_t)number;
	return false;
}

static void learn_tensor(struct tensor *t, uint64_t number, const uint8_t *bytes, uint64_t count)
{
	int64_t value = 0;
	uint32_t type;

	switch (number) {
	case DNN_TENSOR_UNIQUE_ID:
		memcpy(&t->id, bytes, sizeof(t->id));
		t->has_id = true;
		break;
	case DNN_TENSOR_IS_BY_VALUE:
		t->by_value = *bytes;
		break;
	case DNN_TENSOR_DATA_TYPE:
		memcpy(&type, bytes, sizeof(type));
		t->data_type = type;
		break;
	case DNN_TENSOR_DIMENSIONS:
		t->elements = 1;
		for (uint64_t i = 0; i < count; i++) {
			memcpy(&value, bytes + i * sizeof(value), sizeof(value));
			if (value != 1)
				t->elements = 2;
		}
		break;
	case DNN_TENSOR_VECTOR_COUNT:
		memcpy(&value, bytes, sizeof(value));
		t->vectors = value != 1;
		break;
	default:
		break;
	}
}

/*
 * The library takes the handle as the device. A number of the guest's for its device says nothing here.
 */
static int set_handle(struct reading *d, uint64_t number)
{
	if (d->has_handle)
		return DNN_OK;
	d->has_handle = true;
	return set(d->descriptor, number == DNN_DEVICEPROP_DEVICE_ID ? DNN_DEVICEPROP_HANDLE : number, DNN_TYPE_HANDLE, 1,
		   &d->handle);
}

/* What is documented as a number on the host: the library may take it for one, whatever its descriptor says. */
static bool is_number(uint64_t attribute)
{
	return attribute == DNN_OPERATION_NORM_FWD_EPSILON_DESC || attribute == DNN_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC ||
	       attribute == DNN_OPERATION_NORM_BWD_EPSILON_DESC || attribute == DNN_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC ||
	       attribute == DNN_OPERATION_BN_FINALIZE_EPSILON_DESC || attribute == DNN_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC;
}

static int set_references(struct reading *d, const struct dnn_attribute *a, struct wk_reader *r, uint64_t count)
{
	void *references[DNN_KNOBS];

	for (uint64_t i = 0; i < count; i++) {
		uint64_t place = wk_take_word(r);

		if (r->wrong || place >= d->tree->count || !dnn_refers_to(a, d->tree->types[place]))
			return DNN_BAD_PARAM;
		if (is_number(a->number) && !d->tree->by_value[place])
			return DNN_NOT_SUPPORTED;
		references[i] = d->tree->at[place];
	}
	return set(d->descriptor, a->number, DNN_TYPE_BACKEND_DESCRIPTOR, count, references);
}

static int set_values(struct reading *d, uint64_t number, uint64_t type, struct wk_reader *r, uint64_t count)
{
	_Alignas(16) uint8_t values[DNN_KNOBS * 16];
	size_t bytes = count * dnn_element_bytes(type);
	const uint8_t *from = wk_take_bytes(r, bytes);

	if (!from)
		return DNN_BAD_PARAM;
	memcpy(values, from, bytes);
	for (uint64_t i = 0; type == DNN_TYPE_BOOLEAN && i < count; i++)
		if (values[i] > 1)
			return DNN_BAD_PARAM;
	if (d->type == DNN_TENSOR)
		learn_tensor(&d->tensor, number, values, count);
	if (number == DNN_DEVICEPROP_DEVICE_ID)
		return set_handle(d, number);
	return set(d->descriptor, number, type, count, values);
}

static int read_attribute(struct reading *d, struct wk_reader *r)
{
	uint64_t head = wk_take_word(r), type = dnn_head_type(head), count = dnn_head_count(head);
	const struct dnn_attribute *a = dnn_attribute(dnn_head_number(head));

	if (r->wrong)
		return DNN_BAD_PARAM;
	if (!a)
		return DNN_NOT_SUPPORTED;
	if (a->descriptor != d->type || a->get || type >= 64 || !(a->types >> type & 1) || count > a->count || count > DNN_KNOBS ||
	    is_seen(d, a->number))
		return DNN_BAD_PARAM;
	if (!count) /* as if it were not set */
		return DNN_OK;
	if (type == DNN_TYPE_HANDLE)
		return count == 1 ? set_handle(d, a->number) : DNN_BAD_PARAM;
	if (type == DNN_TYPE_BACKEND_DESCRIPTOR)
		return set_references(d, a, r, count);
	return set_values(d, a->number, type, r, count);
}

/*
 * Two tensors of one id of which one is on the host: which of them the library asks for is not documented. A value is one number:
 * of more, strides and vectors would decide where the library reads.
 */
static int add_tensor(struct dnn_tree *tree, const struct tensor *t)
{
	size_t element = dnn_data_bytes(t->data_type);

	if (!t->by_value)
		return DNN_OK;
	if (!t->has_id || tree->values == DNN_VALUES)
		return DNN_BAD_PARAM;
	if (!element || element > DNN_VALUE_BYTES || t->elements != 1 || t->vectors)
		return DNN_NOT_SUPPORTED;
	tree->value[tree->values++] = (struct dnn_value){ t->id, element };
	return DNN_OK;
}

/* A tensor alone is asked about, and never used: what it holds on the host is the library's to judge. */
static int read_descriptor(struct dnn_tree *tree, struct wk_reader *r, void *handle, struct tensor *tensor, bool alone)
{
	uint64_t head = wk_take_word(r), attributes = head >> 32;
	struct reading d = { .tree = tree, .handle = handle, .type = (uint32_t)head, .tensor = { .elements = 1 } };
	int status;

	if (r->wrong || !dnn_is_descriptor(d.type) || attributes > DNN_TREE_ATTRIBUTES)
		return DNN_BAD_PARAM;
	status = wk_dnn_make(d.type, &d.descriptor);
	if (status != DNN_OK)
		return status;
	for (uint64_t i = 0; i < attributes && status == DNN_OK; i++)
		status = read_attribute(&d, r);
	*tensor = d.tensor;
	if (status == DNN_OK && !alone)
		status = add_tensor(tree, &d.tensor);
	/* kept in any case, to be dropped; nothing refers to it yet */
	tree->types[tree->count] = (uint8_t)d.type;
	tree->by_value[tree->count] = d.tensor.by_value;
	tree->at[tree->count++] = d.descriptor;
	return status == DNN_OK ? finalise(d.descriptor) : status;
}

/*
 * Where there are values on the host, each tensor has an id, and none is both of a value and of a tensor on the device, or of
 * values of two lengths.
 */
static bool is_clear(const struct dnn_tree *tree, const struct tensor *tensors)
{
	for (unsigned int i = 0; tree->values && i < tree->count; i++)
		if (tree->types[i] == DNN_TENSOR && !tensors[i].has_id)
			return false;
	for (unsigned int v = 0; v < tree->values; v++) {
		for (unsigned int i = 0; i < tree->count; i++)
			if (tensors[i].has_id && tensors[i].id == tree->value[v].id && !tensors[i].by_value)
				return false;
		for (unsigned int w = 0; w < v; w++)
			if (tree->value[w].id == tree->value[v].id && tree->value[w].bytes != tree->value[v].bytes)
				return false;
	}
	return true;
}

int wk_tree_build(struct dnn_tree *tree, struct wk_reader *r, void *handle)
{
	struct tensor tensors[DNN_TREE];
	uint64_t count = wk_take_word(r);
	int status = r->wrong || !count || count > DNN_TREE ? DNN_BAD_PARAM : DNN_OK;

	tree->count = tree->values = 0;
	for (uint64_t i = 0; i < count && status == DNN_OK; i++)
		status = read_descriptor(tree, r, handle, &tensors[i], count == 1);
	if (status == DNN_OK && (r->wrong || r->left || !is_clear(tree, tensors)))
		status = DNN_BAD_PARAM;
	return status;
}

void wk_tree_drop(struct dnn_tree *tree)
{
	while (tree->count)
		wk_dnn_end(tree->at[--tree->count]);
}
