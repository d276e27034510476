/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN as guests could call it: trees of descriptors that are nearly right, plans with a tensor on the host, and executions of them. */
#include "dnn_wire.h"
#include "maths.h"

/* Unique ids of tensors: on the device, and on the host. */
enum { FIRST = 1, SECOND, RESULT, VALUE = 7, QUESTIONS = DNN_SET_DROPOUT };

static _Atomic bool called[QUESTIONS + 1], called_classic[DNN_FUNCTIONS];

static void put_bytes(struct thread *t, const void *data, size_t bytes)
{
	uint64_t word;

	for (size_t at = 0; at < bytes; at += sizeof(word)) {
		word = 0;
		memcpy(&word, (const char *)data + at, bytes - at < sizeof(word) ? bytes - at : sizeof(word));
		put(t, word);
	}
}

static void put_number(struct thread *t, uint64_t number, uint64_t type, uint64_t value)
{
	put(t, dnn_head(number, type, 1));
	put(t, value);
}

static void put_tensor(struct thread *t, uint64_t id, bool by_value)
{
	static const int64_t sizes[] = { 1, 1, 1 };

	put(t, DNN_TENSOR | 5ull << 32);
	put_number(t, DNN_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, once_in(t, 20) ? roll(t) % 30 : 0);
	put(t, dnn_head(DNN_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 3));
	put_bytes(t, sizes, sizeof(sizes));
	put(t, dnn_head(DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 3));
	put_bytes(t, sizes, sizeof(sizes));
	put_number(t, DNN_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, once_in(t, 40) ? roll(t) % 9 : id);
	put_number(t, DNN_TENSOR_IS_BY_VALUE, DNN_TYPE_BOOLEAN, once_in(t, 40) ? roll(t) % 3 : by_value);
}

static void put_reference(struct thread *t, uint64_t number, uint64_t place)
{
	put_number(t, number, DNN_TYPE_BACKEND_DESCRIPTOR, once_in(t, 60) ? roll(t) : place);
}

/* Up to the graph: four tensors, what is done, the operation, the graph. Returns the graph's place. */
static uint64_t put_graph(struct thread *t)
{
	put_tensor(t, FIRST, false);
	put_tensor(t, VALUE, true);
	put_tensor(t, RESULT, false);
	put(t, DNN_POINTWISE | 2ull << 32);
	put_number(t, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, roll(t) % 60);
	put_number(t, DNN_POINTWISE_MATH_PREC, DNN_TYPE_DATA_TYPE, 0);
	put(t, DNN_OPERATION_POINTWISE | 4ull << 32);
	put_reference(t, DNN_OPERATION_POINTWISE_PW_DESCRIPTOR, 3);
	put_reference(t, DNN_OPERATION_POINTWISE_XDESC, 0);
	put_reference(t, DNN_OPERATION_POINTWISE_BDESC, 1);
	put_reference(t, DNN_OPERATION_POINTWISE_YDESC, 2);
	put(t, DNN_OPERATIONGRAPH | 2ull << 32);
	put(t, dnn_head(DNN_OPERATIONGRAPH_HANDLE, DNN_TYPE_HANDLE, once_in(t, 40) ? roll(t) % 3 : 1));
	put_reference(t, DNN_OPERATIONGRAPH_OPS, 4);
	return 5;
}

static uint64_t put_configuration(struct thread *t)
{
	uint64_t graph = put_graph(t);

	put(t, DNN_ENGINE | 2ull << 32);
	put_reference(t, DNN_ENGINE_OPERATION_GRAPH, graph);
	put_number(t, DNN_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, roll(t) % 4);
	put(t, DNN_KNOB_CHOICE | 2ull << 32);
	put_number(t, DNN_KNOB_CHOICE_KNOB_TYPE, DNN_TYPE_KNOB_TYPE, roll(t) % 30);
	put_number(t, DNN_KNOB_CHOICE_KNOB_VALUE, DNN_TYPE_INT64, roll(t) % 30);
	put(t, DNN_ENGINECFG | 2ull << 32);
	put_reference(t, DNN_ENGINECFG_ENGINE, graph + 1);
	put(t, dnn_head(DNN_ENGINECFG_KNOB_CHOICES, DNN_TYPE_BACKEND_DESCRIPTOR, once_in(t, 8) ? 0 : 1));
	put(t, graph + 2);
	return graph + 3;
}

void make_plan(struct thread *t)
{
	uint64_t configuration;

	t->length = 0;
	put(t, once_in(t, 60) ? roll(t) % 300 : 10);
	configuration = put_configuration(t);
	put(t, DNN_EXECUTION_PLAN | 2ull << 32);
	put(t, dnn_head(DNN_EXECUTION_PLAN_HANDLE, DNN_TYPE_HANDLE, 1));
	put_reference(t, DNN_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
	called[DNN_PLAN] = true;
}

void make_execution(struct thread *t, uint64_t plan)
{
	static const uint64_t ids[] = { FIRST, RESULT };
	uint64_t values = once_in(t, 20) ? roll(t) % 4 : 1;

	t->length = 0;
	put(t, plan);
	put(t, roll(t));
	put(t, once_in(t, 40) ? roll(t) % 9 : 2);
	for (int i = 0; i < 2; i++) {
		put(t, once_in(t, 30) ? roll(t) % 9 : ids[i]);
		put(t, roll(t)); /* an address, whatever it is */
	}
	put(t, values);
	for (uint64_t i = 0; i < values; i++) {
		put(t, once_in(t, 30) ? roll(t) % 9 : VALUE);
		put(t, once_in(t, 30) ? roll(t) : 4);
		put(t, roll(t));
	}
	called[DNN_EXECUTE] = true;
}

/* ---- trees of anything that is in the table */

static uint64_t pick_type(struct thread *t, uint64_t types)
{
	uint64_t type = roll(t) % 64;

	while (types && !(types >> type & 1))
		type = (type + 1) % 64;
	return once_in(t, 60) ? roll(t) % 70 : type;
}

/* One that the attribute refers to, if there is one. */
static uint64_t pick_reference(struct thread *t, const struct dnn_attribute *a, const uint64_t *types, uint64_t count)
{
	uint64_t place = count ? roll(t) % count : 0;

	for (uint64_t i = 0; i < count && !dnn_refers_to(a, types[place]); i++)
		place = (place + 1) % count;
	return once_in(t, 60) ? roll(t) : place;
}

static void put_attribute(struct thread *t, const struct dnn_attribute *a, const uint64_t *types, uint64_t count)
{
	uint64_t type = pick_type(t, a->types), n = 1 + roll(t) % (a->count < 5 ? a->count : 5);
	uint8_t elements[8 * 16] = { 0 };

	if (once_in(t, 60))
		n = roll(t) % 70;
	put(t, dnn_head(a->number, type, n));
	if (type == DNN_TYPE_HANDLE)
		return;
	for (uint64_t i = 0; i < n && type == DNN_TYPE_BACKEND_DESCRIPTOR; i++)
		put(t, pick_reference(t, a, types, count));
	for (size_t i = 0; i < sizeof(elements); i += 8)
		elements[i] = (uint8_t)(type == DNN_TYPE_BOOLEAN ? 0 : 1 + roll(t) % 4);
	if (type != DNN_TYPE_BACKEND_DESCRIPTOR && n * dnn_element_bytes(type) <= sizeof(elements))
		put_bytes(t, elements, n * dnn_element_bytes(type));
}

static void put_any(struct thread *t, uint64_t type, const uint64_t *types, uint64_t count)
{
	size_t head = t->length;
	uint64_t attributes = 0, word;

	put(t, 0);
	for (unsigned int i = 0; i < DNN_ATTRIBUTES; i++) {
		const struct dnn_attribute *a = &dnn_attributes[i];

		if (a->descriptor != type ? !once_in(t, 20000) : a->get ? !once_in(t, 60) : once_in(t, 4))
			continue;
		for (int again = 0; again <= once_in(t, 80); again++, attributes++)
			put_attribute(t, a, types, count);
	}
	word = type | (once_in(t, 60) ? roll(t) % 50 : attributes) << 32;
	memcpy(t->arguments + head, &word, sizeof(word));
}

static uint64_t put_tree(struct thread *t)
{
	uint64_t types[6], count = 1 + roll(t) % 6;

	put(t, once_in(t, 60) ? roll(t) % 300 : count);
	for (uint64_t i = 0; i < count; i++) {
		types[i] = once_in(t, 3) ? DNN_TENSOR : dnn_attributes[roll(t) % DNN_ATTRIBUTES].descriptor;
		if (once_in(t, 60))
			types[i] = roll(t) % 70;
		if (types[i] == DNN_TENSOR && once_in(t, 2))
			put_tensor(t, 1 + roll(t) % 3, false);
		else
			put_any(t, types[i], types, i);
	}
	return types[count - 1];
}

/* Something that the tree's last descriptor has, mostly. */
static const struct dnn_attribute *pick_attribute(struct thread *t, uint64_t descriptor, bool references)
{
	unsigned int place = (unsigned int)(roll(t) % DNN_ATTRIBUTES);

	for (unsigned int i = 0; i < DNN_ATTRIBUTES && !once_in(t, 2000); i++, place = (place + 1) % DNN_ATTRIBUTES)
		if (dnn_attributes[place].descriptor == descriptor &&
		    (!references || (dnn_attributes[place].get && dnn_attributes[place].target != DNN_NO_TARGET)))
			break;
	return &dnn_attributes[place];
}

static void make_question(struct thread *t, uint64_t function)
{
	const struct dnn_attribute *a;
	uint64_t words[2] = { 0 };
	size_t head = t->length;
	bool finds = function == DNN_FIND;

	put(t, 0);
	put(t, 0);
	if (finds) { /* heuristics and engines have what the library made */
		bool heuristics = once_in(t, 2);

		put(t, 7);
		put_graph(t);
		put(t, (heuristics ? DNN_ENGINEHEUR : DNN_ENGINE) | 2ull << 32);
		put_reference(t, heuristics ? DNN_ENGINEHEUR_OPERATION_GRAPH : DNN_ENGINE_OPERATION_GRAPH, 5);
		if (heuristics)
			put_number(t, DNN_ENGINEHEUR_MODE, DNN_TYPE_HEUR_MODE, 0);
		else
			put_number(t, DNN_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 0);
		a = pick_attribute(t, heuristics ? DNN_ENGINEHEUR : DNN_ENGINE, true);
	} else {
		a = pick_attribute(t, put_tree(t), false);
	}
	words[0] = once_in(t, 60) ? roll(t) : a->number;
	words[1] = finds ? once_in(t, 4) * roll(t) % 5 : pick_type(t, a->types);
	memcpy(t->arguments + head, words, sizeof(words));
}

/* ---- the classic interface */

static void put_form(struct thread *t, enum dnn_kind kind)
{
	uint64_t words[DNN_FORM_WORDS] = { 0 };
	const struct dnn_form *form = &dnn_forms[kind];
	size_t count;

	for (size_t i = 0; i < DNN_FORM_WORDS; i++)
		words[i] = 1 + roll(t) % 4;
	if (form->arrays)
		words[form->dimensions] = once_in(t, 30) ? roll(t) % 10 : 4;
	count = dnn_form_words(kind, words);
	put(t, once_in(t, 60) ? roll(t) : count);
	for (size_t i = 0; i < count; i++)
		put(t, words[i]);
}

static uint64_t make_classic(struct thread *t)
{
	unsigned int place = (unsigned int)(roll(t) % DNN_FUNCTIONS);
	const struct dnn_function *f = &dnn_functions[place];

	for (unsigned int i = 0; i < f->count; i++) {
		enum dnn_kind kind = f->arguments[i];

		if (kind >= DNN_TENSOR_ARGUMENT && once_in(t, 12)) {
			put(t, 0);
		} else if (kind >= DNN_TENSOR_ARGUMENT) {
			put_form(t, kind);
		} else if (kind == DNN_IN_ARGUMENT || kind == DNN_VALUE_ARGUMENT) {
			put(t, !once_in(t, 20));
			put(t, roll(t) % 9);
		} else if (kind == DNN_WANTED_ARGUMENT) {
			put(t, once_in(t, 10) ? roll(t) : roll(t) % (DNN_PERFS + 1));
		} else if (kind < DNN_OUT_ARGUMENT) {
			put(t, roll(t));
		}
	}
	called_classic[place] = true;
	return once_in(t, 50) ? roll(t) | 1ull << 63 : f->id;
}

uint64_t make_network(struct thread *t)
{
	static const uint64_t functions[] = { DNN_CHECK, DNN_GET, DNN_FIND, DNN_VERSIONS, DNN_SET_DROPOUT };
	uint64_t function = functions[roll(t) % 5];

	t->length = 0;
	if (once_in(t, 2))
		return make_classic(t);
	if (function == DNN_CHECK)
		put_tree(t);
	else if (function == DNN_SET_DROPOUT)
		put_form(t, DNN_DROPOUT_ARGUMENT);
	else if (function != DNN_VERSIONS)
		make_question(t, function);
	called[function] = true;
	return once_in(t, 60) ? roll(t) % 60 : function;
}

unsigned int count_networks(void)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i <= QUESTIONS; i++)
		found += called[i];
	for (unsigned int i = 0; i < DNN_FUNCTIONS; i++)
		found += called_classic[i];
	return found;
}
