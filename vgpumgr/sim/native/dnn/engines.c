/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines. All compute the same; they differ in workspace, knobs and what they say of themselves, so that programs choose:
 *
 *   0  products with the patches of one image at a time; a knob splits the image into tiles and so makes the workspace smaller
 *   1  plain loops, without a workspace
 *   2  the patches of all images at once, and virtual tensors, in the workspace; says that it is not deterministic
 */
#include <stdlib.h>

#include "graph.h"

enum { PRODUCTS = 0, LOOPS = 1, BATCH = 2 };
enum { KNOB_TILE_SIZE = 2, MOST_TILES_LOG = 3 };
enum { NOTE_NONDETERMINISTIC = 4, NOTE_STRICT_NAN = 9, NOTE_CUBLASLT = 4 };
enum { MODE_INSTANT = 0, MODE_B = 1, MODE_FALLBACK = 2, MODE_A = 3 };
enum { PREFERRED_NCHW = 0 };
enum { ALIGNMENT = 256 };

int64_t dn_align_workspace(int64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int64_t dn_patch_images(const struct dn_setting *s, const struct dn_geometry *g)
{
	if (s->engine == LOOPS)
		return 0;
	return s->engine == BATCH && g->n ? g->n : 1;
}

bool dn_virtuals_in_workspace(const struct dn_setting *s)
{
	return s->engine == BATCH;
}

static bool is_convolution(const struct dn_operation *o)
{
	return o->kind == DN_D_FORWARD || o->kind == DN_D_BACKWARD_DATA || o->kind == DN_D_BACKWARD_FILTER;
}

/* Patches come first, for the operation that needs most of them; then virtual tensors. */
int64_t dn_workspace(const struct dn_program *p, const struct dn_setting *s)
{
	int64_t patches = 0;

	for (int i = 0; i < p->n_operations; i++) {
		const struct dn_operation *o = &p->operations[i];
		int64_t images = is_convolution(o) ? dn_patch_images(s, &o->geometry) : 0;
		int64_t bytes = images ? dn_patches_bytes(&o->geometry, o->wide, images, s->tiles) : 0;

		if (bytes < 0 || bytes > INT64_MAX / 4)
			return -1;
		patches = bytes > patches ? bytes : patches;
	}
	for (int i = 0; dn_virtuals_in_workspace(s) && i < p->n_tensors; i++)
		if (p->tensors[i].is_virtual &&
		    __builtin_add_overflow(dn_align_workspace(patches), dn_bytes(&p->tensors[i]), &patches))
			return -1;
	return dn_align_workspace(patches);
}

static struct dn_program *program_of(const struct dn_content *engine)
{
	return dn_content_ref(engine, DN_A_ENGINE_GRAPH, 0)->program;
}

/* Stores contents that are made for it; they go to the one that stores them. */
static bool store_made(struct dn_content *c, int id, struct dn_content **made, int64_t n)
{
	bool good = true;

	for (int64_t i = 0; i < n; i++)
		good &= made[i] != NULL;
	good = good && dn_content_store(c, id, DN_T_DESCRIPTOR, n, made);
	for (int64_t i = 0; i < n; i++)
		dn_content_release(made[i]);
	return good;
}

/* A content that is finished unless memory is short: NULL then. */
static struct dn_content *finish(struct dn_content *c, bool good)
{
	if (c && good) {
		c->finalized = true;
		return c;
	}
	dn_content_release(c);
	return NULL;
}

static struct dn_content *make_knob(void)
{
	struct dn_content *c = dn_content_create(DN_D_KNOB_INFO);

	return finish(c, c && dn_content_store_int(c, DN_A_KNOB_TYPE, KNOB_TILE_SIZE) &&
				 dn_content_store_int(c, DN_A_KNOB_MINIMUM, 0) &&
				 dn_content_store_int(c, DN_A_KNOB_MAXIMUM, MOST_TILES_LOG) &&
				 dn_content_store_int(c, DN_A_KNOB_STRIDE, 1));
}

static struct dn_content *make_layout(const struct dn_tensor *t)
{
	struct dn_content *c = dn_content_create(DN_D_LAYOUT_INFO);
	int32_t preferred = PREFERRED_NCHW;

	return finish(c, c && dn_content_store_int(c, DN_A_LAYOUT_UID, t->uid) &&
				 dn_content_store(c, DN_A_LAYOUT_TYPES, DN_T_LAYOUT, 1, &preferred));
}

static bool describe_layouts(struct dn_content *c)
{
	const struct dn_program *p = program_of(c);
	struct dn_content **made = calloc((size_t)p->n_tensors + 1, sizeof *made);
	int64_t n = 0;
	bool good;

	if (!made)
		return false;
	for (int i = 0; i < p->n_tensors; i++)
		if (!p->tensors[i].is_virtual)
			made[n++] = make_layout(&p->tensors[i]);
	good = store_made(c, DN_A_ENGINE_LAYOUT, made, n);
	free(made);
	return good;
}

static bool describe(struct dn_content *c, int engine)
{
	struct dn_content *knob = engine == PRODUCTS ? make_knob() : NULL;
	int32_t numerical = engine == LOOPS ? NOTE_STRICT_NAN : NOTE_NONDETERMINISTIC, behavior = NOTE_CUBLASLT;

	return store_made(c, DN_A_ENGINE_KNOBS, &knob, engine == PRODUCTS) &&
	       dn_content_store(c, DN_A_ENGINE_NUMERICAL, DN_T_NUMERICAL, engine != PRODUCTS, &numerical) &&
	       dn_content_store(c, DN_A_ENGINE_BEHAVIOR, DN_T_BEHAVIOR, engine != LOOPS, &behavior) &&
	       dn_content_default(c, DN_A_ENGINE_SMS, 0) && describe_layouts(c);
}

int dn_engine_finalize(struct dn_content *c)
{
	int64_t engine = dn_content_int(c, DN_A_ENGINE_INDEX, -1);

	if (!dn_content_ref(c, DN_A_ENGINE_GRAPH, 0))
		return dn_fail(DN_NULL_POINTER, "an engine without a graph");
	if (!dn_content_value(c, DN_A_ENGINE_INDEX))
		return dn_fail(DN_BAD_PARAM, "an engine without an index");
	if (engine < 0 || engine >= DN_ENGINES)
		return dn_fail(DN_NOT_SUPPORTED, "no such engine");
	return describe(c, (int)engine) ? DN_SUCCESS : dn_fail(DN_NO_HOST_MEMORY, "no memory for an engine");
}

/* One choice for each knob that the engine has, and a value that it takes. */
static int check_knobs(const struct dn_content *c, int64_t engine)
{
	int64_t n = dn_content_count(c, DN_A_CONFIG_KNOBS);

	if (n > (engine == PRODUCTS))
		return dn_fail(DN_NOT_SUPPORTED, "more choices than the engine has knobs");
	for (int64_t i = 0; i < n; i++) {
		const struct dn_content *choice = dn_content_ref(c, DN_A_CONFIG_KNOBS, i);
		int64_t value = dn_content_int(choice, DN_A_CHOICE_VALUE, 0);

		if (dn_content_int(choice, DN_A_CHOICE_TYPE, -1) != KNOB_TILE_SIZE || value < 0 || value > MOST_TILES_LOG)
			return dn_fail(DN_NOT_SUPPORTED, "a choice that the engine does not have");
	}
	return DN_SUCCESS;
}

void dn_setting_read(const struct dn_content *config, struct dn_setting *out)
{
	const struct dn_content *choice = dn_content_ref(config, DN_A_CONFIG_KNOBS, 0);

	out->engine = (int)dn_content_int(dn_content_ref(config, DN_A_CONFIG_ENGINE, 0), DN_A_ENGINE_INDEX, 0);
	out->tiles = INT64_C(1) << (choice ? dn_content_int(choice, DN_A_CHOICE_VALUE, 0) : 0);
}

int dn_config_finalize(struct dn_content *c)
{
	const struct dn_content *engine = dn_content_ref(c, DN_A_CONFIG_ENGINE, 0);
	struct dn_setting setting;
	int64_t bytes;
	int status;

	if (!engine)
		return dn_fail(DN_BAD_PARAM, "a configuration without an engine");
	status = check_knobs(c, dn_content_int(engine, DN_A_ENGINE_INDEX, 0));
	if (status != DN_SUCCESS)
		return status;
	dn_setting_read(c, &setting);
	bytes = dn_workspace(program_of(engine), &setting);
	if (bytes < 0)
		return dn_fail(DN_BAD_SHAPE, "a workspace larger than an address space");
	if (!dn_content_value(c, DN_A_CONFIG_KNOBS) && !dn_content_store(c, DN_A_CONFIG_KNOBS, DN_T_DESCRIPTOR, 0, NULL))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a configuration");
	if (!dn_content_store_int(c, DN_A_CONFIG_WORKSPACE, bytes) || !dn_content_store_int(c, DN_A_CONFIG_SHARED, 0))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a configuration");
	return DN_SUCCESS;
}

static struct dn_content *make_engine(struct dn_content *graph, int index)
{
	struct dn_content *c = dn_content_create(DN_D_ENGINE);

	return finish(c, c && dn_content_store(c, DN_A_ENGINE_GRAPH, DN_T_DESCRIPTOR, 1, &graph) &&
				 dn_content_store_int(c, DN_A_ENGINE_INDEX, index) && dn_engine_finalize(c) == DN_SUCCESS);
}

static struct dn_content *make_choice(int64_t value)
{
	struct dn_content *c = dn_content_create(DN_D_KNOB_CHOICE);

	return finish(c, c && dn_content_store_int(c, DN_A_CHOICE_TYPE, KNOB_TILE_SIZE) &&
				 dn_content_store_int(c, DN_A_CHOICE_VALUE, value));
}

/* A configuration of an engine; with a value of its knob, or -1. */
static struct dn_content *make_config(struct dn_content *graph, int index, int64_t value)
{
	struct dn_content *c = dn_content_create(DN_D_CONFIG), *engine = make_engine(graph, index);
	struct dn_content *choice = value >= 0 ? make_choice(value) : NULL;
	bool good = c && engine && (value < 0 || choice) && dn_content_store(c, DN_A_CONFIG_ENGINE, DN_T_DESCRIPTOR, 1, &engine) &&
		    dn_content_store(c, DN_A_CONFIG_KNOBS, DN_T_DESCRIPTOR, value >= 0, &choice);

	good = good && dn_config_finalize(c) == DN_SUCCESS;
	dn_content_release(engine);
	dn_content_release(choice);
	return finish(c, good);
}

/* For each mode: engines and values of their knob, best first; ends with -1. */
static const struct {
	int engine, value;
} ranked[][5] = {
	[MODE_INSTANT] = { { PRODUCTS, 0 }, { BATCH, -1 }, { LOOPS, -1 }, { -1, 0 } },
	[MODE_B] = { { BATCH, -1 }, { PRODUCTS, 1 }, { LOOPS, -1 }, { -1, 0 } },
	[MODE_FALLBACK] = { { LOOPS, -1 }, { -1, 0 } },
	[MODE_A] = { { PRODUCTS, 0 }, { PRODUCTS, 2 }, { BATCH, -1 }, { LOOPS, -1 }, { -1, 0 } },
};

int dn_heuristics_finalize(struct dn_content *c)
{
	struct dn_content *graph = dn_content_ref(c, DN_A_HEUR_GRAPH, 0), *made[sizeof ranked[0] / sizeof ranked[0][0]];
	int64_t mode = dn_content_int(c, DN_A_HEUR_MODE, MODE_INSTANT), n = 0;

	if (!graph)
		return dn_fail(DN_BAD_PARAM, "heuristics without a graph");
	if (mode < 0 || mode > MODE_A)
		return dn_fail(DN_BAD_PARAM, "no such mode of heuristics");
	for (; ranked[mode][n].engine >= 0; n++)
		made[n] = make_config(graph, ranked[mode][n].engine, ranked[mode][n].value);
	if (!store_made(c, DN_A_HEUR_RESULTS, made, n) || !dn_content_default(c, DN_A_HEUR_SMS, 0))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for heuristics");
	return DN_SUCCESS;
}

int dn_plan_finalize(struct dn_content *c)
{
	const struct dn_content *config = dn_content_ref(c, DN_A_PLAN_CONFIG, 0);

	if (!config)
		return dn_fail(DN_BAD_PARAM, "a plan without a configuration");
	if (!dn_content_store_int(c, DN_A_PLAN_WORKSPACE, dn_content_int(config, DN_A_CONFIG_WORKSPACE, 0)))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a plan");
	return DN_SUCCESS;
}
