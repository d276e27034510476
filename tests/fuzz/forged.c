/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A million handles and addresses that a guest process was not given: usage is forged COUNT SEED. One session has objects of
 * every kind, so has another, and some are gone again. Whatever is accepted is counted; nothing may be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "lane.h"
#include "mathematics.h"
#include "session.h"
#include "vg_worker.h"

enum { OBJECTS = 40, GENERATION = 1000, UNIT = 2 << 20 };

static const uint32_t tags[WK_TABLES] = { VG_TAG_CONTEXT, VG_TAG_STREAM,   VG_TAG_EVENT,
					  VG_TAG_MODULE,  VG_TAG_FUNCTION, VG_TAG_POOL,
					  VG_TAG_PHYSICAL, VG_TAG_GRAPH, VG_TAG_GRAPH_EXEC,
					  VG_TAG_ARRAY,	  VG_TAG_MIPMAP,   VG_TAG_TEXTURE, VG_TAG_SURFACE, VG_TAG_MATH };
static struct vg_lane lanes[2];
static uint64_t spaces[2]; /* 4 units, of which the second and the third are mapped, and the second is open */
static uint64_t state;

static uint64_t roll(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return state;
}

static uint64_t handle_of(int session, enum wk_kind kind, uint32_t slot)
{
	return vg_handle_make(tags[kind], GENERATION + 2 * slot + session, slot);
}

static CUgraphExec new_exec(void)
{
	CUgraphExec exec;
	CUgraph graph;

	wk_driver.cuGraphCreate(&graph, 0);
	wk_driver.cuGraphInstantiateWithFlags(&exec, graph, 0);
	wk_driver.cuGraphDestroy(graph);
	return exec;
}

static void check(CUresult r)
{
	if (r != CUDA_SUCCESS)
		abort();
}

/* As the operations make them: of 8 by 4 floats, and of what is made first. */
static bool make_array(struct wk_call *c, int session, enum wk_kind kind, uint64_t handle)
{
	struct vg_array_create_request array = { .created = handle, .width = 8, .height = 4, .format = CU_AD_FORMAT_FLOAT,
						 .channels = 1, .flags = CUDA_ARRAY3D_SURFACE_LDST };
	struct vg_mipmap_create_request mipmap = { .created = handle, .width = 8, .height = 4, .format = CU_AD_FORMAT_FLOAT,
						   .channels = 1, .levels = 2 };
	struct vg_texture_create_request texture = { .created = handle, .array = handle_of(session, WK_ARRAY, 0) };
	struct vg_surface_create_request surface = { .created = handle, .array = handle_of(session, WK_ARRAY, 0) };

	if (kind == WK_ARRAY)
		check(wk_do_array_create(c, &array));
	else if (kind == WK_MIPMAP)
		check(wk_do_mipmap_create(c, &mipmap));
	else if (kind == WK_TEXTURE)
		check(wk_do_texture_create(c, &texture, &(struct vg_texture_create_reply){ 0 }));
	else if (kind == WK_SURFACE)
		check(wk_do_surface_create(c, &surface, &(struct vg_surface_create_reply){ 0 }));
	else
		return false;
	return true;
}

static int end_nothing(void *handle)
{
	(void)handle;
	return 0;
}

/* A handle of a library that is not there. */
static struct wk_math *new_math(void)
{
	struct wk_math *math = calloc(1, sizeof(*math));

	if (!math)
		abort();
	math->library = VG_MATH_BLAS;
	math->destroy = end_nothing;
	pthread_mutex_init(&math->lock, NULL);
	return math;
}

/* The odd ones are taken out again: their handles are stale. */
static void fill(struct wk_session *s, int session, struct wk_object *context)
{
	struct wk_call c = { .session = s, .context = context };

	for (uint32_t i = 0; i < OBJECTS; i++) {
		for (enum wk_kind kind = WK_CONTEXT; kind < WK_TABLES; kind++) {
			struct wk_object *owner = kind == WK_CONTEXT || kind == WK_POOL ? NULL : context;
			uint64_t handle = handle_of(session, kind, i);
			void *driver = NULL;

			/* what the driver knows of these does not matter: no call may come so far */
			if (kind == WK_CONTEXT)
				wk_driver.cuCtxCreate_v2((CUcontext *)&driver, 0, 0);
			else if (kind == WK_STREAM)
				wk_driver.cuStreamCreateWithPriority((CUstream *)&driver, 0, 0);
			else if (kind == WK_EVENT)
				wk_driver.cuEventCreate((CUevent *)&driver, 0);
			else if (kind == WK_MODULE)
				wk_driver.cuModuleLoadDataEx((CUmodule *)&driver, "", 0, NULL, NULL);
			else if (kind == WK_GRAPH)
				wk_driver.cuGraphCreate((CUgraph *)&driver, 0);
			else if (kind == WK_GRAPH_EXEC)
				driver = new_exec();
			else if (kind == WK_POOL)
				wk_driver.cuMemPoolCreate((CUmemoryPool *)&driver, &(CUmemPoolProps){ 0 });
			else if (kind == WK_MATH)
				driver = new_math();
			if (wk_reserve(&c, kind, handle))
				abort();
			if (kind == WK_PHYSICAL)
				check(wk_do_virtual_create(&c, &(struct vg_virtual_create_request){ handle, UNIT, 0 }));
			else if (!make_array(&c, session, kind, handle))
				check(wk_put(&c, handle, wk_object_new(kind, owner, driver, 0)));
			if (i % 2)
				wk_remove(&c, kind, handle);
		}
		if (wk_ledger_add(&c, context, (1ull + session + 2 * i) << 20, 4096) != CUDA_SUCCESS)
			abort();
	}
}

/* As the operations do it. */
static void map(struct wk_session *s, int session)
{
	struct wk_call c = { .session = s };
	struct vg_virtual_reserve_request reserve = { .bytes = 4 * UNIT };
	struct vg_virtual_reserve_reply space;

	check(wk_do_virtual_reserve(&c, &reserve, &space));
	spaces[session] = space.address;
	for (uint64_t i = 1; i < 3; i++) {
		struct vg_virtual_map_request in = { spaces[session] + i * UNIT, UNIT, handle_of(session, WK_PHYSICAL, 0) };

		check(wk_do_virtual_map(&c, &in));
	}
	check(wk_do_virtual_access(&c, &(struct vg_virtual_access_request){ spaces[session] + UNIT, UNIT, 0, 1 }));
	wk_unpin(&c);
}

static struct wk_object *new_context(struct wk_session *s, int session)
{
	struct wk_call c = { .session = s };
	uint64_t handle = vg_handle_make(VG_TAG_CONTEXT, 1 + session, OBJECTS);
	CUcontext driver;
	struct wk_object *o;

	wk_driver.cuCtxCreate_v2(&driver, 0, 0);
	for (uint32_t slot = 0; slot <= OBJECTS; slot++)
		if (wk_reserve(&c, WK_CONTEXT, vg_handle_make(VG_TAG_CONTEXT, 1 + session, slot)))
			abort();
	o = wk_object_new(WK_CONTEXT, NULL, driver, 0);
	if (wk_put(&c, handle, o) != CUDA_SUCCESS)
		abort();
	return o;
}

/* The memory is the driver's no more than the handles are. */
static void empty(struct wk_session *s, int session, struct wk_object *context)
{
	struct wk_call c = { .session = s, .context = context };
	struct wk_object *o;

	for (uint32_t i = 0; i < OBJECTS; i++) {
		if (wk_ledger_take(&c, (1ull + session + 2 * i) << 20, false, &o) != CUDA_SUCCESS)
			abort();
		o->address = 0;
		wk_release(o);
	}
	wk_session_destroy(s);
}

static bool was_given(enum wk_kind kind, uint64_t handle)
{
	uint32_t slot = vg_handle_slot(handle);

	return (slot < OBJECTS && slot % 2 == 0 && handle == handle_of(0, kind, slot)) ||
	       (kind == WK_CONTEXT && handle == vg_handle_make(VG_TAG_CONTEXT, 1, OBJECTS)) ||
	       (kind == WK_STREAM && !handle);
}

static uint64_t forge(enum wk_kind kind)
{
	uint64_t handle = handle_of(0, kind, roll() % OBJECTS);

	switch (roll() % 6) {
	case 0: /* stale, or right: the latter is passed over */
		return handle;
	case 1: /* the other session's */
		return handle_of(1, kind, roll() % OBJECTS);
	case 2: /* a generation near */
		return handle + ((roll() % 5 - 2) << VG_HANDLE_GENERATION_SHIFT);
	case 3: /* of another kind */
		return handle_of(0, roll() % WK_TABLES, roll() % OBJECTS);
	case 4: /* one bit wrong */
		return handle ^ 1ull << roll() % 64;
	default:
		return roll();
	}
}

static bool accepts_handle(struct wk_call *c)
{
	enum wk_kind kind = roll() % WK_TABLES;
	struct wk_object *o = NULL;
	uint64_t handle;

	do
		handle = forge(kind);
	while (was_given(kind, handle));
	if (wk_hold(c, kind, handle, &o) == CUDA_SUCCESS) {
		wk_release(o);
		return true;
	}
	return wk_remove(c, kind, handle) == CUDA_SUCCESS;
}

/* The other session's memory, and what lies beside one's own. */
static bool accepts_address(struct wk_call *c)
{
	uint64_t mine = (1ull + 2 * (roll() % OBJECTS)) << 20, theirs = mine + (1 << 20);
	struct wk_object *o;
	CUresult r;

	switch (roll() % 4) {
	case 0:
		r = wk_check_range(c, theirs + roll() % 4096, 1, 1, 1, 0);
		break;
	case 1:
		r = wk_check_range(c, mine + roll() % 4096, 4097 + roll() % 4096, 1, 1, 0);
		break;
	case 2:
		r = wk_check_range(c, mine - 1 - roll() % 64, 1 + roll() % 4096, 1 + roll() % 3, 1, 0);
		break;
	default:
		r = wk_ledger_take(c, roll() % 2 ? theirs : mine + 1 + roll() % 4095, false, &o);
	}
	return r == CUDA_SUCCESS;
}

/* Whether the books would let it be mapped there: what the driver says is not asked. */
static CUresult claim(struct wk_call *c, uint64_t address)
{
	struct wk_object *physical WK_HELD = NULL, *mapping WK_HELD = NULL;

	check(wk_hold(c, WK_PHYSICAL, handle_of(0, WK_PHYSICAL, 0), &physical));
	return wk_mapping_add(c, address, UNIT, physical, &mapping);
}

/* Mappings of the other session, those that are not open, and ranges that are not what is mapped or reserved. */
static bool accepts_mapping(struct wk_call *c)
{
	uint64_t mine = spaces[0], theirs = spaces[1], odd = (1 + roll() % (UNIT / 4096 - 1)) * 4096;
	uint64_t unmapped = mine + 3 * (roll() % 2) * UNIT;
	CUresult r;

	switch (roll() % 8) {
	case 0:
		r = wk_check_range(c, theirs + UNIT + roll() % UNIT, 1, 1, 1, 0);
		break;
	case 1: /* the border to what is not open, or not mapped */
		r = wk_check_range(c, mine + (1 + roll() % 2) * UNIT - 1, 2 + roll() % 4096, 1, 1, 0);
		break;
	case 2:
		r = wk_check_range(c, roll() % 2 ? unmapped + roll() % UNIT : mine + 2 * UNIT + roll() % UNIT, 1, 1, 1, 0);
		break;
	case 3: /* parts of mappings, more than one, others' */
		r = wk_mapping_take(c, mine + UNIT + (roll() % 2 ? odd : 0), roll() % 2 ? odd : 3 * UNIT);
		break;
	case 4:
		r = roll() % 2 ? wk_mapping_take(c, theirs + UNIT, UNIT) : wk_mapping_hold(c, unmapped, UNIT);
		break;
	case 5: /* still mapped, not whole, others' */
		r = wk_space_take(c, roll() % 2 ? mine : theirs, roll() % 2 ? 4 * UNIT : odd);
		break;
	case 6: /* what is mapped already, or not reserved; memory of others */
		r = claim(c, roll() % 2 ? mine + (roll() % 2 ? UNIT : 4 * UNIT) : theirs);
		break;
	default:
		r = wk_do_virtual_map(c, &(struct vg_virtual_map_request){ mine, (1 + roll() % 2) * UNIT,
									 handle_of(1, WK_PHYSICAL, 0) });
	}
	wk_unpin(c);
	return r == CUDA_SUCCESS;
}

/* Parts beyond an array, arrays and levels of the other session or none, textures of what is not the guest's. */
static bool accepts_part(struct wk_call *c)
{
	static const struct vg_call call = { .bulk_in_length = 0 };
	uint64_t mine = handle_of(0, WK_ARRAY, 0), theirs = handle_of(1, WK_ARRAY, roll() % OBJECTS & ~1u);
	struct vg_copy_arrays_request copy = { .destination = mine, .source = mine, .width = 4, .rows = 1, .slices = 1 };
	struct vg_texture_create_request texture = { .created = handle_of(0, WK_TEXTURE, 1), .resource = roll() % 2,
						     .array = theirs, .mipmap = handle_of(1, WK_MIPMAP, 0) };
	struct vg_mipmap_level_request level = { .created = handle_of(0, WK_ARRAY, 1), .mipmap = handle_of(0, WK_MIPMAP, 0),
						 .level = 2 + (uint32_t)roll() };
	uint64_t far = 1 + (roll() >> roll() % 64);

	c->call = &call;
	switch (roll() % 6) {
	case 0:
		copy.source_x = 4 * (far < UINT64_MAX / 4 ? 7 + far : 8);
		break;
	case 1:
		copy.destination_y = 3 + far;
		break;
	case 2:
		copy.slices = 1 + far;
		break;
	case 3:
		copy.source = theirs;
		break;
	case 4:
		return wk_do_mipmap_level(c, &level) == CUDA_SUCCESS;
	default:
		return wk_do_texture_create(c, &texture, &(struct vg_texture_create_reply){ 0 }) == CUDA_SUCCESS;
	}
	return wk_do_copy_arrays(c, &copy) == CUDA_SUCCESS;
}

/* A slot whose generations are used up is never used again. */
static bool wraps(struct wk_call *c)
{
	uint64_t last = vg_handle_make(VG_TAG_EVENT, VG_HANDLE_GENERATION_MAX, 1);
	void *driver = NULL;

	wk_driver.cuEventCreate((CUevent *)&driver, 0);
	if (wk_reserve(c, WK_EVENT, last) || wk_fill(c, WK_EVENT, last, driver, 0) != CUDA_SUCCESS)
		return true;
	wk_remove(c, WK_EVENT, last);
	for (uint32_t generation = 0; generation < 2000; generation++)
		if (!wk_reserve(c, WK_EVENT, vg_handle_make(VG_TAG_EVENT, generation, 1)))
			return true;
	return !wk_reserve(c, WK_EVENT, last);
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000, accepted = 0;
	struct wk_session *sessions[2];
	struct wk_object *contexts[2];
	struct wk_call c;
	char message[512];

	state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 2 + 1;
	if (wk_driver_load(NULL, message, sizeof(message)))
		return 2;
	for (int i = 0; i < 2; i++) {
		pthread_mutex_init(&lanes[i].lock, NULL);
		sessions[i] = wk_session_create(&lanes[i]);
		contexts[i] = new_context(sessions[i], i);
		fill(sessions[i], i, contexts[i]);
		map(sessions[i], i);
	}
	c = (struct wk_call){ .session = sessions[0], .context = contexts[0] };
	for (unsigned long i = 0; i < count; i++)
		accepted += roll() % 4 ? accepts_handle(&c) : roll() % 3 == 0 ? accepts_part(&c) : roll() % 2 ? accepts_address(&c) : accepts_mapping(&c);
	printf("%lu forged, %lu accepted\n", count, accepted);
	if (wraps(&c))
		printf("a generation was used twice\n");
	for (int i = 0; i < 2; i++)
		empty(sessions[i], i, contexts[i]);
	return 0;
}
