/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures of streams. The worker's driver captures; which captures go on, and which thread may do what meanwhile, is known
 * here. While any does, what is posted is waited for, so that each call tells its own error.
 */
#include "captures.h"
#include "graph_children.h"
#include "hosts.h"

#include <pthread.h>
#include <stdlib.h>

struct capture {
	struct capture *next;
	uint64_t context, stream;
	CUstreamCaptureMode mode;
	pthread_t thread;
	struct shim_object *object; /* the graph that it will be */
	uint64_t graph, number;     /* its handle, 0 once it is one; the driver's number of the capture, or 0 */
	bool made, given;           /* the worker knows it by that handle; and it is the program's own */
};

_Atomic uint32_t shim_captures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* A graph that goes with the stream that captured it; those of a context are forgotten with it. */
static void end_graph(struct capture *c)
{
	struct vg_graph_destroy_request in = { .graph = c->graph };

	if (c->made && !shim_object_retire(c->object, c->graph))
		return;
	if (c->made) {
		vg_send_graph_destroy(&in);
		shim_children_end(c->object, SHIM_EVERY_NODE);
		shim_hosts_drop(c->object);
	}
	shim_object_recycle(SHIM_GRAPH, c->graph);
}

/* Under the lock: those of a stream, or of a context. What comes off is the caller's. */
static struct capture *drop(uint64_t context, uint64_t stream)
{
	struct capture **at = &captures, *c, *dropped = NULL;

	while ((c = *at)) {
		if (c->stream != stream && c->context != context) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->next = dropped;
		dropped = c;
		atomic_fetch_sub(&shim_captures, 1);
	}
	return dropped;
}

void shim_capture_forget(uint64_t context, uint64_t stream)
{
	struct capture *c, *next;

	if (!atomic_load(&shim_captures))
		return;
	pthread_mutex_lock(&lock);
	c = drop(context, stream);
	pthread_mutex_unlock(&lock);
	for (; c; c = next) {
		next = c->next;
		if (c->graph && !c->given)
			end_graph(c);
		free(c);
	}
}

CUresult shim_capture_settle(unsigned channel)
{
	struct vg_capture_check_request in = { 0 };

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c && !in.context; c = c->next)
		if (shim_channel_of(c->context) == channel)
			in.context = c->context;
	pthread_mutex_unlock(&lock);
	return in.context ? vg_send_capture_check(&in) : CUDA_SUCCESS;
}

/* Documented: it is not permitted, and the captures that it is forbidden for are of no use any more. */
CUresult shim_capture_spoil(uint64_t context, uint64_t stream)
{
	struct vg_cuStreamQuery_request in = { .context = context, .hStream = stream };

	return vg_send_cuStreamQuery(&in);
}

CUresult shim_capture_safe(void)
{
	struct { uint64_t context, stream; } found[16];
	size_t count = 0;

	if (!atomic_load_explicit(&shim_captures, memory_order_relaxed))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c && count < sizeof(found) / sizeof(found[0]); c = c->next) {
		if (!cuda_capture_forbids(thread_mode, c->mode, pthread_equal(c->thread, pthread_self())))
			continue;
		found[count].context = c->context;
		found[count++].stream = c->stream;
	}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < count; i++)
		shim_capture_spoil(found[i].context, found[i].stream);
	return count ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

bool shim_capturing(uint64_t context, uint64_t stream, CUresult *r)
{
	struct vg_capture_status_request in = { .context = context, .stream = stream };
	struct vg_capture_status_reply out;

	*r = CUDA_SUCCESS;
	if (!atomic_load_explicit(&shim_captures, memory_order_relaxed) || !stream)
		return false;
	*r = vg_send_capture_status(&in, &out);
	return *r == CUDA_SUCCESS && out.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult shim_capture_refuse(uint64_t context, uint64_t stream, const char *what, atomic_flag *told)
{
	CUresult r;

	if (!shim_capturing(context, stream, &r))
		return r;
	shim_unsupported(what, told);
	return shim_capture_spoil(context, stream);
}

bool shim_capture_begun(uint64_t context, uint64_t stream, CUstreamCaptureMode mode, uint64_t given)
{
	struct capture *c = malloc(sizeof(*c));

	if (!c)
		return false;
	*c = (struct capture){ NULL, context, stream, mode, pthread_self(), NULL, given, 0, given, given };
	c->object = given ? shim_object_get(SHIM_GRAPH, given) : shim_object_new(SHIM_GRAPH, context, &c->graph);
	if (!c->object) {
		free(c);
		return false;
	}
	pthread_mutex_lock(&lock);
	c->next = captures;
	captures = c;
	atomic_fetch_add(&shim_captures, 1);
	pthread_mutex_unlock(&lock);
	return true;
}

/* Under the lock. */
static struct capture *of_stream(uint64_t stream)
{
	struct capture *c = captures;

	while (c && c->stream != stream)
		c = c->next;
	return c;
}

struct shim_object *shim_capture_graph(uint64_t stream, uint64_t *id)
{
	struct shim_object *o = NULL;
	struct capture *c;

	pthread_mutex_lock(&lock);
	c = of_stream(stream);
	if (c && c->graph) {
		o = c->object;
		*id = c->graph;
	}
	pthread_mutex_unlock(&lock);
	return o;
}

bool shim_capture_is_made(uint64_t stream, bool *given)
{
	const struct capture *c;
	bool made;

	pthread_mutex_lock(&lock);
	c = of_stream(stream);
	made = c && c->graph && c->made;
	*given = made && c->given;
	pthread_mutex_unlock(&lock);
	return made;
}

/* Under the lock. */
static struct capture *of_graph(uint64_t graph)
{
	struct capture *c = captures;

	while (c && c->graph != graph)
		c = c->next;
	return c;
}

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void shim_capture_hold(void)
{
	pthread_mutex_lock(&making);
}

void shim_capture_let_go(void)
{
	pthread_mutex_unlock(&making);
}

CUresult shim_capture_make(uint64_t graph)
{
	struct vg_capture_graph_request in = { .created = graph };
	struct capture *c;
	CUresult r = CUDA_SUCCESS;
	bool made;

	shim_capture_hold();
	pthread_mutex_lock(&lock);
	c = of_graph(graph);
	made = c && c->made;
	if (c)
		in.context = c->context, in.stream = c->stream;
	pthread_mutex_unlock(&lock);
	if (!made)
		r = in.context ? vg_send_capture_graph(&in) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	c = !made && r == CUDA_SUCCESS ? of_graph(graph) : NULL;
	if (c) {
		shim_hosts_begin(c->object);
		shim_object_publish(c->object, graph);
		c->made = true;
	}
	pthread_mutex_unlock(&lock);
	shim_capture_let_go();
	return r;
}

void shim_capture_ended(uint64_t stream)
{
	struct capture *c;

	pthread_mutex_lock(&lock);
	c = of_stream(stream);
	if (c)
		c->graph = 0;
	pthread_mutex_unlock(&lock);
}

/* A capture without a number that is not this stream's; false: there is none. */
static bool find_unnumbered(struct vg_capture_status_request *in)
{
	struct capture *c;

	pthread_mutex_lock(&lock);
	for (c = captures; c && c->number; c = c->next)
		;
	if (c)
		*in = (struct vg_capture_status_request){ .context = c->context, .stream = c->stream };
	pthread_mutex_unlock(&lock);
	return c;
}

static uint64_t find_number(uint64_t number)
{
	uint64_t graph = 0;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next)
		if (c->number == number)
			graph = c->graph;
	pthread_mutex_unlock(&lock);
	return graph;
}

/* The driver numbers captures; a stream that has joined one is found by its number. */
uint64_t shim_capture_graph_of(uint64_t stream, uint64_t number)
{
	struct vg_capture_status_request in;
	struct vg_capture_status_reply out;
	uint64_t graph = 0;
	struct capture *c;

	if (shim_capture_graph(stream, &graph))
		return graph;
	while (find_unnumbered(&in)) {
		if (vg_send_capture_status(&in, &out) != CUDA_SUCCESS)
			return 0;
		pthread_mutex_lock(&lock);
		c = of_stream(in.stream);
		if (c)
			c->number = out.number ? out.number : UINT64_MAX;
		pthread_mutex_unlock(&lock);
	}
	return find_number(number);
}

bool shim_capture_of_graph(uint64_t graph, uint64_t *context, uint64_t *stream)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; graph && c && !found; c = c->next) {
		found = c->graph == graph;
		if (found) {
			*context = c->context;
			*stream = c->stream;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* Whether it is inside of that one. */
static bool is_inside(uint64_t graph, uint64_t outer)
{
	const struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);

	while (o && o->graph.parent && o->graph.parent != outer)
		o = shim_object_get(SHIM_GRAPH, o->graph.parent);
	return o && o->graph.parent == outer;
}

bool shim_capture_inside(uint64_t graph)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c && !found; c = c->next)
		found = c->given && c->graph && is_inside(c->graph, graph);
	pthread_mutex_unlock(&lock);
	return found;
}

CUresult shim_capture_no_graph(uint64_t id)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next)
		found |= c->graph && c->graph == id && !c->given; /* one of the program's has ended */
	pthread_mutex_unlock(&lock);
	return found ? (CUresult)shim_unsupported("the use of a graph that is being captured", &told) : CUDA_ERROR_INVALID_VALUE;
}

bool shim_capture_is_of_another(uint64_t stream)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next)
		found |= c->stream == stream && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
			 !pthread_equal(c->thread, pthread_self());
	pthread_mutex_unlock(&lock);
	return found;
}

CUstreamCaptureMode shim_capture_exchange(CUstreamCaptureMode mode)
{
	CUstreamCaptureMode before = thread_mode;

	thread_mode = mode;
	return before;
}
