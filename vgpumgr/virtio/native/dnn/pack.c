/* SPDX-License-Identifier: Apache-2.0 */
/* Variant packs, and the execution of a plan with one. */
#include <stdlib.h>

#include "descriptor.h"

enum { UNIQUE_IDS = 1000, DATA_POINTERS = 1001, WORKSPACE = 1003, TYPE_POINTER = 6, PACK_MAX = DNN_TREE, WORDS = 256, ALIGNMENT = 16 };

void dnn_pack_clear(struct dnn_descriptor *d)
{
	free(d->ids);
	free(d->pointers);
	d->ids = NULL;
	d->pointers = NULL;
	d->ids_count = d->pointers_count = 0;
	d->workspace = NULL;
	d->finalised = false;
}

static int keep(void **to, int64_t *to_count, int64_t count, const void *elements)
{
	void *copy = malloc((size_t)count * 8 + 1);

	if (!copy)
		return DNN_ALLOC_FAILED;
	if (count)
		memcpy(copy, elements, (size_t)count * 8);
	free(*to);
	*to = copy;
	*to_count = count;
	return DNN_OK;
}

int dnn_pack_set(struct dnn_descriptor *d, int number, int type, int64_t count, const void *elements)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (count < 0 || count > PACK_MAX || (count && !elements))
		return DNN_BAD_PARAM;
	switch (number) {
	case UNIQUE_IDS:
		return type == DNN_TYPE_INT64 ? keep((void **)&d->ids, &d->ids_count, count, elements) : DNN_BAD_PARAM;
	case DATA_POINTERS:
		return type == TYPE_POINTER ? keep((void **)&d->pointers, &d->pointers_count, count, elements) : DNN_BAD_PARAM;
	case WORKSPACE:
		if (type != TYPE_POINTER || count != 1)
			return DNN_BAD_PARAM;
		memcpy(&d->workspace, elements, sizeof(d->workspace));
		return DNN_OK;
	default:
		return dnn_unsupported("an attribute of cuDNN's variant packs beside ids, pointers and a workspace", &told);
	}
}

int dnn_pack_get(const struct dnn_descriptor *d, int number, int type, int64_t wanted, int64_t *given, void *elements)
{
	const void *from = number == UNIQUE_IDS ? (const void *)d->ids : number == DATA_POINTERS ? (const void *)d->pointers :
			   number == WORKSPACE ? (const void *)&d->workspace : NULL;
	int64_t count = number == UNIQUE_IDS ? d->ids_count : number == DATA_POINTERS ? d->pointers_count : 1;

	if (!d->finalised)
		return DNN_NOT_INITIALIZED;
	if (!from || type != (number == UNIQUE_IDS ? (int)DNN_TYPE_INT64 : (int)TYPE_POINTER))
		return DNN_BAD_PARAM;
	if (elements && wanted < count)
		count = wanted;
	if (given)
		*given = count;
	if (elements && count > 0)
		memcpy(elements, from, (size_t)count * 8);
	return DNN_OK;
}

int dnn_pack_finalise(struct dnn_descriptor *d)
{
	if (d->ids_count != d->pointers_count)
		return DNN_BAD_PARAM;
	for (int64_t i = 0; i < d->ids_count; i++)
		for (int64_t j = 0; j < i; j++)
			if (d->ids[i] == d->ids[j])
				return DNN_BAD_PARAM;
	d->finalised = true;
	return DNN_OK;
}

uint64_t dnn_plan_workspace(struct dnn_node *node)
{
	uint64_t bytes;

	dnn_lock();
	bytes = node->plan ? node->plan->workspace : 0;
	dnn_unlock();
	return bytes;
}

/* ---- execution */

struct words {
	uint64_t at[WORDS];
	size_t count;
	uint64_t kind;            /* a hash of what decides whether the library does it */
	bool full;
};

static void put(struct words *w, uint64_t word)
{
	if (w->count == WORDS)
		w->full = true;
	else
		w->at[w->count++] = word;
}

static void put_kind(struct words *w, uint64_t word)
{
	w->kind = math_hash(w->kind, word);
}

/* Bytes of a tensor that is on the host; 0: it is on the device. */
static size_t value_bytes(const struct dnn_plan *plan, int64_t id)
{
	for (unsigned int i = 0; i < plan->values; i++)
		if (plan->value[i].id == id)
			return plan->value[i].bytes;
	return 0;
}

static void put_value(struct words *w, int64_t id, size_t bytes, const void *value)
{
	uint64_t padded[DNN_VALUE_BYTES / sizeof(uint64_t)] = { 0 };

	put(w, (uint64_t)id);
	put(w, bytes);
	if (value)
		memcpy(padded, value, bytes);
	for (size_t i = 0; i < dnn_padded(bytes) / sizeof(uint64_t); i++)
		put(w, padded[i]);
}

static void pack(struct words *w, const struct dnn_plan *plan, const struct dnn_descriptor *d)
{
	uint64_t on_host = 0;

	put(w, plan->id);
	put(w, (uintptr_t)d->workspace);
	put_kind(w, plan->id);
	put_kind(w, d->workspace ? 1 + (uintptr_t)d->workspace % ALIGNMENT : 0);
	for (int64_t i = 0; i < d->ids_count; i++)
		on_host += value_bytes(plan, d->ids[i]) != 0;
	put(w, (uint64_t)d->ids_count - on_host);
	for (int64_t i = 0; i < d->ids_count; i++) {
		uintptr_t address = (uintptr_t)d->pointers[i];

		put_kind(w, (uint64_t)d->ids[i]);
		put_kind(w, address ? 1 + address % ALIGNMENT : 0);
		if (value_bytes(plan, d->ids[i]))
			continue;
		put(w, (uint64_t)d->ids[i]);
		put(w, address);
	}
	put(w, on_host);
	for (int64_t i = 0; i < d->ids_count; i++)
		if (value_bytes(plan, d->ids[i]))
			put_value(w, d->ids[i], value_bytes(plan, d->ids[i]), d->pointers[i]);
}

static bool copy_plan(struct dnn_node *node, struct dnn_plan *plan)
{
	bool found;

	dnn_lock();
	found = node->plan;
	if (found)
		*plan = *node->plan;
	dnn_unlock();
	return found;
}

static int execute(struct dnn_handle *h, struct dnn_node *node, const struct dnn_descriptor *d)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct words w = { .count = 0 };
	struct math_request request = { .stream = h->stream, .function = DNN_EXECUTE, .arguments = w.at, .wait = MATH_POST };
	struct dnn_plan plan = { .id = 0 };
	int status = dnn_open_plan(node); /* its maker may have gone, and it with that */

	if (status != DNN_OK)
		return status;
	if (!copy_plan(node, &plan))
		return DNN_INTERNAL_ERROR;
	pack(&w, &plan, d);
	if (w.full)
		return dnn_unsupported("an execution of cuDNN with so many tensors", &told);
	request.length = w.count * sizeof(uint64_t);
	return dnn_send(h, &request, w.kind);
}

/* Both are finalised, and are what they should be. */
static int read_arguments(void *plan, void *pack, struct dnn_descriptor **p, struct dnn_descriptor **v)
{
	*p = dnn_descriptor(plan);
	*v = dnn_descriptor(pack);
	if (!*p || !*v)
		return plan && pack ? DNN_BAD_PARAM : DNN_NULL_POINTER;
	if ((*p)->type != DNN_EXECUTION_PLAN || (*v)->type != DNN_PACK)
		return DNN_DESCRIPTOR_TYPE;
	return (*p)->node && (*v)->finalised ? DNN_OK : DNN_NOT_FINALIZED;
}

DNN_API int cudnnBackendExecute(void *handle, void *plan, void *pack);
int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
	struct dnn_handle *h = dnn_handle(handle);
	struct dnn_descriptor *p, *v;
	int status = h ? read_arguments(plan, pack, &p, &v) : DNN_BAD_PARAM;

	if (status != DNN_OK)
		return status;
	pthread_mutex_lock(&h->lock);
	status = execute(h, p->node, v);
	pthread_mutex_unlock(&h->lock);
	return status;
}

/* Without other shapes than those of the plan, which are refused, it is the plan's. */
DNN_API int cudnnGetExecutionPlanWorkspaceSize(void *handle, void *plan, void *pack, size_t *bytes);
int cudnnGetExecutionPlanWorkspaceSize(void *handle, void *plan, void *pack, size_t *bytes)
{
	struct dnn_descriptor *p, *v;
	int status = dnn_handle(handle) ? read_arguments(plan, pack, &p, &v) : DNN_BAD_PARAM;

	if (status != DNN_OK || !bytes)
		return status == DNN_OK ? DNN_NULL_POINTER : status;
	*bytes = dnn_plan_workspace(p->node);
	return DNN_OK;
}
