/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that cuDNN makes: they go back by value, so that the guest can send them as its own. */
#include "networks.h"

enum { FOUND = 1024, CHOICES = DNN_KNOBS, TYPES = DNN_DIMENSIONS };

static int get_one(void *descriptor, uint64_t attribute, uint64_t type, void *value)
{
	int64_t count = 0;
	int status = wk_dnn_get(descriptor, attribute, type, 1, &count, value);

	return status == DNN_OK && count < 1 ? DNN_INTERNAL_ERROR : status;
}

static int give_number(struct math_call *call, void *descriptor, uint64_t attribute, uint64_t type)
{
	uint64_t value = 0;
	int status = get_one(descriptor, attribute, type, &value);

	wk_give_word(call, value);
	return status;
}

/* So many of a type, to be filled; fewer than wanted where they cannot be made. */
static int64_t make_all(uint64_t type, void **at, int64_t wanted)
{
	for (int64_t i = 0; i < wanted; i++)
		if (wk_dnn_make(type, &at[i]) != DNN_OK)
			return i;
	return wanted;
}

static void end_all(void **at, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		wk_dnn_end(at[i]);
}

static int give_choices(struct math_call *call, void *configuration)
{
	void *choices[CHOICES];
	int64_t made = make_all(DNN_KNOB_CHOICE, choices, CHOICES), count = 0;
	int status = wk_dnn_get(configuration, DNN_ENGINECFG_KNOB_CHOICES, DNN_TYPE_BACKEND_DESCRIPTOR, made, &count, choices);

	if (status == DNN_OK && (count < 0 || count > made))
		status = DNN_NOT_SUPPORTED;
	wk_give_word(call, status == DNN_OK ? (uint64_t)count : 0);
	for (int64_t i = 0; i < count && status == DNN_OK; i++) {
		status = give_number(call, choices[i], DNN_KNOB_CHOICE_KNOB_TYPE, DNN_TYPE_KNOB_TYPE);
		if (status == DNN_OK)
			status = give_number(call, choices[i], DNN_KNOB_CHOICE_KNOB_VALUE, DNN_TYPE_INT64);
	}
	end_all(choices, made);
	return status;
}

static int give_configuration(struct math_call *call, void *configuration)
{
	void *engine;
	int64_t count = 0;
	int status = wk_dnn_make(DNN_ENGINE, &engine);

	if (status != DNN_OK)
		return status;
	status = wk_dnn_get(configuration, DNN_ENGINECFG_ENGINE, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
	if (status == DNN_OK)
		status = give_number(call, engine, DNN_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64);
	wk_dnn_end(engine);
	return status == DNN_OK ? give_choices(call, configuration) : status;
}

static int give_knob(struct math_call *call, void *knob)
{
	int status = give_number(call, knob, DNN_KNOB_INFO_TYPE, DNN_TYPE_KNOB_TYPE);

	if (status == DNN_OK)
		status = give_number(call, knob, DNN_KNOB_INFO_MAXIMUM_VALUE, DNN_TYPE_INT64);
	if (status == DNN_OK)
		status = give_number(call, knob, DNN_KNOB_INFO_MINIMUM_VALUE, DNN_TYPE_INT64);
	return status == DNN_OK ? give_number(call, knob, DNN_KNOB_INFO_STRIDE, DNN_TYPE_INT64) : status;
}

static int give_layout(struct math_call *call, void *layout)
{
	int32_t types[TYPES];
	int64_t count = 0;
	int status = give_number(call, layout, DNN_LAYOUT_INFO_TENSOR_UID, DNN_TYPE_INT64);

	if (status == DNN_OK)
		status = wk_dnn_get(layout, DNN_LAYOUT_INFO_TYPES, DNN_TYPE_LAYOUT_TYPE, TYPES, &count, types);
	if (status != DNN_OK || count < 0 || count > TYPES)
		count = 0;
	wk_give_word(call, (uint64_t)count);
	for (int64_t i = 0; i < count; i++)
		wk_give_word(call, (uint32_t)types[i]);
	return status;
}

static int give_one(struct math_call *call, uint64_t attribute, void *descriptor)
{
	switch (attribute) {
	case DNN_ENGINEHEUR_RESULTS:
		return give_configuration(call, descriptor);
	case DNN_ENGINE_KNOB_INFO:
		return give_knob(call, descriptor);
	default:
		return give_layout(call, descriptor);
	}
}

/* As many as there is place for; the guest asks again for the others. What cannot be read is left out: it is as if the library had not found it. */
static uint64_t give_found(struct math_call *call, uint64_t attribute, void **found, uint64_t from, uint64_t count, uint64_t *next)
{
	uint64_t given = 0;

	for (*next = from; *next < count; ++*next) {
		size_t before = call->filled;

		/* a word less than there is: a call that filled all of it has perhaps left something out */
		if (give_one(call, attribute, found[*next]) == DNN_OK && call->filled < call->room) {
			given++;
			continue;
		}
		if (call->filled >= call->room) {
			call->filled = before;
			break;
		}
		call->filled = before;
	}
	return given;
}

static int find(struct math_call *call, void *root, const struct dnn_attribute *a, uint64_t from)
{
	void *found[FOUND];
	int64_t count = 0, made;
	uint64_t words[3] = { 0 };
	int status = wk_dnn_get(root, a->number, DNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL);

	if (status != DNN_OK)
		return status;
	made = make_all(a->target, found, count < 0 ? 0 : count > FOUND ? FOUND : count);
	status = made ? wk_dnn_get(root, a->number, DNN_TYPE_BACKEND_DESCRIPTOR, made, &count, found) : DNN_OK;
	if (status == DNN_OK) {
		size_t head = call->filled;

		count = count < 0 ? 0 : count < made ? count : made;
		words[0] = (uint64_t)count;
		wk_give(call, words, sizeof(words));
		words[1] = give_found(call, a->number, found, from, words[0], &words[2]);
		memcpy(call->values + head, words, sizeof(words));
	}
	end_all(found, made);
	return status;
}

int wk_dnn_find(struct math_call *call)
{
	struct wk_reader r = { call->arguments, call->length, false };
	const struct dnn_attribute *a = dnn_attribute(wk_take_word(&r));
	uint64_t from = wk_take_word(&r);
	struct dnn_tree tree;
	int status;

	if (r.wrong || !a || !a->get || !(a->types >> DNN_TYPE_BACKEND_DESCRIPTOR & 1) || call->room < 4 * sizeof(uint64_t))
		return DNN_BAD_PARAM;
	status = wk_tree_build(&tree, &r, call->math->handle);
	if (status == DNN_OK && tree.types[tree.count - 1] != a->descriptor)
		status = DNN_BAD_PARAM;
	if (status == DNN_OK)
		status = find(call, tree.at[tree.count - 1], a, from);
	wk_tree_drop(&tree);
	return status;
}
