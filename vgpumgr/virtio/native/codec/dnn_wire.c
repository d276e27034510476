/* SPDX-License-Identifier: Apache-2.0 */
#include "dnn_wire.h"

const struct dnn_attribute *dnn_attribute(uint64_t number)
{
	size_t least = 0, beyond = DNN_ATTRIBUTES;

	while (least < beyond) {
		size_t middle = (least + beyond) / 2;

		if (dnn_attributes[middle].number == number)
			return &dnn_attributes[middle];
		if (dnn_attributes[middle].number < number)
			least = middle + 1;
		else
			beyond = middle;
	}
	return NULL;
}

bool dnn_refers_to(const struct dnn_attribute *a, uint64_t descriptor)
{
	return a->target == DNN_ANY_OPERATION ? descriptor < 64 && dnn_operations >> descriptor & 1 : a->target == descriptor;
}

bool dnn_is_descriptor(uint64_t type)
{
	return type < 64 && dnn_descriptors >> type & 1;
}

size_t dnn_element_bytes(uint64_t type)
{
	switch (type) {
	case DNN_TYPE_BOOLEAN:
		return 1;
	case DNN_TYPE_INT64:
	case DNN_TYPE_DOUBLE:
	case DNN_TYPE_HANDLE:
	case DNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	case DNN_TYPE_FRACTION:
		return 16;
	default: /* enumerations, floats and integers of 32 bits */
		return type < 64 && dnn_types >> type & 1 ? 4 : 0;
	}
}

size_t dnn_data_bytes(uint64_t data_type)
{
	/* by cudnnDataType_t; 0: several values in one, or parts of a byte */
	static const uint8_t bytes[] = { 4, 8, 2, 1, 4, 0, 1, 0, 0, 2, 8, 1, 1, 1, 0, 1, 0, 0, 0, 4, 8, 16 };

	return data_type < sizeof(bytes) ? bytes[data_type] : 0;
}

const struct dnn_form dnn_forms[DNN_KINDS] = {
	[DNN_TENSOR_ARGUMENT] = { 2, 1, 2 },     [DNN_FILTER_ARGUMENT] = { 3, 2, 1 }, [DNN_CONVOLUTION_ARGUMENT] = { 6, 5, 3 },
	[DNN_POOLING_ARGUMENT] = { 3, 2, 3 },    [DNN_ACTIVATION_ARGUMENT] = { 4, 0, 0 },
	[DNN_OPTENSOR_ARGUMENT] = { 3, 0, 0 },   [DNN_REDUCTION_ARGUMENT] = { 5, 0, 0 },
	[DNN_LRN_ARGUMENT] = { 4, 0, 0 },        [DNN_DROPOUT_ARGUMENT] = { 4, 0, 0 },
};

size_t dnn_form_words(enum dnn_kind kind, const uint64_t *words)
{
	const struct dnn_form *form = &dnn_forms[kind];

	if (!form->arrays)
		return form->words;
	if (words[form->dimensions] > DNN_DIMENSIONS)
		return 0;
	return form->words + form->arrays * words[form->dimensions];
}

const struct dnn_function *dnn_find(uint64_t id)
{
	size_t least = 0, beyond = DNN_FUNCTIONS;

	while (least < beyond) {
		size_t middle = (least + beyond) / 2;

		if (dnn_functions[middle].id == id)
			return &dnn_functions[middle];
		if (dnn_functions[middle].id < id)
			least = middle + 1;
		else
			beyond = middle;
	}
	return NULL;
}
