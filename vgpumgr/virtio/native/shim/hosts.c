/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph stops at a gate where it needs this process; the one thread that serves gates then calls the program's function,
 * or moves the bytes of a copy. So memory is read when the copy runs, and written before what comes after it.
 */
#include "hosts.h"

#include "user_objects_end.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SLOT_BITS = 24, ROWS_AT_ONCE = 64 };

struct record {
	struct shim_host what;
	uint64_t number;
	size_t holders;
};

struct shim_hosts {
	size_t count;
	struct record *at[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record **records;
static size_t slots;
static uint64_t last;
static struct shim_hosts *captured;
static struct user_objects captured_objects;

/* ---- records and who holds them; all of this under the lock */

static struct record *find(uint64_t number)
{
	uint64_t slot = number & ((1u << SLOT_BITS) - 1);

	return slot < slots && records[slot] && records[slot]->number == number ? records[slot] : NULL;
}

static struct record *new_record(const struct shim_host *what)
{
	struct record *r = malloc(sizeof(*r)), **grown;
	size_t slot = 0, room = slots ? 2 * slots : 64;

	while (slot < slots && records[slot])
		slot++;
	if (r && slot == slots) {
		grown = slot < 1u << SLOT_BITS ? realloc(records, room * sizeof(*grown)) : NULL;
		if (!grown) {
			free(r);
			return NULL;
		}
		memset(grown + slots, 0, (room - slots) * sizeof(*grown));
		records = grown;
		slots = room;
	}
	if (!r)
		return NULL;
	last = (last + 1) & ((1ull << (63 - SLOT_BITS)) - 1);
	*r = (struct record){ *what, SHIM_GRAPH_GATE | last << SLOT_BITS | slot, 0 };
	records[slot] = r;
	return r;
}

static void let_go(struct record *r)
{
	if (--r->holders)
		return;
	records[r->number & ((1u << SLOT_BITS) - 1)] = NULL;
	free(r);
}

static void drop(struct shim_hosts *h)
{
	for (size_t i = 0; h && i < h->count; i++)
		let_go(h->at[i]);
	free(h);
}

static bool add(struct shim_hosts **set, struct record *r)
{
	size_t count = *set ? (*set)->count : 0;
	struct shim_hosts *grown;

	for (size_t i = 0; i < count; i++) {
		if ((*set)->at[i] == r)
			return true;
	}
	grown = realloc(*set, sizeof(*grown) + (count + 1) * sizeof(grown->at[0]));
	if (!grown)
		return false;
	grown->at[count] = r;
	grown->count = count + 1;
	r->holders++;
	*set = grown;
	return true;
}

static CUresult add_all(struct shim_hosts **set, const struct shim_hosts *from)
{
	for (size_t i = 0; from && i < from->count; i++) {
		if (!add(set, from->at[i]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* One that is there already is not kept twice: programs change nodes before each launch. */
static uint64_t keep(struct shim_hosts **set, const struct shim_host *what)
{
	struct record *r;

	for (size_t i = 0; *set && i < (*set)->count; i++) {
		if (!memcmp(&(*set)->at[i]->what, what, sizeof(*what)))
			return (*set)->at[i]->number;
	}
	r = new_record(what);
	if (!r)
		return 0;
	if (add(set, r))
		return r->number;
	r->holders = 1;
	let_go(r);
	return 0;
}

/* ---- for graphs */

uint64_t shim_host_keep(struct shim_object *graph, const struct shim_host *what)
{
	uint64_t number;

	pthread_mutex_lock(&lock);
	number = keep(&graph->graph.hosts, what);
	pthread_mutex_unlock(&lock);
	return number;
}

bool shim_host_find(uint64_t number, struct shim_host *what)
{
	struct record *r;

	pthread_mutex_lock(&lock);
	r = find(number);
	if (r)
		*what = r->what;
	pthread_mutex_unlock(&lock);
	return r;
}

void shim_hosts_lock(void)
{
	pthread_mutex_lock(&lock);
}

void shim_hosts_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

CUresult shim_hosts_share(const struct shim_object *from, struct shim_object *to)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = add_all(&to->graph.hosts, from->graph.hosts);
	if (r == CUDA_SUCCESS)
		r = user_objects_share(&to->graph.objects, &from->graph.objects);
	pthread_mutex_unlock(&lock);
	return r;
}

void shim_hosts_drop(struct shim_object *graph)
{
	struct shim_hosts *h;

	shim_records_drop(graph);
	pthread_mutex_lock(&lock);
	h = graph->graph.hosts;
	graph->graph.hosts = NULL;
	drop(h);
	shim_user_objects_drop(graph);
	pthread_mutex_unlock(&lock);
}

CUresult shim_hosts_captured(const struct shim_object *launched)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = add_all(&captured, launched->graph.hosts);
	if (r == CUDA_SUCCESS)
		r = user_objects_share(&captured_objects, &launched->graph.objects);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult shim_hosts_take_captured(struct shim_object *graph, bool ended)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (graph)
		r = add_all(&graph->graph.hosts, captured);
	if (graph && r == CUDA_SUCCESS)
		r = user_objects_share(&graph->graph.objects, &captured_objects);
	if (ended) {
		user_objects_drop(&captured_objects);
		drop(captured);
		captured = NULL;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void *shim_hosts_launch(const struct shim_object *exec, CUresult *r)
{
	struct shim_hosts *held = NULL;

	if (!exec->graph.hosts)
		return NULL;
	pthread_mutex_lock(&lock);
	*r = add_all(&held, exec->graph.hosts);
	if (*r != CUDA_SUCCESS) {
		drop(held);
		held = NULL;
	}
	pthread_mutex_unlock(&lock);
	return held;
}

void shim_hosts_launched(void *held)
{
	pthread_mutex_lock(&lock);
	drop(held);
	pthread_mutex_unlock(&lock);
}

/* ---- captured streams */

CUresult shim_capture_host(uint64_t stream, const struct shim_host *what)
{
	const struct cuda_copy *c = &what->copy;
	const struct cuda_side *device = what->kind == SHIM_HOST_READ ? &c->to : &c->from;
	struct vg_capture_host_request node = { .context = what->context, .stream = stream };
	struct vg_capture_copy_request copy = { .context = what->context, .stream = stream,
						.to_host = what->kind == SHIM_HOST_WRITTEN, .address = device->base,
						.pitch = device->pitch, .slice = device->slice, .width = c->width,
						.rows = c->rows, .slices = c->slices };

	pthread_mutex_lock(&lock);
	node.number = copy.number = keep(&captured, what);
	pthread_mutex_unlock(&lock);
	if (!node.number)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return what->kind == SHIM_HOST_FUNCTION || what->kind == SHIM_HOST_BOTH ? vg_send_capture_host(&node) :
										  vg_send_capture_copy(&copy);
}

/* ---- what gates stand for */

/* Bytes between `packed` and rows of the program's memory, which may be gone: a fault would be nobody's to catch. */
static bool move_rows(const struct iovec *rows, size_t count, uint8_t *packed, bool written)
{
	struct iovec whole = { packed, 0 };
	ssize_t n;

	for (size_t i = 0; i < count; i++)
		whole.iov_len += rows[i].iov_len;
	n = written ? process_vm_writev(getpid(), &whole, 1, rows, count, 0) :
		      process_vm_readv(getpid(), &whole, 1, rows, count, 0);
	if (n >= 0 || (errno != ENOSYS && errno != EPERM))
		return n >= 0 && (size_t)n == whole.iov_len;
	for (size_t i = 0; i < count; i++) { /* a sandbox forbids the call: as for copies outside graphs */
		memcpy(written ? rows[i].iov_base : packed, written ? packed : rows[i].iov_base, rows[i].iov_len);
		packed += rows[i].iov_len;
	}
	return true;
}

/* The bytes from `at` on of all that a side has, as if it were packed. */
static bool move(const struct cuda_copy *c, const struct cuda_side *side, uint64_t at, uint8_t *packed, size_t length,
		 bool written)
{
	struct iovec rows[ROWS_AT_ONCE];

	while (length) {
		size_t count = 0, bytes = 0;

		while (count < ROWS_AT_ONCE && bytes < length) {
			uint64_t row = (at + bytes) / c->width, column = (at + bytes) % c->width;
			size_t n = c->width - column < length - bytes ? c->width - column : length - bytes;

			rows[count++] = (struct iovec){ (void *)(side->base + row / c->rows * side->slice +
								 row % c->rows * side->pitch + column),
							n };
			bytes += n;
		}
		if (!move_rows(rows, count, packed, written))
			return false;
		packed += bytes;
		at += bytes;
		length -= bytes;
	}
	return true;
}

static CUresult move_piece(const struct record *r, uint64_t at, uint8_t *room, size_t length)
{
	const struct cuda_copy *c = &r->what.copy;
	struct vg_gate_fill_request fill = { .gate = r->number, .offset = at };
	struct vg_gate_fetch_request fetch = { .gate = r->number, .offset = at };
	struct shim_bulk in = { VG_BULK_TO_WORKER, room, length, 1, length, true };
	struct shim_bulk out = { VG_BULK_TO_GUEST, room, length, 1, length, true };
	CUresult result = CUDA_SUCCESS;

	if (r->what.kind == SHIM_HOST_WRITTEN)
		result = vg_send_gate_fetch(&fetch, &out);
	else if (!move(c, &c->from, at, room, length, false))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (result == CUDA_SUCCESS && r->what.kind == SHIM_HOST_READ)
		return vg_send_gate_fill(&fill, &in);
	if (result == CUDA_SUCCESS && !move(c, &c->to, at, room, length, true))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	return result;
}

static CUresult copy(const struct record *r)
{
	static __thread uint8_t *room; /* of the thread that serves this device */
	static __thread size_t most;
	const struct cuda_copy *c = &r->what.copy;
	uint64_t bytes = c->width * c->rows * c->slices;
	CUresult result;
	struct vg_conn *conn = shim_conn(shim_channel_of(r->what.context), &result);

	if (!conn)
		return result;
	result = CUDA_SUCCESS;
	if (!room) {
		most = vg_conn_bulk_max(conn) ? vg_conn_bulk_max(conn) : VG_PAYLOAD_RING_MAX;
		room = malloc(most);
	}
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint64_t at = 0; result == CUDA_SUCCESS && at < bytes; at += most)
		result = move_piece(r, at, room, bytes - at < most ? bytes - at : most);
	return result;
}

/* Memory that is not there is to a device what a bad address in a kernel is: the context is lost. */
static void lose(uint64_t context, CUresult why)
{
	struct shim_object *o = shim_object_get(SHIM_CONTEXT, context);
	int none = CUDA_SUCCESS;

	if (o)
		atomic_compare_exchange_strong(&o->ctx.broken, &none, why);
}

void shim_host_run(uint64_t gate, CUresult status)
{
	struct record *r;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	r = find(gate);
	if (r)
		r->holders++;
	pthread_mutex_unlock(&lock);
	if (!r)
		return;
	if (status == CUDA_SUCCESS && r->what.kind == SHIM_HOST_FUNCTION)
		r->what.function(r->what.data);
	else if (status == CUDA_SUCCESS)
		result = copy(r);
	if (result != CUDA_SUCCESS)
		lose(r->what.context, result);
	pthread_mutex_lock(&lock);
	let_go(r);
	pthread_mutex_unlock(&lock);
}
