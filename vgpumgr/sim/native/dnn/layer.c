/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls before graphs share. */
#include <stdlib.h>
#include <string.h>

#include "classic.h"
#include "layer.h"

int dn_place(struct dn_placed *out, const void *descriptor, const void *data, bool needed)
{
	const struct dn_tensor *t = dn_tensor_find(descriptor);

	if (!needed)
		return DN_SUCCESS;
	if (!t || !data)
		return dn_fail(DN_BAD_PARAM, "a tensor is missing");
	if (!dn_is_simulated(t->type))
		return dn_fail(DN_NOT_SUPPORTED, "a type that is not simulated");
	out->tensor = *t;
	out->data = (void *)data;
	return DN_SUCCESS;
}

bool dn_placed_alike(const struct dn_placed *a, const struct dn_placed *b)
{
	return a->tensor.nd == b->tensor.nd && !memcmp(a->tensor.dims, b->tensor.dims, sizeof a->tensor.dims);
}

bool dn_placed_reach(struct work *work, const struct dn_placed *p)
{
	return !p->tensor.nd || bl_reach(work, p->data, dn_bytes(&p->tensor));
}

double *dn_placed_read(const struct dn_placed *p)
{
	double *values = malloc(((size_t)dn_elements(&p->tensor) + 1) * sizeof *values);

	if (values)
		dn_pack(&p->tensor, p->data, true, values);
	return values;
}

static void release(struct work *work)
{
	free(work);
}

int dn_layer_post(void *handle, const struct work *filled, size_t bytes, void (*run)(struct work *work))
{
	struct bl_context *context;
	struct dn_handle *h;
	struct work *w;
	int status = dn_handle_enter(handle, &h, &context);

	if (status != DN_SUCCESS)
		return status;
	w = malloc(bytes);
	if (!w)
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for work");
	memcpy(w, filled, bytes);
	*w = (struct work){ .run = run, .release = release, .context = context };
	return dn_status(bl_post(w, h->stream, false));
}
