/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are executed with the addresses of a variant pack. */
#include <stdlib.h>

#include "descriptor.h"
#include "exports.h"
#include "run.h"

static const struct dn_content *config_of(const struct dn_content *plan)
{
	return dn_content_ref(plan, DN_A_PLAN_CONFIG, 0);
}

static const struct dn_program *program_of(const struct dn_content *plan)
{
	const struct dn_content *engine = dn_content_ref(config_of(plan), DN_A_CONFIG_ENGINE, 0);

	return dn_content_ref(engine, DN_A_ENGINE_GRAPH, 0)->program;
}

/* The address of a tensor in the pack; false: it has none. */
static bool find_address(const struct dn_content *pack, int64_t uid, void **out)
{
	const struct dn_value *uids = dn_content_value(pack, DN_A_PACK_UIDS), *pointers = dn_content_value(pack, DN_A_PACK_POINTERS);

	for (int64_t i = 0; uids && i < uids->count; i++) {
		if (((int64_t *)uids->data)[i] == uid) {
			*out = ((void **)pointers->data)[i];
			return true;
		}
	}
	return false;
}

static int bind(const struct dn_program *p, const struct dn_content *pack, void **data)
{
	for (int i = 0; i < p->n_tensors; i++) {
		const struct dn_tensor *t = &p->tensors[i];

		if (t->is_virtual)
			continue;
		if (!find_address(pack, t->uid, &data[i]))
			return dn_fail(DN_BAD_PARAM, "a tensor has no address in the variant pack");
		if (!data[i] && dn_bytes(t))
			return dn_fail(DN_NULL_POINTER, "a tensor's address is null");
	}
	return DN_SUCCESS;
}

static int find_workspace(const struct dn_content *plan, const struct dn_content *pack, void **out)
{
	const struct dn_value *v = dn_content_value(pack, DN_A_PACK_WORKSPACE);
	int64_t needed = dn_content_int(plan, DN_A_PLAN_WORKSPACE, 0);

	*out = v && needed ? *(void **)v->data : NULL;
	return needed && !*out ? dn_fail(DN_NULL_POINTER, "the plan needs a workspace") : DN_SUCCESS;
}

static int post(const struct dn_handle *h, struct bl_context *context, struct dn_content *plan, const struct dn_content *pack,
		void **data)
{
	struct dn_run_request request = { .program = program_of(plan), .data = data, .plan = plan };
	int status = bind(request.program, pack, data);

	if (status == DN_SUCCESS)
		status = find_workspace(plan, pack, &request.workspace);
	if (status != DN_SUCCESS)
		return status;
	dn_setting_read(config_of(plan), &request.setting);
	return dn_run_post(h, context, &request);
}

static int read_all(const void *handle, const void *plan, const void *pack, struct dn_content **p, struct dn_content **v)
{
	int status;

	if (!dn_object_find(handle, DN_HANDLE))
		return dn_fail(DN_BAD_PARAM, "no handle");
	status = dn_descriptor_read(plan, DN_D_PLAN, p);
	return status == DN_SUCCESS ? dn_descriptor_read(pack, DN_D_PACK, v) : status;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
	struct dn_content *p, *v;
	struct bl_context *context;
	struct dn_handle *h;
	void **data;
	int status = read_all(handle, plan, pack, &p, &v);

	if (status == DN_SUCCESS)
		status = dn_handle_enter(handle, &h, &context);
	if (status != DN_SUCCESS)
		return status;
	data = calloc((size_t)program_of(p)->n_tensors + 1, sizeof *data);
	if (!data)
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for addresses");
	status = post(h, context, p, v, data);
	free(data);
	return status;
}

int cudnnGetExecutionPlanWorkspaceSize(void *handle, void *plan, void *pack, size_t *bytes)
{
	struct dn_content *p, *v;
	int status = read_all(handle, plan, pack, &p, &v);

	if (status != DN_SUCCESS)
		return status;
	if (!bytes)
		return dn_fail(DN_NULL_POINTER, "no place for the size");
	*bytes = (size_t)dn_content_int(p, DN_A_PLAN_WORKSPACE, 0);
	return DN_SUCCESS;
}
