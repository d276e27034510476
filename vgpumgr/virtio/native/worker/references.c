/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by themselves: references, owners, and what the driver is told when the last reference goes. */
#include <stdatomic.h>
#include <stdlib.h>

#include "transport/worker_limits.h"
#include "session.h"

static __thread uint64_t current; /* number of the context current on this thread */
static _Atomic uint64_t last_number;

int wk_set_current(struct wk_object *context)
{
	CUresult r;

	if (current == context->number)
		return CUDA_SUCCESS;
	r = wk_driver.cuCtxSetCurrent(context->driver);
	current = r == CUDA_SUCCESS ? context->number : 0;
	return r;
}

void wk_forget_current(void)
{
	current = 0;
}

/* ---- references */

void wk_destroy(const struct wk_object *o)
{
	if (o->kind != WK_CONTEXT && o->kind != WK_POOL)
		wk_set_current(o->context);
	switch (o->kind) {
	case WK_CONTEXT:
		wk_driver.cuCtxDestroy_v2(o->driver);
		current = 0;
		wk_refund(o->kind, o->bytes);
		break;
	case WK_STREAM:
		wk_driver.cuStreamDestroy_v2(o->driver);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_EVENT:
		wk_driver.cuEventDestroy_v2(o->driver);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_MODULE:
		wk_driver.cuModuleUnload(o->driver);
		wk_refund(o->kind, o->bytes);
		vg_refund(VG_LIMIT_IMAGE_BYTES, o->bytes);
		break;
	case WK_POOL: /* what was allocated from it stays until it is freed */
		if (!o->lent)
			wk_driver.cuMemPoolDestroy(o->driver);
		break;
	case WK_MEMORY:
		if (wk_is_variable(o))
			break;
		if (o->address)
			wk_driver.cuMemFree_v2(o->address);
		wk_refund(o->kind, o->bytes);
		break;
	default: /* a function ends with its module */
		break;
	}
}

bool wk_is_last(struct wk_object *o)
{
	return atomic_load_explicit(&o->references, memory_order_acquire) == 1;
}

void wk_release(struct wk_object *o)
{
	while (o && atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel) == 1) {
		struct wk_object *owner = o->owner;

		wk_destroy(o);
		free(o);
		o = owner;
	}
}

struct wk_object *wk_object_new(enum wk_kind kind, struct wk_object *owner, void *driver, uint32_t parameters)
{
	struct wk_object *o = calloc(1, sizeof(*o) + parameters * sizeof(struct wk_parameter));

	if (!o)
		return NULL;
	o->kind = kind;
	atomic_init(&o->references, 1);
	o->driver = driver;
	o->number = atomic_fetch_add(&last_number, 1) + 1;
	o->owner = owner;
	o->context = owner ? owner->context : o;
	if (owner)
		wk_hold_again(owner);
	return o;
}

/* ---- owners, under the session's lock */

void wk_own(struct wk_object *o)
{
	struct wk_object *owner = o->owner;

	if (!owner)
		return;
	o->next = owner->owned;
	o->link = &owner->owned;
	if (o->next)
		o->next->link = &o->next;
	owner->owned = o;
}

void wk_disown(struct wk_object *o)
{
	o->out = true;
	if (!o->link)
		return;
	*o->link = o->next;
	if (o->next)
		o->next->link = o->link;
	o->next = NULL;
	o->link = NULL;
}
