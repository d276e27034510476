/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes that this one has opened. */
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "ipc.h"

/* What has been opened, with drv.lock held. A handle that is opened again in the same context gives the same address. */
struct ipc_opened {
	struct ipc_opened *next;
	struct ipc_handle handle;
	uint64_t ctx_id, addr;
	size_t times;
};
static struct ipc_opened *opened;

static struct ipc_opened **find_opened(const struct ipc_handle *handle, const struct context *ctx, uint64_t addr)
{
	struct ipc_opened **p = &opened;

	while (*p && !((*p)->ctx_id == ctx->id && (handle ? !memcmp(&(*p)->handle, handle, sizeof(*handle)) : (*p)->addr == addr)))
		p = &(*p)->next;
	return p;
}

struct ipc_opened *ipc_opened_new(void)
{
	return calloc(1, sizeof(struct ipc_opened));
}

void ipc_opened_add(struct ipc_opened *o, const struct ipc_handle *handle, const struct context *ctx, uint64_t addr)
{
	*o = (struct ipc_opened){ opened, *handle, ctx->id, addr, 1 };
	opened = o;
}

bool ipc_opened_again(const struct ipc_handle *handle, const struct context *ctx, CUdeviceptr *out)
{
	struct ipc_opened *o = *find_opened(handle, ctx, 0);

	if (!o)
		return false;
	o->times++;
	*out = o->addr;
	return true;
}

bool ipc_close_memory(const struct context *ctx, uint64_t addr, enum ipc_kind kind, bool *last)
{
	struct ipc_opened **p, *o;

	DRV_LOCKED();
	p = find_opened(NULL, ctx, addr);
	o = *p && (*p)->handle.kind == kind ? *p : NULL;
	*last = o && !--o->times;
	if (*last) {
		*p = o->next;
		free(o);
	}
	return o;
}

void ipc_free_context(const struct context *ctx)
{
	for (struct ipc_opened **p = &opened; *p;) {
		struct ipc_opened *o = *p;

		if (o->ctx_id != ctx->id) {
			p = &o->next;
			continue;
		}
		*p = o->next;
		free(o);
	}
}
