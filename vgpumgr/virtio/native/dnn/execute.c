/* SPDX-License-Identifier: Apache-2.0 */
/* The execution of a plan: its tensors' addresses, and the values of those that are on the host. */
#include "backend.h"

enum { WORDS = 256 };

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
	put_kind(w, dnn_alignment((uintptr_t)d->workspace));
	for (int64_t i = 0; i < d->ids_count; i++)
		on_host += value_bytes(plan, d->ids[i]) != 0;
	put(w, (uint64_t)d->ids_count - on_host);
	for (int64_t i = 0; i < d->ids_count; i++) {
		uintptr_t address = (uintptr_t)d->pointers[i];

		put_kind(w, (uint64_t)d->ids[i]);
		put_kind(w, dnn_alignment(address));
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
	struct math_request request = { .stream = h->stream, .function = DNN_EXECUTE, .name = "cudnnBackendExecute",
					.arguments = w.at, .wait = MATH_POST };
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
