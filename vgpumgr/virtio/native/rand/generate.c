/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers. */
#include <string.h>

#include "rand.h"

enum { ALIGNMENT = 16 };

static const char *const names[RAND_OUTPUTS] = {
	[RAND_SET] = "curandSetGeneratorOrdering",
	[RAND_STATES] = "curandGenerateSeeds",
	[RAND_BITS] = "curandGenerate",
	[RAND_LONG_LONG] = "curandGenerateLongLong",
	[RAND_UNIFORM] = "curandGenerateUniform",
	[RAND_UNIFORM_DOUBLE] = "curandGenerateUniformDouble",
	[RAND_NORMAL] = "curandGenerateNormal",
	[RAND_NORMAL_DOUBLE] = "curandGenerateNormalDouble",
	[RAND_LOG_NORMAL] = "curandGenerateLogNormal",
	[RAND_LOG_NORMAL_DOUBLE] = "curandGenerateLogNormalDouble",
	[RAND_POISSON] = "curandGeneratePoisson",
};

static bool is_normal(uint64_t output)
{
	return output >= RAND_NORMAL && output <= RAND_LOG_NORMAL_DOUBLE;
}

/* All that the library is documented to ask of a call holds. */
static bool is_right(const struct rand_generator *g, const struct rand_generate *e)
{
	if (e->output == RAND_BITS && rand_is_wide(g->type))
		return false;
	if (e->output == RAND_LONG_LONG && !rand_is_wide(g->type))
		return false;
	if (e->output == RAND_POISSON && !(e->first > 0 && e->first <= RAND_MOST_LAMBDA))
		return false;
	if (rand_is_quasi(g->type) ? e->count % g->dimensions : is_normal(e->output) && e->count % 2)
		return false;
	return e->output != RAND_SET;
}

static uint64_t kind_of(const struct rand_generator *g, const struct rand_generate *e)
{
	uint64_t kind = math_hash(RAND_GENERATE, (uint64_t)g->type << 32 | g->dimensions);

	kind = math_hash(kind, e->output << 8 | e->address % ALIGNMENT);
	/* of what is right, any number is as good as another */
	return math_hash(kind, is_right(g, e) ? 0 : 1 + e->count);
}

static int call(const struct rand_generator *g, struct math_request *request, const struct rand_generate *e)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct math_known known;
	int result;

	if (!g->begun || (is_right(g, e) && !(e->address % ALIGNMENT))) {
		request->wait = g->begun ? MATH_POST : MATH_TRY;
		return math_channel()->call(request);
	}
	pthread_mutex_lock(&lock);
	result = math_send(&known, request, kind_of(g, e));
	pthread_mutex_unlock(&lock);
	return result;
}

static int send(struct rand_generator *g, struct rand_generate *e)
{
	struct math_request request = { .handle = g->id, .stream = g->stream, .function = RAND_GENERATE, .name = names[e->output],
					.arguments = e, .length = sizeof(*e), .wait = MATH_POST };
	int result;

	memcpy(e->settings, g->settings, sizeof(e->settings));
	result = call(g, &request, e);
	if (result) /* it was not sent, or the context has failed */
		return rand_status(result);
	memset(g->settings, 0, sizeof(g->settings));
	g->begun |= request.status == RAND_OK && e->output != RAND_SET;
	return request.status;
}

int rand_settle(struct rand_generator *g)
{
	return send(g, &(struct rand_generate){ .output = RAND_SET });
}

static int generate(struct rand_generator *generator, enum rand_output output, const void *out, size_t count, double first, double second)
{
	struct rand_generate e = { .output = output, .count = count, .address = (uintptr_t)out, .first = first, .second = second };
	struct rand_generator *g = rand_enter(generator);
	int status = g ? send(g, &e) : RAND_NOT_INITIALIZED;

	if (g)
		rand_leave(g);
	return status;
}

int curandGenerateSeeds(struct rand_generator *generator)
{
	return generate(generator, RAND_STATES, NULL, 0, 0, 0);
}

int curandGenerate(struct rand_generator *generator, unsigned int *out, size_t count)
{
	return generate(generator, RAND_BITS, out, count, 0, 0);
}

int curandGenerateLongLong(struct rand_generator *generator, unsigned long long *out, size_t count)
{
	return generate(generator, RAND_LONG_LONG, out, count, 0, 0);
}

int curandGenerateUniform(struct rand_generator *generator, float *out, size_t count)
{
	return generate(generator, RAND_UNIFORM, out, count, 0, 0);
}

int curandGenerateUniformDouble(struct rand_generator *generator, double *out, size_t count)
{
	return generate(generator, RAND_UNIFORM_DOUBLE, out, count, 0, 0);
}

int curandGenerateNormal(struct rand_generator *generator, float *out, size_t count, float mean, float deviation)
{
	return generate(generator, RAND_NORMAL, out, count, (double)mean, (double)deviation);
}

int curandGenerateNormalDouble(struct rand_generator *generator, double *out, size_t count, double mean, double deviation)
{
	return generate(generator, RAND_NORMAL_DOUBLE, out, count, mean, deviation);
}

int curandGenerateLogNormal(struct rand_generator *generator, float *out, size_t count, float mean, float deviation)
{
	return generate(generator, RAND_LOG_NORMAL, out, count, (double)mean, (double)deviation);
}

int curandGenerateLogNormalDouble(struct rand_generator *generator, double *out, size_t count, double mean, double deviation)
{
	return generate(generator, RAND_LOG_NORMAL_DOUBLE, out, count, mean, deviation);
}

int curandGeneratePoisson(struct rand_generator *generator, unsigned int *out, size_t count, double lambda)
{
	return generate(generator, RAND_POISSON, out, count, lambda, 0);
}
