/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by themselves: references, owners, and what the driver is told when the last reference goes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "transport/worker_limits.h"
#include "mathematics.h"
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

static bool take_now(_Atomic uint64_t *left, uint64_t much)
{
	uint64_t now = atomic_load(left);

	while (much <= now) {
		if (atomic_compare_exchange_weak(left, &now, now - much))
			return true;
	}
	return false;
}

static bool take(_Atomic uint64_t *left, uint64_t much)
{
	if (take_now(left, much))
		return true;
	wk_frees_wait();
	return take_now(left, much); /* also where the last end was between the two */
}

/* ---- what is kept of the guest's memory for graphs */

static _Atomic uint64_t staging_left = WK_STAGING_BYTES;

bool wk_staging_charge(uint64_t bytes)
{
	return take(&staging_left, bytes);
}

void wk_staging_refund(uint64_t bytes)
{
	atomic_fetch_add(&staging_left, bytes);
}

static void free_staging(const struct wk_object *host)
{
	if (!host->bytes)
		return;
	wk_driver.cuMemFreeHost((void *)host->address);
	wk_staging_refund(host->bytes);
}

/* ---- references */

/* What is counted for its session, too. */
static void refund_physical(const struct wk_object *o)
{
	wk_refund(o->kind, o->bytes);
	pthread_mutex_lock(&o->session->lock);
	o->session->physical_bytes -= o->bytes;
	wk_account(o->session);
	pthread_mutex_unlock(&o->session->lock);
}

/* Others can open it no more before it ends; another process's is closed after that, and charged there. */
static void end_physical(const struct wk_object *o)
{
	bool opened = wk_ipc_is_opened(o);

	if (!opened)
		wk_ipc_end(o);
	wk_driver.cuMemRelease((CUmemGenericAllocationHandle)o->driver);
	if (opened)
		wk_ipc_end(o);
	else
		refund_physical(o);
}

/* The same. What was allocated from it stays until it is freed. */
static void end_pool(const struct wk_object *o)
{
	bool opened = wk_ipc_is_opened(o);

	if (!opened)
		wk_ipc_end(o);
	if (!o->lent)
		wk_driver.cuMemPoolDestroy(o->driver);
	if (opened)
		wk_ipc_end(o);
}

static void close_memory(const struct wk_object *o)
{
	if (o->pool)
		wk_driver.cuMemFree_v2(o->address);
	else
		wk_driver.cuIpcCloseMemHandle(o->address);
	wk_ipc_end(o);
}

/* A level ends with what it is a level of. */
static void end_array(const struct wk_object *o)
{
	if (o->kind == WK_MIPMAP)
		wk_driver.cuMipmappedArrayDestroy(o->driver);
	else if (o->owner->kind != WK_MIPMAP)
		wk_driver.cuArrayDestroy(o->driver);
	refund_physical(o);
	free(o->array);
}

static void end_mapping(const struct wk_object *o)
{
	if (o->driver)
		wk_driver.cuMemUnmap(o->address, o->bytes);
	wk_release(o->physical);
	wk_release(o->space);
}

/* Those of share.c. */
static void end_events(const struct wk_object *stream)
{
	if (stream->mark)
		wk_driver.cuEventDestroy_v2(stream->mark);
	if (stream->before)
		wk_driver.cuEventDestroy_v2(stream->before);
}

/* Others can open it no more before it ends; another process's is closed after that. */
static void end_event(const struct wk_object *o)
{
	bool opened = wk_ipc_is_opened(o);

	if (!opened)
		wk_ipc_end(o);
	wk_driver.cuEventDestroy_v2(o->driver);
	if (opened)
		wk_ipc_end(o);
}

void wk_destroy(const struct wk_object *o)
{
	if (o->owner)
		wk_set_current(o->context);
	switch (o->kind) {
	case WK_CONTEXT:
		wk_driver.cuCtxDestroy_v2(o->driver);
		wk_freed_with(o);
		current = 0;
		wk_refund(o->kind, o->bytes);
		break;
	case WK_STREAM:
		if (o->capturing)
			atomic_fetch_sub(&o->capturing->captures, 1);
		wk_driver.cuStreamDestroy_v2(o->driver);
		end_events(o);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_EVENT:
		end_event(o);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_MODULE:
		wk_driver.cuModuleUnload(o->driver);
		wk_refund(o->kind, o->bytes);
		vg_refund(VG_LIMIT_IMAGE_BYTES, o->bytes);
		break;
	case WK_GRAPH:
		if (!o->lent)
			wk_driver.cuGraphDestroy(o->driver);
		wk_graph_free(o->graph);
		break;
	case WK_GRAPH_EXEC:
		wk_driver.cuGraphExecDestroy(o->driver);
		wk_graph_free(o->graph);
		break;
	case WK_POOL:
		end_pool(o);
		break;
	case WK_PHYSICAL:
		end_physical(o);
		break;
	case WK_ARRAY:
	case WK_MIPMAP:
		end_array(o);
		break;
	case WK_TEXTURE:
		wk_driver.cuTexObjectDestroy((CUtexObject)o->driver);
		break;
	case WK_SURFACE:
		wk_driver.cuSurfObjectDestroy((CUsurfObject)o->driver);
		break;
	case WK_MATH:
		wk_math_end(o->driver);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_MAPPING:
		end_mapping(o);
		break;
	case WK_SPACE:
		wk_driver.cuMemAddressFree(o->address, o->bytes);
		break;
	case WK_MEMORY:
		if (wk_is_variable(o))
			break;
		if (wk_ipc_is_opened(o)) {
			close_memory(o);
			break;
		}
		wk_ipc_end(o);
		if (o->address)
			wk_driver.cuMemFree_v2(o->address);
		wk_refund(o->kind, o->bytes);
		break;
	case WK_HOST: /* a launch may still use it, though its graphs are gone */
		if (wk_driver.cuEventSynchronize(o->driver) != CUDA_SUCCESS && wk_set_current(o->context) == CUDA_SUCCESS)
			wk_driver.cuCtxSynchronize();
		wk_driver.cuEventDestroy_v2(o->driver);
		wk_refund(WK_EVENT, 0);
		free_staging(o);
		atomic_fetch_sub(&o->session->hosts, 1);
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

/* ---- nodes are counted: they are the driver's memory, and a child graph may be many */

static _Atomic uint64_t nodes_left = WK_NODES;

bool wk_nodes_charge(uint64_t nodes)
{
	return take(&nodes_left, nodes);
}

void wk_nodes_refund(uint64_t nodes)
{
	atomic_fetch_add(&nodes_left, nodes);
}

/* ---- holds */

/* Where it is, or belongs. */
static size_t place(const struct wk_holds *h, const struct wk_object *o)
{
	size_t low = 0, high = h->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->at[middle] < o)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

CUresult wk_holds_add(struct wk_holds *h, struct wk_object *o)
{
	size_t at = place(h, o);
	struct wk_object **more;

	if (at < h->count && h->at[at] == o)
		return CUDA_SUCCESS;
	more = realloc(h->at, (h->count + 1) * sizeof(struct wk_object *));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	h->at = more;
	memmove(&more[at + 1], &more[at], (h->count - at) * sizeof(struct wk_object *));
	more[at] = o;
	h->count++;
	wk_hold_again(o);
	return CUDA_SUCCESS;
}

CUresult wk_holds_add_all(struct wk_holds *to, const struct wk_holds *from)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < from->count; i++)
		r = wk_holds_add(to, from->at[i]);
	return r;
}

void wk_holds_drop(struct wk_holds *h)
{
	for (size_t i = 0; i < h->count; i++)
		wk_release(h->at[i]);
	free(h->at);
	*h = (struct wk_holds){ NULL, 0 };
}

/* ---- graphs. One may be launched as long as it is there, so its functions and events stay until it ends. */

struct wk_graph *wk_graph_new(uint64_t weight, const struct wk_holds *holds)
{
	struct wk_graph *g = wk_nodes_charge(weight) ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return NULL;
	g->weight = weight;
	if (!holds || wk_holds_add_all(&g->holds, holds) == CUDA_SUCCESS)
		return g;
	wk_graph_free(g);
	return NULL;
}

void wk_graph_free(struct wk_graph *g)
{
	if (!g)
		return;
	wk_nodes_refund(g->weight);
	wk_holds_drop(&g->holds);
	wk_conditionals_free(g);
	free(g->nodes);
	free(g);
}
