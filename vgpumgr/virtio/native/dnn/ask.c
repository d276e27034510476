/* SPDX-License-Identifier: Apache-2.0 */
/* What the host's library says of descriptors: each question is asked once for each content. */
#include <stdlib.h>

#include "dnn.h"

enum { REQUEST_BYTES = 24576, REPLY_BYTES = 12288, FOUND_MAX = 1024, NODE_BYTES = 2048 };

struct question {
	uint8_t request[REQUEST_BYTES], reply[REPLY_BYTES];
};

/* Words, then the tree that ends in the node. The channel's request points into the question. */
static int prepare(struct question *q, struct dnn_node *node, uint64_t function, const uint64_t *words, size_t count,
		   struct math_request *request)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	uint64_t handle = dnn_any_id(node->context);
	size_t length = count * sizeof(*words), tree;
	bool is_finalize = function == DNN_CHECK || function == DNN_PLAN;

	if (!handle)
		return DNN_NOT_INITIALIZED;
	if (count)
		memcpy(q->request, words, length);
	tree = dnn_write_tree(node, q->request + length, sizeof(q->request) - length);
	if (!tree)
		return dnn_unsupported("an operation graph of cuDNN with so many descriptors", &told);
	*request = (struct math_request){ .handle = handle, .function = function, .wait = MATH_ASK, .arguments = q->request,
					  .name = is_finalize ? "cudnnBackendFinalize" : "cudnnBackendGetAttribute",
					  .length = length + tree, .values = q->reply, .room = sizeof(q->reply) };
	return DNN_OK;
}

static int answer_of(int result, const struct math_request *request)
{
	return result ? dnn_failure(result) : request->status;
}

static int ask(struct question *q, struct dnn_node *node, uint64_t function, const uint64_t *words, size_t count,
	       struct math_request *request)
{
	int status = prepare(q, node, function, words, count, request);

	return status == DNN_OK ? answer_of(math_channel()->call(request), request) : status;
}

/* What a moment's lack of memory or a lost channel says is no property of a content. */
static bool stays(int status)
{
	return status == DNN_OK || status / 1000 == 2 || status / 1000 == 3;
}

int dnn_check(struct dnn_node *node)
{
	const struct dnn_found *found;
	struct math_request request;
	struct question *q;
	int status;

	if (atomic_load(&node->checked))
		return node->status;
	if (node->type == DNN_EXECUTION_PLAN)
		return dnn_open_plan(node);
	if (!dnn_any_handle(node->context))
		/* no handle yet, so no session to ask: it is checked with the graph that it becomes part of */
		return math_channel() ? DNN_OK : DNN_NOT_INITIALIZED;
	if (node->type == DNN_ENGINEHEUR) { /* finalising it is what takes time: what it has found comes along */
		status = dnn_find_nodes(node, dnn_attribute(DNN_ENGINEHEUR_RESULTS), &found);
	} else {
		q = malloc(sizeof(*q));
		status = q ? ask(q, node, DNN_CHECK, NULL, 0, &request) : DNN_ALLOC_FAILED;
		free(q);
	}
	if (stays(status)) {
		node->status = status;
		atomic_store(&node->checked, true);
	}
	return status;
}

static const struct dnn_answer *find_answer(const struct dnn_node *node, uint64_t attribute, uint64_t type)
{
	const struct dnn_answer *answer;

	dnn_lock();
	for (answer = node->answers; answer; answer = answer->next)
		if (answer->attribute == attribute && answer->type == type)
			break;
	dnn_unlock();
	return answer;
}

static const struct dnn_answer *keep_answer(struct dnn_node *node, uint64_t attribute, uint64_t type, int status, const uint8_t *reply,
					    size_t filled)
{
	size_t bytes = filled > sizeof(uint64_t) ? filled - sizeof(uint64_t) : 0;
	struct dnn_answer *answer = calloc(1, sizeof(*answer) + bytes);
	uint64_t count = 0;

	if (!answer)
		return NULL;
	if (filled >= sizeof(count))
		memcpy(&count, reply, sizeof(count));
	if (count > bytes / dnn_element_bytes(type))
		count = bytes / dnn_element_bytes(type);
	*answer = (struct dnn_answer){ .attribute = attribute, .type = type, .status = status, .count = count };
	memcpy(answer->values, reply + sizeof(count), bytes);
	dnn_lock();
	answer->next = node->answers;
	node->answers = answer;
	dnn_unlock();
	return answer;
}

int dnn_ask(struct dnn_node *node, const struct dnn_attribute *a, uint64_t type, const struct dnn_answer **answer)
{
	uint64_t words[] = { a->number, type };
	struct math_request request = { .filled = 0 };
	struct question *q;
	int status;

	*answer = find_answer(node, a->number, type);
	if (*answer)
		return (*answer)->status;
	q = malloc(sizeof(*q));
	status = q ? ask(q, node, DNN_GET, words, 2, &request) : DNN_ALLOC_FAILED;
	if (stays(status))
		*answer = keep_answer(node, a->number, type, status, q->reply, status == DNN_OK ? request.filled : 0);
	free(q);
	return status == DNN_OK && !*answer ? DNN_ALLOC_FAILED : status;
}

/* ---- descriptors that the library made */

struct reading {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct reading *r)
{
	uint64_t word = 0;

	if (r->left < sizeof(word)) {
		r->left = 0;
		return 0;
	}
	memcpy(&word, r->at, sizeof(word));
	r->at += sizeof(word);
	r->left -= sizeof(word);
	return word;
}

/* A node that is being made. */
struct making {
	uint32_t attributes;
	size_t length;
	_Alignas(8) uint8_t bytes[NODE_BYTES];
};

static void add_attribute(struct making *m, uint64_t number, uint64_t type, uint64_t count, const void *values)
{
	uint64_t head = dnn_head(number, type, count);

	if (m->length + dnn_attribute_bytes(head) > sizeof(m->bytes))
		return;
	memcpy(m->bytes + m->length, &head, sizeof(head));
	memset(m->bytes + m->length + sizeof(head), 0, dnn_attribute_bytes(head) - sizeof(head));
	memcpy(m->bytes + m->length + sizeof(head), values, count * dnn_element_bytes(type));
	m->length += dnn_attribute_bytes(head);
	m->attributes++;
}

/* As the program would set it. */
static void copy_attribute(struct making *m, const struct dnn_node *from, uint64_t attribute, uint64_t as)
{
	const uint8_t *at = dnn_attribute_at(from->bytes, from->length, attribute);
	uint64_t head;

	if (!at)
		return;
	memcpy(&head, at, sizeof(head));
	add_attribute(m, as, dnn_head_type(head), dnn_head_count(head), at + sizeof(head));
}

/* The library has it finalised already. */
static struct dnn_node *end_making(struct making *m, uint32_t type)
{
	struct dnn_node *node = dnn_intern(type, m->attributes, m->bytes, m->length);

	if (node && !atomic_load(&node->checked)) {
		node->status = DNN_OK;
		atomic_store(&node->checked, true);
	}
	return node;
}

static struct dnn_node *make_choice(uint64_t type, uint64_t value)
{
	struct making m = { .length = 0 };

	add_attribute(&m, DNN_KNOB_CHOICE_KNOB_TYPE, DNN_TYPE_KNOB_TYPE, 1, &type);
	add_attribute(&m, DNN_KNOB_CHOICE_KNOB_VALUE, DNN_TYPE_INT64, 1, &value);
	return end_making(&m, DNN_KNOB_CHOICE);
}

static struct dnn_node *make_engine(const struct dnn_node *heuristics, uint64_t index)
{
	struct making m = { .length = 0 };

	copy_attribute(&m, heuristics, DNN_ENGINEHEUR_OPERATION_GRAPH, DNN_ENGINE_OPERATION_GRAPH);
	add_attribute(&m, DNN_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 1, &index);
	copy_attribute(&m, heuristics, DNN_ENGINEHEUR_SM_COUNT_TARGET, DNN_ENGINE_SM_COUNT_TARGET);
	copy_attribute(&m, heuristics, DNN_ENGINEHEUR_DEVICEPROP, DNN_ENGINE_DEVICEPROP);
	return end_making(&m, DNN_ENGINE);
}

static struct dnn_node *make_configuration(const struct dnn_node *heuristics, struct reading *r)
{
	struct dnn_node *engine = make_engine(heuristics, take(r)), *choices[DNN_KNOBS], *made = NULL;
	uint64_t wanted = take(r), count = 0;
	struct making m = { .length = 0 };

	for (; count < wanted && count < DNN_KNOBS; count++) {
		uint64_t type = take(r);

		choices[count] = make_choice(type, take(r));
		if (!choices[count])
			break;
	}
	if (engine && count == wanted) {
		add_attribute(&m, DNN_ENGINECFG_ENGINE, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
		/* none is something that it has, too */
		add_attribute(&m, DNN_ENGINECFG_KNOB_CHOICES, DNN_TYPE_BACKEND_DESCRIPTOR, count, choices);
		made = end_making(&m, DNN_ENGINECFG);
	}
	dnn_lock(); /* what was made refers to them */
	while (count)
		dnn_node_drop(choices[--count]);
	if (engine)
		dnn_node_drop(engine);
	dnn_unlock();
	return made;
}

static struct dnn_node *make_knob(struct reading *r)
{
	static const uint64_t attributes[] = { DNN_KNOB_INFO_TYPE, DNN_KNOB_INFO_MAXIMUM_VALUE, DNN_KNOB_INFO_MINIMUM_VALUE,
					       DNN_KNOB_INFO_STRIDE };
	struct making m = { .length = 0 };

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		uint64_t value = take(r);

		add_attribute(&m, attributes[i], i ? DNN_TYPE_INT64 : DNN_TYPE_KNOB_TYPE, 1, &value);
	}
	return end_making(&m, DNN_KNOB_INFO);
}

static struct dnn_node *make_layout(struct reading *r)
{
	uint64_t id = take(r), count = take(r);
	int32_t types[DNN_DIMENSIONS] = { 0 };
	struct making m = { .length = 0 };

	for (uint64_t i = 0; i < count && i < DNN_DIMENSIONS; i++)
		types[i] = (int32_t)take(r);
	add_attribute(&m, DNN_LAYOUT_INFO_TENSOR_UID, DNN_TYPE_INT64, 1, &id);
	add_attribute(&m, DNN_LAYOUT_INFO_TYPES, DNN_TYPE_LAYOUT_TYPE, count < DNN_DIMENSIONS ? count : DNN_DIMENSIONS, types);
	return end_making(&m, DNN_LAYOUT_INFO);
}

static struct dnn_node *make_found(const struct dnn_node *node, uint64_t attribute, struct reading *r)
{
	switch (attribute) {
	case DNN_ENGINEHEUR_RESULTS:
		return make_configuration(node, r);
	case DNN_ENGINE_KNOB_INFO:
		return make_knob(r);
	default:
		return make_layout(r);
	}
}

/* One answer's; more: there are others to be asked for, from there on. */
static int read_found(struct dnn_node *node, struct dnn_found *found, const struct question *q, size_t filled, uint64_t *from)
{
	struct reading r = { q->reply, filled };
	uint64_t all = take(&r), given = take(&r), next = take(&r);

	for (uint64_t i = 0; i < given && found->count < FOUND_MAX; i++) {
		struct dnn_node *made = make_found(node, found->attribute, &r);

		if (!made)
			return DNN_ALLOC_FAILED;
		found->nodes[found->count++] = made;
	}
	/* without progress that is all that can be had */
	*from = next > *from && next < all ? next : 0;
	return DNN_OK;
}

static struct dnn_found *find_found(const struct dnn_node *node, uint64_t attribute)
{
	struct dnn_found *found;

	dnn_lock();
	for (found = node->found; found; found = found->next)
		if (found->attribute == attribute)
			break;
	dnn_unlock();
	return found;
}

static int ask_all(struct dnn_node *node, struct dnn_found *found, struct question *q)
{
	uint64_t from = 0;
	int status;

	do {
		uint64_t words[] = { found->attribute, from };
		struct math_request request = { .filled = 0 };

		status = ask(q, node, DNN_FIND, words, 2, &request);
		if (status == DNN_OK)
			status = read_found(node, found, q, request.filled, &from);
	} while (status == DNN_OK && from);
	return status;
}

int dnn_find_nodes(struct dnn_node *node, const struct dnn_attribute *a, const struct dnn_found **found)
{
	struct dnn_found *made = find_found(node, a->number);
	struct question *q;

	*found = made;
	if (made)
		return made->status;
	q = malloc(sizeof(*q));
	made = calloc(1, sizeof(*made) + FOUND_MAX * sizeof(struct dnn_node *));
	if (!made || !q) {
		free(q);
		free(made);
		return DNN_ALLOC_FAILED;
	}
	made->attribute = a->number;
	made->status = ask_all(node, made, q);
	free(q);
	if (!stays(made->status)) {
		int status = made->status;

		dnn_lock();
		while (made->count)
			dnn_node_drop(made->nodes[--made->count]);
		dnn_unlock();
		free(made);
		return status;
	}
	dnn_lock();
	made->next = node->found;
	node->found = made;
	dnn_unlock();
	*found = made;
	return made->status;
}

/* ---- execution plans */

static bool is_open(const struct dnn_plan *plan)
{
	return plan && math_channel()->alive(plan->id) && math_channel()->alive(plan->maker);
}

static void drop_plan(struct dnn_plan *plan)
{
	/* with the handle that it was made with it has ended already */
	if (is_open(plan))
		math_channel()->destroy(plan->id);
	free(plan);
}

static int make_plan(struct dnn_node *node, struct dnn_plan *plan, struct question *q)
{
	struct math_request request = { .filled = 0 };
	int status = prepare(q, node, DNN_PLAN, NULL, 0, &request);

	if (status == DNN_OK && !math_channel()->make)
		status = DNN_NOT_SUPPORTED;
	if (status == DNN_OK)
		status = answer_of(math_channel()->make(&request, &plan->id), &request);
	if (status != DNN_OK)
		return status;
	plan->maker = request.handle;
	if (request.filled >= sizeof(plan->workspace))
		memcpy(&plan->workspace, q->reply, sizeof(plan->workspace));
	dnn_list_values(node, plan);
	return DNN_OK;
}

int dnn_open_plan(struct dnn_node *node)
{
	struct dnn_plan *plan, *other;
	struct question *q;
	bool open;
	int status;

	dnn_lock();
	open = is_open(node->plan);
	dnn_unlock();
	if (open)
		return DNN_OK;
	plan = calloc(1, sizeof(*plan));
	q = malloc(sizeof(*q));
	status = plan && q ? make_plan(node, plan, q) : DNN_ALLOC_FAILED;
	free(q);
	if (status != DNN_OK) {
		free(plan);
		if (stays(status)) {
			node->status = status;
			atomic_store(&node->checked, true);
		}
		return status;
	}
	dnn_lock(); /* another thread may have been faster; one is enough */
	other = node->plan;
	if (!is_open(other)) {
		node->plan = plan;
		plan = other;
	}
	dnn_unlock();
	drop_plan(plan);
	return DNN_OK;
}

void dnn_release(struct dnn_node *node)
{
	struct dnn_plan *plan;

	dnn_lock();
	dnn_node_drop(node);
	plan = node->references ? NULL : node->plan;
	if (plan)
		node->plan = NULL;
	dnn_unlock();
	drop_plan(plan);
}

uint64_t dnn_plan_workspace(struct dnn_node *node)
{
	uint64_t bytes;

	dnn_lock();
	bytes = node->plan ? node->plan->workspace : 0;
	dnn_unlock();
	return bytes;
}
