/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of mathematics libraries as guests could make them, right ones and wrong ones: usage is mathematics DIRECTORY COUNT
 * SEED, where the null libraries are in DIRECTORY. Several threads share handles and end them. Prints how many functions of
 * each library were called, and how many calls were accepted and refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas_functions.h"
#include "lane.h"
#include "dnn_wire.h"
#include "fft_wire.h"
#include "lt_wire.h"
#include "math_channel.h"
#include "mathematics.h"
#include "maths.h"
#include "rand_wire.h"
#include "session.h"
#include "sparse_wire.h"
#include "vg_worker.h"

enum { THREADS = 3, HANDLES = 4, LIBRARIES = 7, DNN = VG_MATH_DNN - 1, FFT = VG_MATH_FFT - 1,
       SOLVER = VG_MATH_SOLVER - 1, SPARSE = VG_MATH_SPARSE - 1, RAND = VG_MATH_RAND - 1 };

static struct vg_lane lane;
static struct wk_session *session;
static uint64_t context;
static unsigned long count;
static _Atomic uint32_t sequence, slots;
static _Atomic uint64_t handles[LIBRARIES][HANDLES], plans[LIBRARIES][HANDLES]; /* of each library; and plans of cuDNN and of cuFFT, objects of cuSOLVER and cuSPARSE, generators of cuRAND */
static _Atomic uint64_t sparse_objects[SPARSE_BSRSM2 + 1]; /* the last of each kind */
static _Atomic unsigned long accepted, refused;
static _Atomic bool called[BLAS_FUNCTIONS], called_light[LT_FUNCTIONS];

uint64_t roll(struct thread *t)
{
	t->random ^= t->random << 13, t->random ^= t->random >> 7, t->random ^= t->random << 17;
	return t->random;
}

bool once_in(struct thread *t, uint64_t n)
{
	return roll(t) % n == 0;
}

/* Of a function the answer begins with the library's status. */
static void learn(struct vg_lane *l, const struct lane_call *call, int32_t status, const void *data, size_t length)
{
	int32_t of_library;

	(void)l;
	if (status == CUDA_SUCCESS)
		accepted++;
	else
		refused++;
	if (status != CUDA_SUCCESS || (call->op != VG_OP_math_try && call->op != VG_OP_math_ask) || length < sizeof(of_library))
		return;
	memcpy(&of_library, data, sizeof(of_library));
	learn_sparse(call->context, of_library);
}

static struct lane_call *ask(uint32_t sequence, uint32_t op, uint64_t mark)
{
	struct lane_call *asked = lane_ask(&lane, sequence, op);

	if (asked)
		asked->context = mark;
	return asked;
}

/* A frame of that operation with this payload, exactly as long. */
static void send(uint32_t op, const uint8_t *bytes, size_t length, uint64_t mark)
{
	const struct wk_operation *o = wk_operation(op);
	struct vg_call call = { .op = op, .sequence = ++sequence, .wants_reply = !(o->flags & WK_QUIET) };
	uint8_t *payload = malloc(length ? length : 1);

	while (call.wants_reply && !ask(call.sequence, op, mark))
		sched_yield();
	memcpy(payload, bytes, length);
	call.payload = payload;
	call.payload_length = (uint32_t)length;
	if (wk_call(session, &lane, &call) && call.wants_reply)
		lane_refused(&lane, call.sequence);
	free(payload);
}

#define SEND(name, ...) SEND_MARKED(0, name, __VA_ARGS__)
#define SEND_MARKED(mark, name, ...)                                                 \
	do {                                                                         \
		struct vg_##name##_request in_ = { __VA_ARGS__ };                    \
		uint8_t bytes_[VG_MAX_##name##_request];                             \
		struct vg_encoder e_;                                                \
		size_t size_ = vg_size_##name##_request(&in_);                       \
		vg_encoder_init(&e_, bytes_, size_);                                 \
		vg_put_##name##_request(&e_, &in_);                                  \
		if (!vg_encoder_end(&e_))                                            \
			send(VG_OP_##name, bytes_, size_, mark);                     \
	} while (0)

void put(struct thread *t, uint64_t word)
{
	if (t->length + sizeof(word) > BYTES)
		return;
	memcpy(t->arguments + t->length, &word, sizeof(word));
	t->length += sizeof(word);
}

/* ---- cuBLAS */

static uint64_t make_word(struct thread *t, const struct blas_argument *a)
{
	static const uint64_t types[] = { 0, 1, 2, 4, 5, 6, 14, 15, 16, 77, 200 }, computes[] = { 64, 68, 70, 72, 79, 99 };

	switch (a->kind) {
	case BLAS_TYPE:
		return types[roll(t) % (sizeof(types) / sizeof(types[0]) - 3 * !once_in(t, 10))];
	case BLAS_COMPUTE:
		return computes[roll(t) % (sizeof(computes) / sizeof(computes[0]) - !once_in(t, 10))];
	default:
		return once_in(t, 20) ? roll(t) : roll(t) % 64;
	}
}

static uint64_t make_blas(struct thread *t, bool on_device)
{
	unsigned int place = (unsigned int)(roll(t) % BLAS_FUNCTIONS);
	const struct blas_function *f = &blas_functions[place];
	uint64_t words[BLAS_ARGUMENTS];

	t->length = 0;
	for (unsigned int i = 0; i < f->count; i++)
		put(t, words[i] = make_word(t, &f->arguments[i]));
	for (unsigned int i = 0; i < f->count; i++)
		for (size_t n = 0; blas_is_sent(&f->arguments[i], on_device) && n < blas_value_bytes(f, words, i); n += 8)
			put(t, roll(t));
	called[place] = true;
	return once_in(t, 50) ? roll(t) | 1ull << 32 : f->id;
}

/* ---- cuBLASLt */

/* Where scalars are, said twice or with more bits than are asked for: what is read must be what the library gets. */
static void put_two_modes(struct thread *t, uint64_t number)
{
	bool twice = once_in(t, 2);

	put(t, twice ? 2 : 1);
	if (twice) {
		put(t, number | 4ull << 32);
		put(t, 1 + roll(t) % 4);
	}
	put(t, number | 4ull << 32);
	put(t, twice ? 0 : 1ull << 32);
}

/* Most are of the size that they have, and there once. */
static void put_attributes(struct thread *t, enum lt_object_kind kind)
{
	uint64_t n = once_in(t, 60) ? roll(t) % 100 : roll(t) % 6, number = 0;

	if ((kind == LT_DESCRIPTOR || kind == LT_TRANSFORMATION) && once_in(t, 12)) {
		put_two_modes(t, kind == LT_DESCRIPTOR ? 2 : 1);
		return;
	}
	put(t, n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t bytes;

		number = once_in(t, 40) ? roll(t) % 50 : number + (i > 0) + roll(t) % (kind == LT_DESCRIPTOR ? 4 : 2);
		while (number < 40 && !lt_attribute_bytes(kind, (uint32_t)number))
			number++;
		bytes = once_in(t, 60) ? roll(t) : lt_attribute_bytes(kind, (uint32_t)number);
		put(t, number | bytes << 32);
		put(t, once_in(t, 30) ? roll(t) : roll(t) % 8);
	}
}

static enum lt_object_kind kind_of(uint64_t function, int place)
{
	if (!place)
		return function == LT_TRANSFORM ? LT_TRANSFORMATION : LT_DESCRIPTOR;
	return place == 5 ? LT_PREFERENCE : LT_LAYOUT;
}

static void put_words(struct thread *t, int n)
{
	for (int i = 0; i < n; i++)
		put(t, once_in(t, 30) ? roll(t) : roll(t) % 40);
}

static uint64_t make_light(struct thread *t)
{
	/* objects with attributes, and words behind them */
	static const struct {
		int objects, words;
	} shapes[LT_FUNCTIONS] = {
		[LT_MATMUL] = { 5, 11 },      [LT_HEURISTIC] = { 6, 1 }, [LT_ALGO_INIT] = { 0, 7 },
		[LT_ALGO_CHECK] = { 5, 8 },   [LT_ALGO_IDS] = { 0, 7 },  [LT_ALGO_CAP] = { 0, 10 },
		[LT_ALGO_CONFIG] = { 0, 10 }, [LT_ALGO_SET] = { 0, 11 }, [LT_TRANSFORM] = { 4, 7 },
	};
	uint64_t function = roll(t) % LT_FUNCTIONS;

	t->length = 0;
	for (int i = 0; i < shapes[function].objects; i++)
		put_attributes(t, kind_of(function, i));
	for (int i = 0; function == LT_ALGO_SET && i < 1; i++) { /* bytes of a value come before it */
		put_words(t, 9);
		put(t, once_in(t, 10) ? roll(t) : 4);
		put_words(t, 1);
		called_light[function] = true;
		return function;
	}
	put_words(t, shapes[function].words);
	if (function == LT_MATMUL) {
		bool algo = once_in(t, 2);

		put(t, algo);
		put_words(t, algo ? LT_ALGO_WORDS : 0);
	}
	called_light[function] = function > 0;
	return function;
}

/* ---- what they do */

static void make_handle(struct thread *t)
{
	uint32_t library = once_in(t, 30) ? LIBRARIES + 1 : 1 + (uint32_t)(roll(t) % LIBRARIES), slot = ++slots;
	uint64_t made = vg_handle_make(VG_TAG_MATH, 1, slot % VG_CAP_MATH);

	if (slot >= VG_CAP_MATH)
		return;
	SEND(math_create, .context = context, .created = made, .library = library);
	if (library <= LIBRARIES)
		handles[library - 1][roll(t) % HANDLES] = made;
}

/* A library that keeps objects: cuSPARSE has as many kinds of them as the others together. */
static unsigned int kept_by(struct thread *t)
{
	static const unsigned int all[] = { FFT, SOLVER, SPARSE, SPARSE, DNN, RAND };

	return all[roll(t) % (sizeof(all) / sizeof(all[0]))];
}

static void keep_plan(struct thread *t)
{
	uint32_t slot = ++slots;
	unsigned int library = kept_by(t);
	uint64_t handle = handles[once_in(t, 40) ? roll(t) % LIBRARIES : library][roll(t) % HANDLES];
	uint64_t made = vg_handle_make(VG_TAG_MATH, 1, slot % VG_CAP_MATH), function = library == FFT ? FFT_PLAN : DNN_PLAN;

	if (library == SOLVER)
		function = once_in(t, 2) ? SOLVER_SYEVJ : SOLVER_GESVDJ;
	if (library == SPARSE)
		function = SPARSE_SPGEMM + roll(t) % SPARSE_BSRSM2;
	if (library == RAND)
		function = RAND_GENERATOR;

	if (slot >= VG_CAP_MATH)
		return;
	if (library == FFT)
		make_shape(t, function);
	else if (library == DNN)
		make_plan(t);
	else if (library == RAND)
		make_generator(t);
	else
		t->length = 0;
	if (once_in(t, 20))
		t->length = roll(t) % (t->length + 1);
	SEND(math_make, context, made, handle, once_in(t, 60) ? roll(t) % 9 : function, { t->arguments, t->length });
	plans[library][roll(t) % HANDLES] = made;
	if (library == SPARSE)
		sparse_objects[function] = made;
}

/* Any of the libraries': whose handle it is for, and its number. */
static uint64_t make_call(struct thread *t, bool on_device, unsigned int *library)
{
	uint64_t function = once_in(t, 2) ? FFT_SIZE : FFT_ESTIMATE;

	t->mark = 0;
	switch (roll(t) % 11) {
	case 0:
	case 1:
		*library = 0;
		return make_blas(t, on_device);
	case 2:
		*library = once_in(t, 2);
		return make_light(t);
	case 3:
		*library = DNN;
		make_execution(t, once_in(t, 60) ? roll(t) : plans[DNN][roll(t) % HANDLES]);
		return DNN_EXECUTE;
	case 4:
		*library = FFT;
		make_shape(t, function);
		return function;
	case 5:
	case 6:
		*library = SOLVER;
		return make_solver(t, once_in(t, 60) ? roll(t) : plans[SOLVER][roll(t) % HANDLES]);
	case 7:
	case 8:
		*library = SPARSE;
		return make_sparse(t, on_device, sparse_objects);
	default:
		*library = DNN;
		return make_network(t);
	}
}

static void call(struct thread *t)
{
	bool on_device = once_in(t, 3);
	unsigned int library;
	uint64_t function = make_call(t, on_device, &library);
	uint64_t handle = once_in(t, 200) ? plans[library][roll(t) % HANDLES] : handles[library][roll(t) % HANDLES];
	uint32_t mode = on_device | (once_in(t, 4) ? 2 : 0);
	struct vg_bytes arguments = { t->arguments, t->length };
	uint64_t way = t->length + 8 > POSTED_BYTES ? 2 : roll(t) % 3;

	if (once_in(t, 20))
		arguments.length = roll(t) % (t->length + 1);
	else if (once_in(t, 20) && t->length + 8 <= BYTES)
		arguments.length += 8;
	if (once_in(t, 100))
		handle ^= 1ull << roll(t) % 60;
	switch (way) {
	case 0:
		SEND(math_call, context, handle, 0, function, mode, arguments);
		break;
	case 1:
		SEND_MARKED(t->mark, math_try, context, handle, 0, function, mode, arguments);
		break;
	default:
		SEND_MARKED(t->mark, math_ask, context, handle, 0, function, mode, arguments);
	}
}

/* A plan of cuFFT's and a generator of cuRAND's are called themselves, with what was made for them. */
static void call_kept(struct thread *t, unsigned int library, uint64_t function)
{
	uint64_t kept = plans[once_in(t, 60) ? DNN : library][roll(t) % HANDLES];
	struct vg_bytes arguments = { t->arguments, once_in(t, 40) ? roll(t) % (t->length + 1) : t->length };

	if (once_in(t, 2))
		SEND(math_try, context, kept, 0, once_in(t, 60) ? roll(t) % 9 : function, 0, arguments);
	else
		SEND(math_call, context, kept, 0, function, 0, arguments);
}

static void transform(struct thread *t)
{
	make_transform(t);
	call_kept(t, FFT, FFT_EXECUTE);
}

static void draw(struct thread *t)
{
	make_numbers(t);
	call_kept(t, RAND, RAND_GENERATE);
}

static void *live(void *argument)
{
	struct thread *t = argument;

	for (unsigned long i = 0; i < count / THREADS; i++) {
		if (once_in(t, 200))
			make_handle(t);
		if (once_in(t, 400))
			SEND(math_destroy, context, handles[roll(t) % LIBRARIES][roll(t) % HANDLES]);
		if (once_in(t, 40))
			keep_plan(t);
		if (once_in(t, 80))
			SEND(math_destroy, context, plans[kept_by(t)][roll(t) % HANDLES]);
		if (once_in(t, 6))
			transform(t);
		if (once_in(t, 8))
			draw(t);
		if (once_in(t, 100))
			SEND(math_open, (uint32_t)(roll(t) % (LIBRARIES + 2)));
		call(t);
	}
	return NULL;
}

static void start(void)
{
	struct thread t = { .random = 77 };

	context = vg_handle_make(VG_TAG_CONTEXT, 1, 0);
	SEND(context_create, .created = context);
	for (int i = 0; i < 60; i++)
		make_handle(&t);
}

static unsigned int count_called(const _Atomic bool *flags, unsigned int n)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i < n; i++)
		found += flags[i];
	return found;
}

/* Nothing of cuDNN, cuFFT, cuSOLVER, cuSPARSE or cuRAND is left where all sessions have ended. */
static unsigned long count_left(void)
{
	unsigned long (*networks)(void), (*transforms)(void), (*solvers)(void), (*sparses)(void), (*randoms)(void);

	*(void **)&networks = wk_math_find(VG_MATH_DNN, "null_networks_live");
	*(void **)&transforms = wk_math_find(VG_MATH_FFT, "null_transforms_live");
	*(void **)&solvers = wk_math_find(VG_MATH_SOLVER, "null_solvers_live");
	*(void **)&sparses = wk_math_find(VG_MATH_SPARSE, "null_sparses_live");
	*(void **)&randoms = wk_math_find(VG_MATH_RAND, "null_randoms_live");
	return networks && transforms && solvers && sparses && randoms ? networks() + transforms() + solvers() + sparses() + randoms() : ~0ul;
}

int main(int argc, char **argv)
{
	struct thread threads[THREADS];
	char message[512], option[512], limits[] = "--limits=device-memory:1099511627776";

	if (argc < 4)
		return 2;
	snprintf(option, sizeof(option), VG_OPTION_MATH "/nowhere:%s", argv[1]);
	wk_math_read(3, (char *[]){ argv[0], limits, option });
	count = strtoul(argv[2], NULL, 0);
	if (wk_driver_load(NULL, message, sizeof(message)))
		return 2;
	pthread_mutex_init(&lane.lock, NULL);
	lane.learn = learn;
	session = wk_session_create(&lane);
	start();
	for (int i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){ .random = (strtoull(argv[3], NULL, 0) + (uint64_t)i) * 0x9e3779b97f4a7c15 | 1 };
		pthread_create(&threads[i].thread, NULL, live, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i].thread, NULL);
	wk_session_destroy(session);
	printf("%u functions %u light %u networks %u transforms %u solvers %u sparses %u randoms %lu accepted %lu refused\n", count_called(called, BLAS_FUNCTIONS),
	       count_called(called_light, LT_FUNCTIONS), count_networks(), count_transforms(), count_solvers(), count_sparses(), count_randoms(), accepted, refused);
	return lane.asked == lane.answered && !count_left() ? 0 : 1;
}
