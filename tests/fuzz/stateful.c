/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest processes that know what they have, and send the worker's calls in any order: usage is stateful ROUNDS SEED. In each
 * round several of them run at once, each with the threads that its calls need, while calls of the driver fail and its
 * kernels print. At its end every call has one answer, and no object of the driver is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "guest.h"
#include "operations.h"
#include "output.h"
#include "transport/worker_limits.h"
#include "vg_worker.h"

enum { GUESTS = 3, STEPS = 400, FLOOD = 5 << 20 };

void null_fail_after(unsigned int n);
unsigned long null_live(void);

static struct guest guests[GUESTS];
static unsigned long accepted, refused;
static int results = 1, errors[2];

/* A program's own data race is its own affair. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:cuMemcpy\nrace:cuMemset\n";
}

/* Two inputs of the linker, each with a name before it. */
static size_t make_inputs(struct guest *g, uint8_t *image)
{
	size_t half = g->inputs / 2;

	memset(image, 'x', LANE_BULK);
	for (int i = 0; i < 2; i++) {
		image[i * half + 1] = guest_once_in(g, 30);
		if (guest_once_in(g, 4))
			memcpy(image + i * half + 2, guest_once_in(g, 2) ? "\177ELF" : "\x50\xed\x55\xba", 4);
	}
	return 2 * half;
}

/* Texts, an ELF file and a fat binary, whole and cut short. */
static size_t make_image(struct guest *g, uint8_t *image)
{
	static const uint8_t fat[] = { 0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 64, 0, 0, 0, 0, 0, 0, 0, [20] = 64 };
	size_t length = 1 + guest_roll(g) % 100;

	if (g->inputs)
		return make_inputs(g, image);
	memset(image, 'x', LANE_BULK);
	image[length - 1] = 0;
	if (guest_once_in(g, 6)) {
		memcpy(image, "\177ELF", 4);
		memset(image + 4, 0, 76);
		length = guest_once_in(g, 3) ? guest_roll(g) % 64 + 4 : 80;
		image[guest_roll(g) % 80] = guest_once_in(g, 2) ? guest_roll(g) : image[0];
	} else if (guest_once_in(g, 6)) {
		memset(image, 0, 80);
		memcpy(image, fat, sizeof(fat));
		length = guest_once_in(g, 3) ? 4 + guest_roll(g) % 76 : 80;
	}
	return length;
}

static struct vg_call *frame(struct guest *g, const struct wk_operation *w, uint32_t op, struct vg_call *call)
{
	static __thread uint8_t bulk[LANE_BULK];
	struct lane_call *answer = NULL;

	*call = (struct vg_call){ .op = op, .sequence = ++g->sequence, .wants_reply = !(w->flags & WK_QUIET) };
	if (call->wants_reply) {
		answer = lane_ask(&g->lane, g->sequence, op);
		if (!answer)
			return NULL;
		answer->context = g->context;
	}
	if (w->flags & WK_BULK_IN) {
		call->bulk_in = bulk;
		call->bulk_in_length = g->bulk;
	} else if (w->flags & WK_BULK_OUT) {
		call->bulk_out = answer->bulk;
		call->bulk_out_length = g->bulk;
	}
	if (op == VG_OP_image_data)
		memcpy(bulk, g->payload + PAYLOAD - LANE_BULK, LANE_BULK);
	return call;
}

/* The payload is a copy of exactly its length, so that a read beyond it is noticed. */
static int send_payload(struct guest *g, struct vg_call *call)
{
	uint8_t *payload = malloc(g->length ? g->length : 1);
	int error;

	memcpy(payload, g->payload, g->length);
	call->payload = payload;
	call->payload_length = g->length;
	error = wk_call(g->session, &g->lane, call);
	free(payload);
	if (error && call->wants_reply)
		lane_refused(&g->lane, call->sequence);
	__atomic_fetch_add(error ? &refused : &accepted, 1, __ATOMIC_RELAXED);
	return error;
}

static int step(struct guest *g, const struct operation *o)
{
	struct vg_call call;

	guest_make(g, o);
	if (o->id == VG_OP_image_data) {
		g->bulk = make_image(g, g->payload + PAYLOAD - LANE_BULK);
		memcpy(g->payload + 8, &(uint64_t){ guest_once_in(g, 20) ? guest_roll(g) : g->bulk }, 8);
	}
	if (o->id == VG_OP_image_read)
		g->bulk = guest_roll(g) % 40;
	return frame(g, wk_operation(o->id), o->id, &call) ? send_payload(g, &call) : 0;
}

static const struct operation *find(uint32_t id)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (operations[i].id == id)
			return &operations[i];
	abort();
}

/* Too much waits: opens what there is to open. */
static int relieve(struct guest *g)
{
	int error = 0;

	for (unsigned int i = 0; i < 8 && !error; i++)
		error = step(g, find(VG_OP_host_gate_open));
	usleep(50);
	return error;
}

/* As a guest does at a gate of a graph, of a copy or not. */
static int serve(struct guest *g)
{
	static const uint32_t ids[] = { VG_OP_host_gate_next, VG_OP_gate_fill, VG_OP_gate_fetch, VG_OP_host_gate_open };
	int error = 0;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && !error; i++)
		error = step(g, find(ids[i]));
	return error;
}

static int prepare(struct guest *g)
{
	static const uint32_t first[] = { VG_OP_context_create, VG_OP_memory_allocate, VG_OP_image_data, VG_OP_module_load,
					  VG_OP_cuStreamCreateWithPriority, VG_OP_cuEventCreate, VG_OP_module_function };
	int error = 0;

	for (size_t i = 0; i < 3 * sizeof(first) / sizeof(first[0]) && !error; i++)
		error = step(g, find(first[i % (sizeof(first) / sizeof(first[0]))]));
	return error;
}

/* As the driver does for kernels; once in a while more than is kept. */
static void print(struct guest *g)
{
	static const char text[1 << 16] = { [100] = '\n', [(1 << 16) - 1] = '\n' };
	size_t left = guest_once_in(g, 40) ? FLOOD : guest_roll(g) % sizeof(text);

	wk_output_expect();
	if (write(errors[1], text, guest_roll(g) % 200) < 0)
		return;
	while (left) {
		ssize_t n = write(STDOUT_FILENO, text, left < sizeof(text) ? left : sizeof(text));

		if (n <= 0)
			return;
		left -= (size_t)n;
	}
}

/* Drivers that are not there, and one that has nothing of CUDA's; then what the driver writes is taken. */
static bool begin(void)
{
	char message[512];

	if (!wk_driver_load("/nowhere/libcuda.so.1", message, sizeof(message)) || !message[0] ||
	    !wk_driver_load("libm.so.6", message, sizeof(message)) || wk_driver_load(NULL, message, sizeof(message)))
		return false;
	results = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	if (results < 0 || pipe2(errors, O_CLOEXEC | O_NONBLOCK))
		return false;
	wk_output_open(errors[0]);
	wk_output_begin(message, sizeof(message));
	return true;
}

/* Those of mathematics are what mathematics.c is for: here there is no library. */
static bool rarely(uint32_t id)
{
	return id == VG_OP_context_create || id == VG_OP_context_destroy || id == VG_OP_host_gate ||
	       (id >= VG_OP_math_open && id <= VG_OP_math_try);
}

/* A few turns for one graph: what is done to it needs one that has nodes. */
static int use_graph(struct guest *g)
{
	static const uint32_t ids[] = {
		VG_OP_graph_create, VG_OP_graph_kernel, VG_OP_graph_memset, VG_OP_graph_copy,  VG_OP_graph_event,
		VG_OP_graph_child,  VG_OP_graph_edges,	VG_OP_graph_list,   VG_OP_graph_clone, VG_OP_graph_host_copy,
		VG_OP_graph_host,   VG_OP_graph_instantiate, VG_OP_graph_child_graph, VG_OP_graph_memory, VG_OP_graph_node_read,
	};
	int error = 0;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && !error; i++)
		error = step(g, find(ids[i]));
	for (int i = 0; i < 30 && !error; i++)
		error = step(g, find(VG_OP_graph_create + 1 + guest_roll(g) % (VG_OP_graph_child_graph - VG_OP_graph_create)));
	for (int i = 0; i < 3 && !error; i++)
		error = step(g, find(VG_OP_graph_launch));
	for (int i = 0; i < 6 && !error; i++)
		error = serve(g);
	return error;
}

static int take_turns(struct guest *g, const uint32_t *ids, size_t count)
{
	int error = 0;

	for (size_t i = 0; i < count && !error; i++)
		error = step(g, find(ids[i]));
	return error;
}

/* Nodes that decide: their bodies are filled, captured into and taken away, beside what is done to their graph. */
static int use_conditionals(struct guest *g)
{
	static const uint32_t first[] = {
		VG_OP_graph_create,	 VG_OP_graph_condition,	  VG_OP_graph_condition, VG_OP_graph_conditional, VG_OP_graph_conditional,
		VG_OP_graph_conditional, VG_OP_graph_conditional, VG_OP_graph_body,	 VG_OP_graph_body,	  VG_OP_graph_node_read,
	}, inside[] = {
		VG_OP_graph_kernel, VG_OP_graph_memset,	   VG_OP_graph_copy,	 VG_OP_graph_condition,	  VG_OP_graph_conditional,
		VG_OP_graph_body,   VG_OP_capture_into,	   VG_OP_capture_host,	 VG_OP_cuMemsetD8Async,	  VG_OP_cuMemsetD8Async,
		VG_OP_graph_list,   VG_OP_graph_node_read, VG_OP_capture_finish, VG_OP_graph_instantiate, VG_OP_capture_list,
	}, outside[] = {
		VG_OP_graph_instantiate, VG_OP_graph_launch, VG_OP_graph_clone,	   VG_OP_graph_exec_update, VG_OP_graph_child,
		VG_OP_graph_body,	 VG_OP_graph_list,   VG_OP_graph_node_type, VG_OP_graph_node_destroy, VG_OP_graph_destroy,
	};
	uint64_t graph;
	int error;

	g->usual[WK_STREAM] = g->newest.stream;
	g->usual[WK_CONTEXT] = g->newest.context;
	g->how = 1; /* of nodes the first one */
	error = take_turns(g, first, sizeof(first) / sizeof(first[0]));
	graph = g->usual[WK_GRAPH];
	g->usual[WK_GRAPH] = g->made[WK_GRAPH];
	for (uint64_t i = 4 + guest_roll(g) % 14; i && !error; i--)
		error = step(g, find(inside[guest_roll(g) % (sizeof(inside) / sizeof(inside[0]))]));
	if (!error && !guest_once_in(g, 4))
		error = step(g, find(VG_OP_capture_finish));
	g->usual[WK_GRAPH] = graph;
	for (uint64_t i = guest_roll(g) % 12; i && !error; i--)
		error = step(g, find(outside[guest_roll(g) % (sizeof(outside) / sizeof(outside[0]) - guest_once_in(g, 2))]));
	g->how = 0;
	g->usual[WK_STREAM] = g->usual[WK_CONTEXT] = 0;
	return error;
}

/* Each kind of node is read, and a kernel's attributes. */
static int read_graph(struct guest *g)
{
	static const struct { uint32_t op; int times; unsigned int how; } turns[] = {
		{ VG_OP_graph_create, 1, 0 }, { VG_OP_graph_memory, 4, 1 }, { VG_OP_graph_kernel, 12, 1 }, { VG_OP_graph_copy, 3, 1 }, { VG_OP_graph_child, 3, 1 },
		{ VG_OP_graph_memset, 1, 1 }, { VG_OP_graph_event, 3, 1 }, { VG_OP_graph_node_read, 30, 0 },
		{ VG_OP_graph_kernel_attribute, 8, 0 }, { VG_OP_graph_kernel_attributes, 6, 0 }, { VG_OP_graph_child_graph, 14, 0 },
		{ VG_OP_graph_node_read, 4, 0 }, { VG_OP_graph_node_destroy, 6, 0 },
	};
	int error = prepare(g); /* so that there is a function */

	for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]) && !error; i++) {
		g->how = turns[i].how;
		for (int n = 0; n < turns[i].times && !error; n++)
			error = step(g, find(turns[i].op));
	}
	g->how = 0;
	return error;
}

/* A copy with the guest's memory is the first node of a graph, and is changed. */
static int change_copy(struct guest *g)
{
	static const uint32_t copy = VG_OP_graph_host_copy;
	static const struct { uint32_t op; unsigned int how; } turns[] = {
		{ VG_OP_graph_create, 0 }, { copy, 1 }, { copy, 1 }, { copy, 1 }, { copy, 2 }, { copy, 2 }, { copy, 2 },
		{ VG_OP_graph_instantiate, 0 }, { copy, 3 }, { copy, 3 }, { copy, 2 }, { copy, 2 },
	};
	int error = 0;

	for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]) && !error; i++) {
		g->how = turns[i].how;
		error = step(g, find(turns[i].op));
	}
	g->how = 0;
	return error;
}

/* Two inputs are linked, and what comes of it is read, while others do what they do. */
static int use_linker(struct guest *g)
{
	static const uint32_t ids[] = { VG_OP_image_data, VG_OP_image_link, VG_OP_image_read, VG_OP_image_read,
					VG_OP_image_read, VG_OP_module_load, VG_OP_image_drop };
	int error = 0;

	g->inputs = 16 + guest_roll(g) % 100;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && !error; i++) {
		if (guest_once_in(g, 6))
			continue;
		error = step(g, find(ids[i]));
		if (ids[i] == VG_OP_image_link)
			usleep(100);
	}
	g->inputs = 0;
	return error;
}

/* A few turns for one stream that captures. */
static int capture(struct guest *g)
{
	static const uint32_t ids[] = {
		VG_OP_capture_host,    VG_OP_capture_copy,     VG_OP_capture_copy,
		VG_OP_copy_device,     VG_OP_copy_device,      VG_OP_cuMemsetD8Async, VG_OP_launch,       VG_OP_copy_device_2d,
		VG_OP_copy_to_device,  VG_OP_capture_status,   VG_OP_graph_launch,    VG_OP_host_gate,    VG_OP_cuStreamQuery,
		VG_OP_cuMemsetD32Async, VG_OP_cuEventRecordWithFlags, VG_OP_capture_list,
	};
	int error;

	g->usual[WK_STREAM] = g->newest.stream;
	g->usual[WK_CONTEXT] = g->newest.context;
	error = step(g, find(VG_OP_capture_begin));
	for (uint64_t i = guest_roll(g) % 12; i && !error; i--)
		error = step(g, find(ids[guest_roll(g) % (sizeof(ids) / sizeof(ids[0]) - 7 * guest_once_in(g, 2))]));
	/* what it depends on is asked for more than once: answers go on from each other */
	for (uint64_t i = guest_once_in(g, 2) ? guest_roll(g) % 6 : 0; i && !error; i--)
		error = step(g, find(VG_OP_capture_list));
	if (!error)
		error = step(g, find(VG_OP_capture_end));
	g->usual[WK_STREAM] = g->usual[WK_CONTEXT] = 0;
	return error;
}

/* A capture whose graph is used meanwhile: its own, or one that is there. */
static int steer(struct guest *g)
{
	static const uint32_t ids[] = {
		VG_OP_graph_kernel, VG_OP_graph_memset,	  VG_OP_graph_memory, VG_OP_stream_memory, VG_OP_graph_node_read, VG_OP_graph_list,  VG_OP_capture_depend,
		VG_OP_capture_depend, VG_OP_capture_list, VG_OP_cuMemsetD8Async, VG_OP_graph_edges, VG_OP_graph_kernel_attribute,
		VG_OP_capture_host, VG_OP_capture_copy,	  VG_OP_graph_child,	 VG_OP_graph_clone, VG_OP_graph_instantiate,
		VG_OP_graph_exec_child, VG_OP_graph_launch, VG_OP_capture_depend, VG_OP_cuStreamQuery, VG_OP_graph_destroy,
		VG_OP_cuStreamDestroy_v2,
	};
	bool into = guest_once_in(g, 2);
	int error;

	g->usual[WK_STREAM] = g->newest.stream;
	g->usual[WK_CONTEXT] = g->newest.context;
	error = step(g, find(into ? VG_OP_graph_create : VG_OP_capture_begin));
	for (int i = 0; into && i < 3 && !error; i++)
		error = step(g, find(i < 2 ? VG_OP_graph_memset : VG_OP_capture_into));
	for (int i = 0; !into && i < 2 && !error; i++)
		error = step(g, find(guest_once_in(g, 2) ? VG_OP_capture_list : VG_OP_capture_graph));
	for (uint64_t i = guest_roll(g) % 14; i && !error; i--)
		error = step(g, find(ids[guest_roll(g) % (sizeof(ids) / sizeof(ids[0]) - 4 * !guest_once_in(g, 4))]));
	if (!error)
		error = step(g, find(guest_once_in(g, 9) ? VG_OP_capture_end : VG_OP_capture_finish));
	if (!error)
		error = step(g, find(VG_OP_graph_list));
	g->usual[WK_STREAM] = g->usual[WK_CONTEXT] = 0;
	return error;
}

/* Memory mapped at several places, used over their borders while it is mapped, closed and unmapped. */
static int use_virtual(struct guest *g)
{
	static const uint32_t first[] = { VG_OP_virtual_reserve, VG_OP_virtual_create };
	static const uint32_t ids[] = {
		VG_OP_virtual_create, VG_OP_virtual_map,   VG_OP_virtual_map,	VG_OP_virtual_map,     VG_OP_virtual_access,
		VG_OP_virtual_access, VG_OP_virtual_unmap, VG_OP_copy_to_host,	VG_OP_cuMemsetD8Async, VG_OP_virtual_release,
		VG_OP_virtual_free,   VG_OP_copy_device,   VG_OP_copy_to_device,
	};
	int error = 0;

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]) && !error; i++)
		error = step(g, find(first[i]));
	for (int i = 0; i < 40 && !error; i++)
		error = step(g, find(ids[guest_roll(g) % (sizeof(ids) / sizeof(ids[0]))]));
	return error;
}

/* Arrays and levels of them are copied to and from, made textures and surfaces of, and destroyed in between. */
static int use_arrays(struct guest *g)
{
	static const uint32_t first[] = { VG_OP_array_create, VG_OP_mipmap_create, VG_OP_mipmap_level };
	static const uint32_t ids[] = {
		VG_OP_copy_to_array,	 VG_OP_copy_from_array, VG_OP_copy_array_device, VG_OP_copy_arrays,   VG_OP_texture_create,
		VG_OP_texture_create,	 VG_OP_surface_create,	VG_OP_texture_destroy,	 VG_OP_mipmap_level,  VG_OP_copy_array_device,
		VG_OP_surface_destroy,	 VG_OP_array_create,	VG_OP_array_destroy,	 VG_OP_mipmap_create, VG_OP_mipmap_destroy,
	};
	int error = 0;

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]) && !error; i++)
		error = step(g, find(first[i]));
	for (int i = 0; i < 40 && !error; i++)
		error = step(g, find(ids[guest_roll(g) % (sizeof(ids) / sizeof(ids[0]))]));
	g->usual[WK_ARRAY] = g->usual[WK_MIPMAP] = 0;
	return error;
}

/* Launches that are right: a held function of a loaded module, as many bytes of parameters as it takes. */
static int use_functions(struct guest *g)
{
	static const uint32_t first[] = { VG_OP_image_data, VG_OP_module_load, VG_OP_module_function };
	static const uint32_t ids[] = { VG_OP_launch, VG_OP_launch, VG_OP_launch_clusters, VG_OP_launch_large, VG_OP_occupancy_clusters };
	int error = 0;

	g->usual[WK_CONTEXT] = g->newest.context;
	g->known = true;
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]) && !error; i++) {
		error = step(g, find(first[i]));
		g->usual[WK_MODULE] = g->made[WK_MODULE];
	}
	g->known = false;
	g->usual[WK_FUNCTION] = g->made[WK_FUNCTION];
	for (int i = 0; i < 20 && !error; i++)
		error = step(g, find(ids[guest_roll(g) % (sizeof(ids) / sizeof(ids[0]))]));
	g->usual[WK_FUNCTION] = g->usual[WK_MODULE] = g->usual[WK_CONTEXT] = 0;
	return error;
}

static void *live(void *argument)
{
	struct guest *g = argument;
	int error = prepare(g);

	for (int i = 0; i < STEPS && !error; i++) {
		const struct operation *o = &operations[guest_roll(g) % (sizeof(operations) / sizeof(operations[0]))];

		if (rarely(o->id) && !guest_once_in(g, 3))
			continue;
		if (guest_once_in(g, 100))
			print(g);
		if (guest_once_in(g, 300))
			null_fail_after(1 + guest_roll(g) % 20);
		if (o->id == VG_OP_module_load)
			error = step(g, find(VG_OP_image_data));
		if (!error && guest_once_in(g, 45))
			error = use_graph(g);
		if (!error && guest_once_in(g, 60))
			error = capture(g);
		if (!error && guest_once_in(g, 40))
			error = steer(g);
		if (!error && guest_once_in(g, 50))
			error = read_graph(g);
		if (!error && guest_once_in(g, 40))
			error = use_conditionals(g);
		if (!error && guest_once_in(g, 60))
			error = use_linker(g);
		if (!error && guest_once_in(g, 12))
			error = change_copy(g);
		if (!error && guest_once_in(g, 60))
			error = use_virtual(g);
		if (!error && guest_once_in(g, 60))
			error = use_arrays(g);
		if (!error && guest_once_in(g, 40))
			error = use_functions(g);
		if (!error)
			error = g->lane.waiting > LANE_SLOTS / 2 ? relieve(g) : step(g, o);
	}
	if (guest_once_in(g, 2)) /* a session ends to its last object, whatever the driver refuses */
		null_fail_after(1 + guest_roll(g) % 100);
	wk_session_destroy(g->session);
	return NULL;
}

static void start(struct guest *g, uint64_t seed)
{
	memset(g, 0, sizeof(*g));
	pthread_mutex_init(&g->lane.lock, NULL);
	g->lane.learn = guest_learn;
	g->lane.guest = g;
	g->random = seed * 0x9e3779b97f4a7c15ull | 1;
	g->session = wk_session_create(&g->lane);
}

static bool run_round(uint64_t seed)
{
	pthread_t threads[GUESTS];
	bool good = true;

	for (int i = 0; i < GUESTS; i++) {
		start(&guests[i], seed * GUESTS + i + 1);
		pthread_create(&threads[i], NULL, live, &guests[i]);
	}
	for (int i = 0; i < GUESTS; i++) {
		pthread_join(threads[i], NULL);
		good = good && guests[i].lane.asked == guests[i].lane.answered;
	}
	null_fail_after(0);
	return good && !null_live();
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 100;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	char limits[] = VG_OPTION_LIMITS "device-memory:1099511627776"; /* so much that it is seldom refused */

	if (vg_limits_read(2, (char *[]){ argv[0], limits }) || !begin())
		return 2;
	for (unsigned long i = 0; i < rounds; i++) {
		if (!run_round(seed + i)) {
			fprintf(stderr, "seed %lu: %lu objects left, or calls without an answer\n",
				(unsigned long)(seed + i), null_live());
			return 1;
		}
	}
	dprintf(results, "%lu calls accepted, %lu refused\n", accepted, refused);
	return 0;
}
