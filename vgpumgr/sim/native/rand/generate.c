/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as work on a stream. */
#include <math.h>
#include <stdlib.h>

#include "rand.h"

struct job {
	struct work work;
	struct rd_state *state;
	struct rd_settings settings;
	void (*fill)(struct job *job);
	void *out;
	size_t count, bytes;      /* bytes: of one */
	double first, second;
	bool logarithmic;
};

/* ---- on the runner's thread */

static void fill_bits(struct job *j)
{
	struct rd_unit unit = { .numbers = 1 };
	uint32_t *out = j->out;

	for (size_t i = 0; i < j->count; i++) {
		rd_draw(j->state, &unit);
		out[i] = rd_bits(j->state->type, unit.words);
	}
}

static void fill_uniform(struct job *j)
{
	struct rd_unit unit = { .numbers = 1 };
	float *out = j->out;

	for (size_t i = 0; i < j->count; i++) {
		rd_draw(j->state, &unit);
		out[i] = rd_uniform(j->state->type, unit.words);
	}
}

static void fill_uniform_double(struct job *j)
{
	struct rd_unit unit = { .numbers = 1, .wide = true };
	double *out = j->out;

	for (size_t i = 0; i < j->count; i++) {
		rd_draw(j->state, &unit);
		out[i] = rd_uniform_double(j->state->type, unit.words);
	}
}

/* In pairs. */
static void fill_normal(struct job *j)
{
	struct rd_unit unit = { .numbers = 2, .wide = j->bytes == sizeof(double) };
	double pair[2];

	for (size_t i = 0; i < j->count; i++) {
		if (i % 2 == 0) {
			rd_draw(j->state, &unit);
			rd_normal(j->state->type, &unit, pair);
		}
		pair[i % 2] = j->first + j->second * pair[i % 2];
		if (j->logarithmic)
			pair[i % 2] = exp(pair[i % 2]);
		if (unit.wide)
			((double *)j->out)[i] = pair[i % 2];
		else
			((float *)j->out)[i] = (float)pair[i % 2];
	}
}

static void fill_poisson(struct job *j)
{
	struct rd_unit unit = { .numbers = 1, .wide = true };
	struct rd_poisson poisson;
	uint32_t *out = j->out;

	if (!rd_poisson_begin(&poisson, j->first)) {
		bl_reach(&j->work, NULL, 1);
		return;
	}
	for (size_t i = 0; i < j->count; i++) {
		rd_draw(j->state, &unit);
		out[i] = rd_poisson_of(&poisson, rd_uniform_double(j->state->type, unit.words));
	}
	rd_poisson_end(&poisson);
}

/* The states alone: the sequence from where the offset is. */
static void fill_states(struct job *j)
{
	(void)j;
}

static void run(struct work *work)
{
	struct job *j = (struct job *)work;

	work->wild = false;
	if (!bl_reach(work, j->out, (int64_t)(j->count * j->bytes)))
		return;
	if (rd_state_settle(j->state, &j->settings))
		j->fill(j);
	else
		bl_reach(work, NULL, 1);
}

static void release(struct work *work)
{
	rd_state_leave(((struct job *)work)->state);
	free(work);
}

/* ---- calls */

static int post(struct rand_generator *generator, const struct job *job)
{
	struct rand_generator *g = rd_generator(generator);
	struct bl_context *context;
	struct job *copy;
	int status = g ? rd_status(bl_context_current(&context)) : RD_NOT_INITIALIZED;

	if (status != RD_SUCCESS)
		return status;
	if (job->count > INT64_MAX / sizeof(double))
		return RD_LAUNCH_FAILURE;
	copy = malloc(sizeof *copy);
	if (!copy)
		return RD_ALLOCATION_FAILED;
	*copy = *job;
	copy->work = (struct work){ .run = run, .release = release, .context = context };
	copy->state = g->state;
	copy->settings = g->settings;
	atomic_fetch_add(&g->state->users, 1);
	return rd_status(bl_post(&copy->work, g->stream, false));
}

int curandGenerateSeeds(struct rand_generator *generator)
{
	struct rand_generator *g = rd_generator(generator);

	if (!g)
		return RD_NOT_INITIALIZED;
	g->settings.moved++;
	return post(g, &(struct job){ .fill = fill_states });
}

int curandGenerate(struct rand_generator *generator, unsigned int *out, size_t count)
{
	return post(generator, &(struct job){ .fill = fill_bits, .out = out, .count = count, .bytes = sizeof(*out) });
}

/* Of quasirandom generators of 64 bits only. */
int curandGenerateLongLong(struct rand_generator *generator, unsigned long long *out, size_t count)
{
	(void)out, (void)count;
	return rd_generator(generator) ? RD_TYPE_ERROR : RD_NOT_INITIALIZED;
}

int curandGenerateUniform(struct rand_generator *generator, float *out, size_t count)
{
	return post(generator, &(struct job){ .fill = fill_uniform, .out = out, .count = count, .bytes = sizeof(*out) });
}

int curandGenerateUniformDouble(struct rand_generator *generator, double *out, size_t count)
{
	return post(generator, &(struct job){ .fill = fill_uniform_double, .out = out, .count = count, .bytes = sizeof(*out) });
}

static int post_normal(struct rand_generator *g, struct job job)
{
	if (!rd_generator(g))
		return RD_NOT_INITIALIZED;
	job.fill = fill_normal;
	return job.count % 2 ? RD_LENGTH_NOT_MULTIPLE : post(g, &job);
}

int curandGenerateNormal(struct rand_generator *g, float *out, size_t count, float mean, float deviation)
{
	return post_normal(g, (struct job){ .out = out, .count = count, .bytes = sizeof(*out), .first = (double)mean,
					    .second = (double)deviation });
}

int curandGenerateNormalDouble(struct rand_generator *g, double *out, size_t count, double mean, double deviation)
{
	return post_normal(g, (struct job){ .out = out, .count = count, .bytes = sizeof(*out), .first = mean, .second = deviation });
}

int curandGenerateLogNormal(struct rand_generator *g, float *out, size_t count, float mean, float deviation)
{
	return post_normal(g, (struct job){ .out = out, .count = count, .bytes = sizeof(*out), .first = (double)mean,
					    .second = (double)deviation, .logarithmic = true });
}

int curandGenerateLogNormalDouble(struct rand_generator *g, double *out, size_t count, double mean, double deviation)
{
	return post_normal(g, (struct job){ .out = out, .count = count, .bytes = sizeof(*out), .first = mean, .second = deviation,
					    .logarithmic = true });
}

int curandGeneratePoisson(struct rand_generator *generator, unsigned int *out, size_t count, double lambda)
{
	if (!rd_generator(generator))
		return RD_NOT_INITIALIZED;
	if (!(lambda > 0 && lambda <= 400000))
		return RD_OUT_OF_RANGE;
	return post(generator, &(struct job){ .fill = fill_poisson, .out = out, .count = count, .bytes = sizeof(*out), .first = lambda });
}
