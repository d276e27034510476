/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the backend interface: what a program sets is kept here, and becomes a node when it is finalised. */
#include <stdlib.h>

#include "backend.h"

struct dnn_descriptor *dnn_descriptor(void *opaque)
{
	struct dnn_descriptor *d = opaque;

	return dnn_is_live(d) && d->magic == DNN_DESCRIPTOR_MAGIC ? d : NULL;
}

/* What a call is told of a pointer that is no descriptor. */
static int none(const void *descriptor)
{
	return descriptor ? DNN_BAD_PARAM : DNN_NULL_POINTER;
}

DNN_API int cudnnBackendCreateDescriptor(int type, void **descriptor);
int cudnnBackendCreateDescriptor(int type, void **descriptor)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct dnn_descriptor *d;

	if (!descriptor)
		return DNN_NULL_POINTER;
	*descriptor = NULL;
	if (type < 0 || type > DNN_LAST)
		return DNN_ALLOC_FAILED; /* NVIDIA's library answers this */
	if ((type != DNN_PACK && !dnn_is_descriptor((uint64_t)type)))
		return dnn_unsupported("a descriptor of cuDNN that is newer than this library, or is kept in texts or caches", &told);
	d = calloc(1, sizeof(*d));
	if (!d || !dnn_live_add(d)) {
		free(d);
		return DNN_ALLOC_FAILED;
	}
	d->magic = DNN_DESCRIPTOR_MAGIC;
	d->type = (uint32_t)type;
	*descriptor = d;
	return DNN_OK;
}

/* A reference that was set holds its node. */
static void drop_references(const uint8_t *at)
{
	uint64_t head;

	memcpy(&head, at, sizeof(head));
	for (uint64_t i = 0; dnn_head_type(head) == DNN_TYPE_BACKEND_DESCRIPTOR && i < dnn_head_count(head); i++) {
		struct dnn_node *node;

		memcpy(&node, at + sizeof(head) + i * sizeof(node), sizeof(node));
		dnn_node_drop(node);
	}
}

/* What was set goes; the node stays, if there is one. */
static void drop_attributes(struct dnn_descriptor *d)
{
	dnn_lock();
	for (size_t at = 0; at < d->length;) {
		uint64_t head;

		memcpy(&head, d->bytes + at, sizeof(head));
		drop_references(d->bytes + at);
		at += dnn_attribute_bytes(head);
	}
	dnn_unlock();
	free(d->bytes);
	d->bytes = NULL;
	d->length = 0;
	d->attributes = 0;
}

static void drop_node(struct dnn_descriptor *d)
{
	struct dnn_node *node = d->node;

	if (!node)
		return;
	d->node = NULL;
	dnn_release(node);
}

DNN_API int cudnnBackendDestroyDescriptor(void *descriptor);
int cudnnBackendDestroyDescriptor(void *descriptor)
{
	struct dnn_descriptor *d = dnn_descriptor(descriptor);

	if (!d)
		return none(descriptor);
	dnn_live_remove(d);
	drop_attributes(d);
	drop_node(d);
	dnn_pack_clear(d);
	d->magic = 0;
	free(d);
	return DNN_OK;
}

/* Its memory is for another use. */
DNN_API int cudnnBackendInitialize(void *descriptor);
int cudnnBackendInitialize(void *descriptor)
{
	struct dnn_descriptor *d = dnn_descriptor(descriptor);

	if (!d)
		return none(descriptor);
	drop_attributes(d);
	drop_node(d);
	dnn_pack_clear(d);
	return DNN_OK;
}

/* ---- attributes */

static void cut(struct dnn_descriptor *d, uint64_t number)
{
	uint8_t *at = (uint8_t *)dnn_attribute_at(d->bytes, d->length, number);
	size_t bytes;
	uint64_t head;

	if (!at)
		return;
	memcpy(&head, at, sizeof(head));
	bytes = dnn_attribute_bytes(head);
	dnn_lock();
	drop_references(at);
	dnn_unlock();
	memmove(at, at + bytes, d->length - (size_t)(at - d->bytes) - bytes);
	d->length -= bytes;
	d->attributes--;
}

/* The elements as a node has them: of references the nodes, of a handle its context. */
static int convert(const struct dnn_attribute *a, uint64_t type, uint64_t count, const void *elements, uint8_t *to)
{
	for (uint64_t i = 0; i < count && (type == DNN_TYPE_BACKEND_DESCRIPTOR || type == DNN_TYPE_HANDLE); i++) {
		void *element;
		const struct dnn_descriptor *other;

		memcpy(&element, (const char *)elements + i * sizeof(element), sizeof(element));
		if (type == DNN_TYPE_HANDLE) {
			if (!dnn_handle(element))
				return none(element);
			memcpy(to, &((struct dnn_handle *)element)->context, sizeof(void *));
			continue;
		}
		other = dnn_descriptor(element);
		if (!other || !dnn_refers_to(a, other->type))
			return other ? DNN_BAD_PARAM : none(element);
		if (!other->node)
			return DNN_NOT_FINALIZED;
		memcpy(to + i * sizeof(void *), &other->node, sizeof(void *));
	}
	if (type != DNN_TYPE_BACKEND_DESCRIPTOR && type != DNN_TYPE_HANDLE && count)
		memcpy(to, elements, count * dnn_element_bytes(type));
	return DNN_OK;
}

static void hold_references(uint64_t type, uint64_t count, const uint8_t *elements)
{
	dnn_lock();
	for (uint64_t i = 0; type == DNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
		struct dnn_node *node;

		memcpy(&node, elements + i * sizeof(node), sizeof(node));
		dnn_node_hold(node);
	}
	dnn_unlock();
}

static int append(struct dnn_descriptor *d, const struct dnn_attribute *a, uint64_t type, uint64_t count, const void *elements)
{
	uint64_t head = dnn_head(a->number, type, count);
	size_t bytes = dnn_attribute_bytes(head);
	uint8_t *more = realloc(d->bytes, d->length + bytes);
	bool again;
	int status;

	if (!more)
		return DNN_ALLOC_FAILED;
	d->bytes = more;
	memset(more + d->length, 0, bytes);
	memcpy(more + d->length, &head, sizeof(head));
	status = convert(a, type, count, elements, more + d->length + sizeof(head));
	if (status != DNN_OK)
		return status;
	hold_references(type, count, more + d->length + sizeof(head));
	again = dnn_attribute_at(d->bytes, d->length, a->number);
	d->length += bytes;
	d->attributes++;
	if (again)
		cut(d, a->number); /* the first one, which is the older */
	return DNN_OK;
}

static bool has_type(const struct dnn_attribute *a, int type)
{
	return type >= 0 && type < 64 && a->types >> type & 1;
}

static int set_attribute(struct dnn_descriptor *d, int number, int type, int64_t count, const void *elements)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct dnn_attribute *a = number < 0 ? NULL : dnn_attribute((uint64_t)number);

	if (!a)
		return dnn_unsupported("an attribute of cuDNN that is newer than this library, or is kept in texts or caches", &told);
	if (a->descriptor != d->type || a->get)
		return DNN_BAD_PARAM;
	if (!has_type(a, type))
		return DNN_ATTRIBUTE_TYPE;
	/* a configuration without choices of knobs may say so */
	if (count < (a->number != DNN_ENGINECFG_KNOB_CHOICES) || count > a->count || (count && !elements))
		return DNN_BAD_PARAM;
	return append(d, a, (uint64_t)type, (uint64_t)count, elements);
}

DNN_API int cudnnBackendSetAttribute(void *descriptor, int number, int type, int64_t count, const void *elements);
int cudnnBackendSetAttribute(void *descriptor, int number, int type, int64_t count, const void *elements)
{
	struct dnn_descriptor *d = dnn_descriptor(descriptor);

	if (!d || d->node || d->finalised)
		return d ? DNN_BAD_PARAM : none(descriptor);
	return d->type == DNN_PACK ? dnn_pack_set(d, number, type, count, elements) : set_attribute(d, number, type, count, elements);
}

DNN_API int cudnnBackendFinalize(void *descriptor);
int cudnnBackendFinalize(void *descriptor)
{
	struct dnn_descriptor *d = dnn_descriptor(descriptor);
	int status;

	if (!d || d->node || d->finalised)
		return d ? DNN_BAD_PARAM : none(descriptor);
	if (d->type == DNN_PACK)
		return dnn_pack_finalise(d);
	d->node = dnn_intern(d->type, d->attributes, d->bytes, d->length);
	if (!d->node)
		return DNN_ALLOC_FAILED;
	status = dnn_check(d->node);
	if (status == DNN_OK)
		drop_attributes(d);
	else
		drop_node(d);
	return status;
}

/* ---- what it has */

/* How many go to the program: all that there are where it has no place for any, and only wants to know. */
static int64_t count_given(int64_t count, int64_t wanted, const void *elements, int64_t *given)
{
	int64_t n = count < wanted ? count : wanted;

	if (given)
		*given = elements ? n : count;
	return elements ? n : 0;
}

/* Descriptors of the program's become those nodes. */
static int give_nodes(struct dnn_node *const *nodes, int64_t count, int64_t wanted, int64_t *given, void *elements)
{
	void **descriptors = elements;
	int64_t n = count_given(count, wanted, elements, given);

	for (int64_t i = 0; i < n; i++) {
		struct dnn_descriptor *d = dnn_descriptor(descriptors[i]);

		if (!d || d->type != nodes[i]->type)
			return DNN_BAD_PARAM;
		dnn_lock();
		dnn_node_hold(nodes[i]);
		dnn_unlock();
		drop_attributes(d);
		drop_node(d);
		d->node = nodes[i];
	}
	return DNN_OK;
}

static int give_elements(const uint8_t *values, uint64_t type, int64_t count, int64_t wanted, int64_t *given, void *elements)
{
	int64_t n = count_given(count, wanted, elements, given);

	if (n)
		memcpy(elements, values, (size_t)n * dnn_element_bytes(type));
	return DNN_OK;
}

/* As it was set. */
static int get_set(const uint8_t *at, uint64_t type, int64_t wanted, int64_t *given, void *elements)
{
	uint64_t head;
	int64_t count;

	memcpy(&head, at, sizeof(head));
	count = (int64_t)dnn_head_count(head);
	if (dnn_head_type(head) != type)
		return DNN_BAD_PARAM;
	if (type == DNN_TYPE_BACKEND_DESCRIPTOR)
		return give_nodes((struct dnn_node *const *)(const void *)(at + sizeof(head)), count, wanted, given, elements);
	if (type == DNN_TYPE_HANDLE) {
		void *context, *h;

		memcpy(&context, at + sizeof(head), sizeof(context));
		h = dnn_any_handle(context);
		return give_elements((const uint8_t *)&h, type, 1, wanted, given, elements);
	}
	return give_elements(at + sizeof(head), type, count, wanted, given, elements);
}

static int get_from_library(struct dnn_node *node, const struct dnn_attribute *a, uint64_t type, int64_t wanted, int64_t *given,
			    void *elements)
{
	const struct dnn_answer *answer;
	const struct dnn_found *found;
	int status;

	if (a->number == DNN_EXECUTION_PLAN_WORKSPACE_SIZE) {
		uint64_t bytes = dnn_plan_workspace(node);

		return give_elements((const uint8_t *)&bytes, type, 1, wanted, given, elements);
	}
	if (type == DNN_TYPE_BACKEND_DESCRIPTOR && a->get) {
		status = dnn_find_nodes(node, a, &found);
		return status == DNN_OK ? give_nodes(found->nodes, (int64_t)found->count, wanted, given, elements) : status;
	}
	if (type == DNN_TYPE_BACKEND_DESCRIPTOR || type == DNN_TYPE_HANDLE) /* none was set */
		return DNN_NOT_SUPPORTED;
	status = dnn_ask(node, a, type, &answer);
	return status == DNN_OK ? give_elements(answer->values, type, (int64_t)answer->count, wanted, given, elements) : status;
}

/* NVIDIA's library gives single values of tensors and convolutions to those who ask for one element, no more and no less. */
static bool is_single(const struct dnn_attribute *a)
{
	return (a->descriptor == DNN_TENSOR || a->descriptor == DNN_CONVOLUTION) && a->count == 1 && a->target == DNN_NO_TARGET &&
	       a->number != DNN_TENSOR_REORDERING_MODE;
}

DNN_API int cudnnBackendGetAttribute(void *descriptor, int number, int type, int64_t wanted, int64_t *given, void *elements);
int cudnnBackendGetAttribute(void *descriptor, int number, int type, int64_t wanted, int64_t *given, void *elements)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct dnn_attribute *a = number < 0 ? NULL : dnn_attribute((uint64_t)number);
	struct dnn_descriptor *d = dnn_descriptor(descriptor);
	const uint8_t *at;

	if (!d || wanted < 0)
		return d ? DNN_BAD_PARAM : none(descriptor);
	if (d->type == DNN_PACK)
		return dnn_pack_get(d, number, type, wanted, given, elements);
	if (!d->node)
		return DNN_NOT_INITIALIZED;
	if (!a)
		return dnn_unsupported("an attribute of cuDNN that is newer than this library, or is kept in texts or caches", &told);
	if (a->descriptor != d->type)
		return DNN_BAD_PARAM;
	if (!has_type(a, type))
		return DNN_ATTRIBUTE_TYPE;
	if (is_single(a) && elements && wanted != 1)
		return DNN_BAD_PARAM;
	at = dnn_attribute_at(d->node->bytes, d->node->length, a->number);
	return at ? get_set(at, (uint64_t)type, wanted, given, elements) :
		    get_from_library(d->node, a, (uint64_t)type, wanted, given, elements);
}
