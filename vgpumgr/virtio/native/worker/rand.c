/* SPDX-License-Identifier: Apache-2.0 */
/* cuRAND: generators, which are kept, what is set of them, and their numbers. */
#include <stdlib.h>
#include <string.h>

#include "math_channel.h"
#include "mathematics.h"
#include "rand_wire.h"

/* Looked up once, by the literal. */
#define RAND(name) wk_math_function(VG_MATH_RAND, name)

/* ---- generators */

static int destroy(void *generator)
{
	int (*function)(void *);

	*(void **)&function = RAND("curandDestroyGenerator");
	return function ? function(generator) : RAND_INITIALIZATION_FAILED;
}

static bool read_type(const struct math_call *call, uint64_t *type)
{
	if (call->length != sizeof(*type))
		return false;
	memcpy(type, call->arguments, sizeof(*type));
	return true;
}

/* What a generator takes: the number of states that cuRAND's guide has for its type, times the size of a state in the device API; for a
 * quasirandom one, its direction vectors. */
uint64_t wk_rand_bytes(const struct math_call *call)
{
	uint64_t type = 0;

	if (!read_type(call, &type))
		return 0;
	switch (type) {
	case RAND_MRG32K3A:
		return 6ull << 20;  /* 81920 of 72 bytes */
	case RAND_MT19937:
		return 20ull << 20; /* 8192 of 624 words */
	case RAND_PHILOX:
		return 4ull << 20;  /* 65536 of 64 bytes */
	case RAND_QUASI_DEFAULT:
	case RAND_SOBOL32:
	case RAND_SCRAMBLED_SOBOL32:
		return 3ull << 20;  /* 20000 of 32 words */
	case RAND_SOBOL64:
	case RAND_SCRAMBLED_SOBOL64:
		return 10ull << 20; /* 20000 of 64 words of 8 bytes */
	default:
		return 1ull << 20;
	}
}

static int create(const struct math_call *call, void **generator)
{
	int (*function)(void **, int);
	uint64_t type;

	*(void **)&function = RAND("curandCreateGenerator");
	if (!function)
		return RAND_INITIALIZATION_FAILED;
	if (!read_type(call, &type) || type >> 31)
		return RAND_TYPE_ERROR;
	return function(generator, (int)type);
}

struct wk_math *wk_rand_generator(struct math_call *call, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));

	*status = math ? create(call, &math->handle) : RAND_ALLOCATION_FAILED;
	if (*status == RAND_OK) {
		math->library = MATH_RAND_GENERATOR;
		math->destroy = destroy;
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(math);
	return NULL;
}

/* ---- what is set */

static int set_word(void *function, void *generator, uint64_t value)
{
	return function ? ((int (*)(void *, unsigned long long))function)(generator, value) : RAND_INITIALIZATION_FAILED;
}

static int set_number(void *function, void *generator, uint64_t value)
{
	if (value >> 31)
		return RAND_OUT_OF_RANGE;
	return function ? ((int (*)(void *, int))function)(generator, (int)value) : RAND_INITIALIZATION_FAILED;
}

static int set(void *generator, const struct rand_setting *s)
{
	switch (s->which) {
	case RAND_SEED:
		return set_word(RAND("curandSetPseudoRandomGeneratorSeed"), generator, s->value);
	case RAND_OFFSET:
		return set_word(RAND("curandSetGeneratorOffset"), generator, s->value);
	case RAND_ORDERING:
		return set_number(RAND("curandSetGeneratorOrdering"), generator, s->value);
	case RAND_DIMENSIONS:
		return set_number(RAND("curandSetQuasiRandomGeneratorDimensions"), generator, s->value);
	default:
		return RAND_OUT_OF_RANGE;
	}
}

static int set_all(void *generator, CUstream stream, const struct rand_generate *e)
{
	int (*set_stream)(void *, CUstream), status;

	*(void **)&set_stream = RAND("curandSetStream");
	status = set_stream ? set_stream(generator, stream) : RAND_INITIALIZATION_FAILED;
	for (int i = 0; i < RAND_SETTINGS && e->settings[i].which && status == RAND_OK; i++)
		status = set(generator, &e->settings[i]);
	return status;
}

/* ---- numbers */

static int generate(void *generator, const struct rand_generate *e)
{
	static const char *const names[RAND_OUTPUTS] = {
		"", "curandGenerateSeeds", "curandGenerate", "curandGenerateLongLong", "curandGenerateUniform",
		"curandGenerateUniformDouble", "curandGenerateNormal", "curandGenerateNormalDouble", "curandGenerateLogNormal",
		"curandGenerateLogNormalDouble", "curandGeneratePoisson",
	};
	void *function = RAND(names[e->output]), *out = (void *)e->address;

	if (!function)
		return RAND_INITIALIZATION_FAILED;
	switch (e->output) {
	case RAND_STATES:
		return ((int (*)(void *))function)(generator);
	case RAND_NORMAL:
	case RAND_LOG_NORMAL:
		return ((int (*)(void *, void *, size_t, float, float))function)(generator, out, e->count, (float)e->first,
										 (float)e->second);
	case RAND_NORMAL_DOUBLE:
	case RAND_LOG_NORMAL_DOUBLE:
		return ((int (*)(void *, void *, size_t, double, double))function)(generator, out, e->count, e->first, e->second);
	case RAND_POISSON:
		return ((int (*)(void *, void *, size_t, double))function)(generator, out, e->count, e->first);
	default:
		return ((int (*)(void *, void *, size_t))function)(generator, out, e->count);
	}
}

int wk_rand_generate(struct math_call *call)
{
	void *generator = call->math->handle;
	struct rand_generate e;
	int status;

	if (call->function != RAND_GENERATE || call->values)
		return RAND_TYPE_ERROR;
	if (call->length != sizeof(e))
		return RAND_OUT_OF_RANGE;
	memcpy(&e, call->arguments, sizeof(e));
	if (e.output >= RAND_OUTPUTS)
		return RAND_OUT_OF_RANGE;
	status = set_all(generator, call->stream, &e);
	return status == RAND_OK && e.output != RAND_SET ? generate(generator, &e) : status;
}
