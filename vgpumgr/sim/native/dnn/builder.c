/* SPDX-License-Identifier: Apache-2.0 */
/* Builds programs of a few operations and posts them. */
#include <float.h>
#include <string.h>

#include "builder.h"
#include "classic.h"

void dn_builder_begin(struct dn_builder *b, int operations)
{
	memset(b, 0, sizeof *b);
	b->program = dn_program_create(operations);
	if (!b->program)
		b->status = dn_fail(DN_NO_HOST_MEMORY, "no memory for work");
}

struct dn_tensor dn_builder_tensor(struct dn_builder *b, int uid, const struct dn_tensor *t, const void *data)
{
	struct dn_tensor copy = *t;

	copy.uid = uid;
	b->addresses[uid] = (void *)data;
	return copy;
}

struct dn_tensor dn_builder_between(int uid, const struct dn_tensor *t, int type)
{
	struct dn_tensor copy = *t;

	copy.uid = uid;
	copy.type = type;
	copy.is_virtual = true;
	dn_tensor_spread(&copy, false);
	return copy;
}

void dn_builder_add(struct dn_builder *b, const struct dn_operation *o, const struct dn_tensor *first, const struct dn_tensor *second,
		    const struct dn_tensor *third, const struct dn_tensor *fourth)
{
	const struct dn_tensor *const operands[] = { first, second, third, fourth };

	if (b->status == DN_SUCCESS)
		b->status = dn_program_add(b->program, o, operands);
}

static int post(struct dn_builder *b, const void *handle, const struct dn_setting *setting, void *workspace)
{
	struct dn_run_request request = { .program = b->program, .setting = *setting, .workspace = workspace };
	void *data[DN_BUILDER_TENSORS];
	struct bl_context *context;
	struct dn_handle *h;
	int status = dn_handle_enter(handle, &h, &context);

	if (status == DN_SUCCESS)
		status = dn_program_complete(b->program);
	if (status != DN_SUCCESS) {
		dn_program_destroy(b->program);
		return status;
	}
	for (int i = 0; i < b->program->n_tensors; i++)
		data[i] = b->addresses[b->program->tensors[i].uid];
	request.data = data;
	return dn_run_post(h, context, &request);
}

int dn_builder_post(struct dn_builder *b, const void *handle, const struct dn_setting *setting, void *workspace)
{
	if (b->status == DN_SUCCESS)
		return post(b, handle, setting, workspace);
	dn_program_destroy(b->program);
	return b->status;
}

struct dn_operation dn_builder_map(int mode, int type, double alpha, double beta)
{
	return (struct dn_operation){
		.kind = DN_D_POINTWISE_OP, .output = 3, .compute = type == DN_DOUBLE ? DN_DOUBLE : DN_FLOAT, .alpha = alpha, .beta = beta,
		.pointwise = { .mode = mode, .upper = DBL_MAX, .elu = 1, .softplus = 1, .swish = 1, .axis = -1, .alpha1 = 1, .alpha2 = 1 },
	};
}
