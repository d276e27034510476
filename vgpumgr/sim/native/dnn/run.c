/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as work on streams. */
#include <stdlib.h>
#include <string.h>

#include "compute.h"
#include "run.h"

struct run {
	struct work work;
	const struct dn_program *program;
	struct dn_setting setting;
	struct dn_content *plan;
	void *workspace;
	double *values; /* of tensors by value, a double's room for each of the program's tensors */
	void *data[]; /* by the program's tensors; NULL: virtual */
};

/* Missing memory fails the context, as the kernel that follows touches it. */
static bool reach(struct run *r)
{
	const struct dn_program *p = r->program;

	for (int i = 0; i < p->n_tensors; i++)
		if (!p->tensors[i].is_virtual && !p->tensors[i].by_value && !bl_reach(&r->work, r->data[i], dn_bytes(&p->tensors[i])))
			return false;
	return bl_reach(&r->work, r->workspace, r->workspace ? dn_workspace(p, &r->setting) : 0);
}

/* Memory for the virtual tensors: in the workspace from its end, or of the host; NULL in the list: not to be freed. */
static bool place_virtuals(const struct run *r, void **data, void **owned)
{
	const struct dn_program *p = r->program;
	char *end = r->workspace;

	if (end)
		end += dn_workspace(p, &r->setting);
	for (int i = 0; i < p->n_tensors; i++) {
		const struct dn_tensor *t = &p->tensors[i];

		data[i] = t->by_value ? (void *)&r->values[i] : r->data[i];
		if (!t->is_virtual)
			continue;
		if (dn_virtuals_in_workspace(&r->setting) && end) {
			end -= dn_align_workspace(dn_bytes(t));
			data[i] = end;
			continue;
		}
		data[i] = owned[i] = calloc(1, (size_t)dn_bytes(t) + 1);
		if (!owned[i])
			return false;
	}
	return true;
}

static void compute(const struct run *r, void *const *data)
{
	for (int i = 0; i < r->program->n_operations; i++) {
		const struct dn_operation *o = &r->program->operations[i];
		int64_t images = dn_patch_images(&r->setting, &o->geometry);
		struct dn_patches patches = { images ? r->workspace : NULL, images ? images : 1, r->setting.tiles };

		if (!dn_compute(r->program, o, data, &patches))
			return;
	}
}

static void run(struct work *work)
{
	struct run *r = (struct run *)work;
	size_t n = (size_t)r->program->n_tensors;
	void **data, **owned;

	work->wild = false;
	if (!reach(r))
		return;
	data = calloc(n + 1, sizeof *data);
	owned = calloc(n + 1, sizeof *owned);
	if (data && owned && place_virtuals(r, data, owned))
		compute(r, data);
	for (size_t i = 0; owned && i < n; i++)
		free(owned[i]);
	free(owned);
	free(data);
}

static void release(struct work *work)
{
	struct run *r = (struct run *)work;

	if (r->plan)
		dn_content_release(r->plan);
	else
		dn_program_destroy((struct dn_program *)r->program);
	free(r->values);
	free(r);
}

/* Values of the host are read now: the program may change them once the call is back. */
static void take_values(struct run *r, void *const *data)
{
	for (int i = 0; i < r->program->n_tensors; i++) {
		const struct dn_tensor *t = &r->program->tensors[i];

		r->data[i] = data[i];
		if (t->by_value && data[i])
			memcpy(&r->values[i], data[i], dn_type_bytes(t->type));
	}
}

int dn_run_post(const struct dn_handle *handle, struct bl_context *context, const struct dn_run_request *request)
{
	size_t n = (size_t)request->program->n_tensors;
	struct run *r = calloc(1, sizeof *r + n * sizeof *r->data);
	double *values = calloc(n + 1, sizeof *values);

	if (!r || !values) {
		free(r);
		free(values);
		if (!request->plan)
			dn_program_destroy((struct dn_program *)request->program);
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for work");
	}
	r->work = (struct work){ .run = run, .release = release, .context = context };
	r->program = request->program;
	r->setting = request->setting;
	r->plan = request->plan ? dn_content_keep(request->plan) : NULL;
	r->workspace = request->workspace;
	r->values = values;
	take_values(r, request->data);
	return dn_status(bl_post(&r->work, handle->stream, false));
}
