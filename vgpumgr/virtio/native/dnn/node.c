/* SPDX-License-Identifier: Apache-2.0 */
/* Finalised descriptors by their content. They stay, with what is known of them, until there are many that nothing refers to. */
#include <stdlib.h>

#include "dnn.h"

enum { BUCKETS = 1024, MANY = 16384 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dnn_node *buckets[BUCKETS];
static unsigned int count, epoch, limit = MANY; /* limit: of how many, until they are swept */

void dnn_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dnn_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void dnn_node_hold(struct dnn_node *node)
{
	node->references++;
}

void dnn_node_drop(struct dnn_node *node)
{
	node->references--;
}

size_t dnn_attribute_bytes(uint64_t head)
{
	return sizeof(head) + dnn_padded(dnn_head_count(head) * dnn_element_bytes(dnn_head_type(head)));
}

const uint8_t *dnn_attribute_at(const uint8_t *bytes, size_t length, uint64_t number)
{
	for (size_t at = 0; at < length;) {
		uint64_t head;

		memcpy(&head, bytes + at, sizeof(head));
		if (dnn_head_number(head) == number)
			return bytes + at;
		at += dnn_attribute_bytes(head);
	}
	return NULL;
}

/* Calls `each` for whatever a node refers to. */
static void walk(const struct dnn_node *node, void (*each)(struct dnn_node *, void *), void *data)
{
	for (size_t at = 0; at < node->length;) {
		uint64_t head;

		memcpy(&head, node->bytes + at, sizeof(head));
		for (uint64_t i = 0; dnn_head_type(head) == DNN_TYPE_BACKEND_DESCRIPTOR && i < dnn_head_count(head); i++) {
			struct dnn_node *child;

			memcpy(&child, node->bytes + at + sizeof(head) + i * sizeof(child), sizeof(child));
			each(child, data);
		}
		at += dnn_attribute_bytes(head);
	}
}

static void hold_child(struct dnn_node *child, void *data)
{
	struct dnn_node *node = data;

	dnn_node_hold(child);
	if (!node->context)
		node->context = child->context;
}

static void drop_child(struct dnn_node *child, void *data)
{
	(void)data;
	dnn_node_drop(child);
}

static void set_context(struct dnn_node *node)
{
	static const uint64_t handles[] = { DNN_OPERATIONGRAPH_HANDLE, DNN_EXECUTION_PLAN_HANDLE, DNN_DEVICEPROP_HANDLE };

	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		const uint8_t *at = dnn_attribute_at(node->bytes, node->length, handles[i]);

		if (at)
			memcpy(&node->context, at + sizeof(uint64_t), sizeof(node->context));
	}
}

static void end(struct dnn_node *node)
{
	while (node->answers) {
		struct dnn_answer *next = node->answers->next;

		free(node->answers);
		node->answers = next;
	}
	while (node->found) {
		struct dnn_found *next = node->found->next;

		for (uint64_t i = 0; i < node->found->count; i++)
			dnn_node_drop(node->found->nodes[i]);
		free(node->found);
		node->found = next;
	}
	walk(node, drop_child, NULL);
	free(node);
	count--;
}

/* Those that nothing refers to. */
static void sweep_once(void)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct dnn_node **link = &buckets[i]; *link;) {
			struct dnn_node *node = *link;

			if (node->references || node->plan) {
				link = &node->next;
				continue;
			}
			*link = node->next;
			end(node);
		}
}

/*
 * A few times, as the end of one leaves others so. The next time is when there are twice as many as are left.
 */
static void sweep(void)
{
	unsigned int before = count + 1;

	for (int round = 0; round < 6 && count < before; round++) {
		before = count;
		sweep_once();
	}
	limit = 2 * count > MANY ? 2 * count : MANY;
}

static uint64_t hash_of(uint32_t type, const uint8_t *bytes, size_t length)
{
	uint64_t hash = math_hash(type, length);

	for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		hash = math_hash(hash, word);
	}
	return hash;
}

static struct dnn_node *make(uint32_t type, uint32_t attributes, const uint8_t *bytes, size_t length, uint64_t hash)
{
	struct dnn_node *node = calloc(1, sizeof(*node) + length);

	if (!node)
		return NULL;
	if (count >= limit)
		sweep();
	node->hash = hash;
	node->type = type;
	node->attributes = attributes;
	node->length = (uint32_t)length;
	if (length)
		memcpy(node->bytes, bytes, length);
	set_context(node);
	walk(node, hold_child, node);
	node->next = buckets[hash % BUCKETS];
	buckets[hash % BUCKETS] = node;
	count++;
	return node;
}

struct dnn_node *dnn_intern(uint32_t type, uint32_t attributes, const uint8_t *bytes, size_t length)
{
	uint64_t hash = hash_of(type, bytes, length);
	struct dnn_node *node;

	dnn_lock();
	node = buckets[hash % BUCKETS];
	while (node && !(node->hash == hash && node->type == type && node->length == length &&
			 (!length || !memcmp(node->bytes, bytes, length))))
		node = node->next;
	if (!node)
		node = make(type, attributes, bytes, length, hash);
	if (node)
		dnn_node_hold(node);
	dnn_unlock();
	return node;
}

/* ---- trees */

struct writer {
	uint8_t *to;
	size_t room, used;
	unsigned int count;       /* of descriptors */
	bool full;
	struct dnn_plan *values;  /* nothing is written, but tensors on the host are listed */
};

static void put(struct writer *w, const void *data, size_t bytes)
{
	if (w->values)
		return;
	if (w->full || bytes > w->room - w->used) {
		w->full = true;
		return;
	}
	memcpy(w->to + w->used, data, bytes);
	w->used += bytes;
}

static void put_word(struct writer *w, uint64_t word)
{
	put(w, &word, sizeof(word));
}

static void put_attribute(struct writer *w, const uint8_t *at, uint64_t head)
{
	put_word(w, head);
	if (dnn_head_type(head) == DNN_TYPE_HANDLE)
		return;
	if (dnn_head_type(head) != DNN_TYPE_BACKEND_DESCRIPTOR) {
		put(w, at + sizeof(head), dnn_attribute_bytes(head) - sizeof(head));
		return;
	}
	for (uint64_t i = 0; i < dnn_head_count(head); i++) {
		const struct dnn_node *child;

		memcpy(&child, at + sizeof(head) + i * sizeof(child), sizeof(child));
		put_word(w, child->place);
	}
}

static uint64_t read_number(const struct dnn_node *node, uint64_t number, size_t bytes)
{
	const uint8_t *at = dnn_attribute_at(node->bytes, node->length, number);
	uint64_t value = 0;

	if (at)
		memcpy(&value, at + sizeof(uint64_t), bytes);
	return value;
}

static void list_value(struct dnn_plan *plan, const struct dnn_node *node)
{
	if (node->type != DNN_TENSOR || !read_number(node, DNN_TENSOR_IS_BY_VALUE, 1) || plan->values == DNN_VALUES)
		return;
	plan->value[plan->values].id = (int64_t)read_number(node, DNN_TENSOR_UNIQUE_ID, 8);
	/* one number: the host has refused what is more */
	plan->value[plan->values++].bytes = dnn_data_bytes(read_number(node, DNN_TENSOR_DATA_TYPE, 4));
}

static void write_node(struct dnn_node *node, void *data)
{
	struct writer *w = data;

	if (node->mark == epoch)
		return;
	node->mark = epoch;
	walk(node, write_node, w);
	node->place = w->count++;
	if (w->values)
		list_value(w->values, node);
	put_word(w, node->type | (uint64_t)node->attributes << 32);
	for (size_t at = 0; at < node->length;) {
		uint64_t head;

		memcpy(&head, node->bytes + at, sizeof(head));
		put_attribute(w, node->bytes + at, head);
		at += dnn_attribute_bytes(head);
	}
}

size_t dnn_write_tree(struct dnn_node *node, uint8_t *to, size_t room)
{
	struct writer w = { .to = to, .room = room };
	uint64_t descriptors;

	put_word(&w, 0);
	dnn_lock();
	epoch++;
	write_node(node, &w);
	dnn_unlock();
	descriptors = w.count;
	if (!w.full)
		memcpy(to, &descriptors, sizeof(descriptors));
	return w.full || w.count > DNN_TREE ? 0 : w.used;
}

void dnn_list_values(struct dnn_node *node, struct dnn_plan *plan)
{
	struct writer w = { .values = plan };

	dnn_lock();
	epoch++;
	write_node(node, &w);
	dnn_unlock();
}
