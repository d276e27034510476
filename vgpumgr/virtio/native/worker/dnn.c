/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN: questions about descriptors, execution plans, which are kept, and their execution. */
#include <stdlib.h>
#include <string.h>

#include "networks.h"

static int check(struct math_call *call)
{
	struct wk_reader r = { call->arguments, call->length, false };
	struct dnn_tree tree;
	int status = wk_tree_build(&tree, &r, call->math->handle);

	wk_tree_drop(&tree);
	return status;
}

/* All that the library has of it, up to DNN_NOTES: the guest answers from that. */
static int get(struct math_call *call)
{
	struct wk_reader r = { call->arguments, call->length, false };
	const struct dnn_attribute *a = dnn_attribute(wk_take_word(&r));
	uint64_t type = wk_take_word(&r);
	_Alignas(16) uint8_t values[DNN_NOTES * 16] = { 0 };
	struct dnn_tree tree;
	int64_t count = 0;
	int status;

	if (r.wrong || !a || type >= 64 || !(a->types >> type & 1) || type == DNN_TYPE_HANDLE || type == DNN_TYPE_BACKEND_DESCRIPTOR)
		return DNN_BAD_PARAM;
	status = wk_tree_build(&tree, &r, call->math->handle);
	if (status == DNN_OK && tree.types[tree.count - 1] != a->descriptor)
		status = DNN_BAD_PARAM;
	if (status == DNN_OK)
		status = wk_dnn_get(tree.at[tree.count - 1], a->number, type, a->count < DNN_NOTES ? a->count : DNN_NOTES, &count,
				    values);
	wk_tree_drop(&tree);
	if (status != DNN_OK)
		return status;
	count = count < 0 ? 0 : count > DNN_NOTES ? DNN_NOTES : count;
	wk_give_word(call, (uint64_t)count);
	wk_give(call, values, dnn_padded((size_t)count * dnn_element_bytes(type)));
	return DNN_OK;
}

static int versions(struct math_call *call)
{
	static const char *const names[] = { "cudnnGetMaxDeviceVersion", "cudnnGetCudartVersion" };

	for (int i = 0; i < 2; i++) {
		size_t (*function)(void);

		*(void **)&function = wk_dnn(names[i]);
		wk_give_word(call, function ? function() : 0);
	}
	return DNN_OK;
}

/* Before questions: the stream of the last execution may have ended since. */
static void leave_stream(struct wk_math *math)
{
	int (*set)(void *, CUstream);

	if (!math->settled || !math->stream)
		return;
	*(void **)&set = wk_dnn("cudnnSetStream");
	if (set)
		set(math->handle, NULL);
	math->settled = false;
}

/* ---- plans */

/* Everything that it was made of stays: whether the library needs it is not documented. */
struct plan {
	struct dnn_tree tree;
};

static int end_plan(void *plan)
{
	wk_tree_drop(&((struct plan *)plan)->tree);
	free(plan);
	return DNN_OK;
}

static void *plan_of(struct plan *plan)
{
	return plan->tree.at[plan->tree.count - 1];
}

static int make_plan(struct math_call *call, struct plan *plan)
{
	struct wk_reader r = { call->arguments, call->length, false };
	uint64_t workspace = 0;
	int64_t count = 0;
	int status;

	leave_stream(call->math);
	status = wk_tree_build(&plan->tree, &r, call->math->handle);
	if (status == DNN_OK && plan->tree.types[plan->tree.count - 1] != DNN_EXECUTION_PLAN)
		status = DNN_BAD_PARAM;
	if (status == DNN_OK)
		status = wk_dnn_get(plan_of(plan), DNN_EXECUTION_PLAN_WORKSPACE_SIZE, DNN_TYPE_INT64, 1, &count, &workspace);
	if (status == DNN_OK)
		wk_give_word(call, workspace);
	return status;
}

struct wk_math *wk_dnn_plan(struct math_call *call, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));
	struct plan *plan = calloc(1, sizeof(*plan));

	*status = math && plan ? make_plan(call, plan) : DNN_ALLOC_FAILED;
	if (*status == DNN_OK) {
		math->library = MATH_DNN_PLAN;
		math->handle = plan;
		math->destroy = end_plan;
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	if (plan)
		end_plan(plan);
	free(math);
	return NULL;
}

/* ---- execution */

struct pack {
	int64_t ids[DNN_TREE];
	void *at[DNN_TREE];
	_Alignas(16) uint8_t values[DNN_VALUES][DNN_VALUE_BYTES];
	unsigned int count, values_count;
};

static const struct dnn_value *find_value(const struct dnn_tree *tree, int64_t id)
{
	for (unsigned int i = 0; i < tree->values; i++)
		if (tree->value[i].id == id)
			return &tree->value[i];
	return NULL;
}

static bool add(struct pack *pack, int64_t id, void *at)
{
	if (pack->count == DNN_TREE)
		return false;
	for (unsigned int i = 0; i < pack->count; i++)
		if (pack->ids[i] == id)
			return false;
	pack->ids[pack->count] = id;
	pack->at[pack->count++] = at;
	return true;
}

/* What the plan has on the host comes with the call; all else is an address on the device. */
static bool read_pack(struct pack *pack, const struct dnn_tree *tree, struct wk_reader *r)
{
	uint64_t count = wk_take_word(r);

	for (uint64_t i = 0; i < count && !r->wrong; i++) {
		int64_t id = (int64_t)wk_take_word(r);
		uint64_t address = wk_take_word(r);

		if (find_value(tree, id) || !add(pack, id, (void *)address))
			return false;
	}
	count = wk_take_word(r);
	for (uint64_t i = 0; i < count && !r->wrong; i++) {
		int64_t id = (int64_t)wk_take_word(r);
		uint64_t bytes = wk_take_word(r);
		const struct dnn_value *value = find_value(tree, id);
		const uint8_t *from;

		if (!value || value->bytes != bytes || pack->values_count == DNN_VALUES)
			return false;
		from = wk_take_bytes(r, bytes);
		if (!from || !add(pack, id, pack->values[pack->values_count]))
			return false;
		memcpy(pack->values[pack->values_count++], from, bytes);
	}
	return !r->wrong && !r->left;
}

static int set_attribute(void *descriptor, int attribute, int type, int64_t count, const void *values)
{
	int (*set)(void *, int, int, int64_t, const void *);

	*(void **)&set = wk_dnn("cudnnBackendSetAttribute");
	return set ? set(descriptor, attribute, type, count, values) : DNN_NOT_SUPPORTED;
}

/* Of descriptors of variant packs, which travel as they are and so are not in the table. */
enum { VARIANT_PACK = 16, UNIQUE_IDS = 1000, DATA_POINTERS = 1001, WORKSPACE = 1003, TYPE_POINTER = 6 };

static int make_pack(struct pack *pack, void *workspace, void **descriptor)
{
	int (*finalise)(void *);
	int status = wk_dnn_make(VARIANT_PACK, descriptor);

	*(void **)&finalise = wk_dnn("cudnnBackendFinalize");
	if (status == DNN_OK)
		status = set_attribute(*descriptor, DATA_POINTERS, TYPE_POINTER, pack->count, pack->at);
	if (status == DNN_OK)
		status = set_attribute(*descriptor, UNIQUE_IDS, DNN_TYPE_INT64, pack->count, pack->ids);
	if (status == DNN_OK)
		status = set_attribute(*descriptor, WORKSPACE, TYPE_POINTER, 1, &workspace);
	if (status == DNN_OK)
		status = finalise ? finalise(*descriptor) : DNN_NOT_SUPPORTED;
	return status;
}

static int set_stream(const struct math_call *call)
{
	struct wk_math *math = call->math;
	int (*set)(void *, CUstream);
	int status;

	if (math->settled && call->stream == math->stream && !call->anew)
		return DNN_OK;
	*(void **)&set = wk_dnn("cudnnSetStream");
	status = set ? set(math->handle, call->stream) : DNN_NOT_SUPPORTED;
	math->settled = status == DNN_OK;
	math->stream = call->stream;
	return status;
}

static int execute(struct math_call *call)
{
	struct wk_reader r = { call->arguments, call->length, false };
	struct pack pack = { .count = 0 };
	int (*function)(void *, void *, void *);
	void *workspace, *descriptor = NULL;
	struct plan *plan;
	int status;

	wk_take_word(&r); /* the plan, which was found already */
	workspace = (void *)wk_take_word(&r);
	plan = call->plan->handle;
	*(void **)&function = wk_dnn("cudnnBackendExecute");
	if (!function || !read_pack(&pack, &plan->tree, &r))
		return function ? DNN_BAD_PARAM : DNN_NOT_SUPPORTED;
	status = set_stream(call);
	if (status == DNN_OK)
		status = make_pack(&pack, workspace, &descriptor);
	if (status == DNN_OK)
		status = function(call->math->handle, plan_of(plan), descriptor);
	wk_dnn_end(descriptor);
	return status;
}

static int call_plan(struct math_call *call)
{
	int status;

	/* before its lock: of two handles that are named as each other's plan, none would be had */
	if (!call->plan || call->plan->library != MATH_DNN_PLAN)
		return DNN_BAD_PARAM;
	pthread_mutex_lock(&call->plan->lock);
	status = execute(call);
	pthread_mutex_unlock(&call->plan->lock);
	return status;
}

static int start_dropout(struct math_call *call)
{
	int status = set_stream(call);

	return status == DNN_OK ? wk_dnn_set_dropout(call) : status;
}

static int call_classic(struct math_call *call)
{
	const struct dnn_function *f = dnn_find(call->function);
	int status = f ? DNN_OK : DNN_NOT_SUPPORTED;

	if (f && call->values)
		leave_stream(call->math);
	else if (f)
		status = set_stream(call);

	return status == DNN_OK ? wk_dnn_classic(call, f) : status;
}

int wk_dnn_call(struct math_call *call)
{
	if (call->function == DNN_CHECK || call->function == DNN_GET || call->function == DNN_FIND)
		leave_stream(call->math);
	switch (call->function) {
	case DNN_CHECK:
		return check(call);
	case DNN_GET:
		return get(call);
	case DNN_FIND:
		return wk_dnn_find(call);
	case DNN_EXECUTE:
		return call_plan(call);
	case DNN_VERSIONS:
		return versions(call);
	case DNN_SET_DROPOUT:
		return start_dropout(call);
	default:
		return call_classic(call);
	}
}
