/* SPDX-License-Identifier: Apache-2.0 */
/* Executions. */
#include "fft.h"

enum { ALIGNMENT = 16, FORWARD = -1, INVERSE = 1 };

static const char *const names[FFT_EXECUTIONS] = { "cufftXtExec", "cufftExecC2C", "cufftExecR2C", "cufftExecC2R", "cufftExecZ2Z",
						   "cufftExecD2Z", "cufftExecZ2D" };

/* Nothing is left that the library might refuse. */
static bool is_sure(const struct fft_plan *p, const struct fft_execute *e)
{
	return p->suits >> e->execution & 1 && !(e->in % ALIGNMENT) && !(e->out % ALIGNMENT) && !(p->area % ALIGNMENT) &&
	       (p->area || !p->bytes);
}

static uint64_t kind_of(const struct fft_plan *p, const struct fft_execute *e)
{
	uint64_t kind = math_hash(p->kind, e->execution);

	kind = math_hash(kind, (uint64_t)e->direction);
	kind = math_hash(kind, e->in % ALIGNMENT << 16 | e->out % ALIGNMENT << 8 | p->area % ALIGNMENT);
	return math_hash(kind, (uint64_t)(e->in == e->out) << 1 | (p->area != 0));
}

static int send(struct fft_plan *p, struct fft_execute *e)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct math_known known;
	struct math_request request = { .handle = p->id, .stream = p->stream, .function = FFT_EXECUTE, .name = names[e->execution],
					.arguments = e, .length = sizeof(*e), .wait = MATH_POST };
	int result;

	e->area = p->area;
	if (is_sure(p, e)) {
		result = math_channel()->call(&request);
	} else {
		pthread_mutex_lock(&lock);
		result = math_send(&known, &request, kind_of(p, e));
		pthread_mutex_unlock(&lock);
	}
	return result ? fft_status(result) : request.status;
}

static int execute(int plan, enum fft_execution execution, const void *in, const void *out, int direction)
{
	struct fft_execute e = { .execution = execution, .direction = direction, .in = (uintptr_t)in, .out = (uintptr_t)out };
	struct fft_plan *p = fft_enter(plan);
	int status = p && p->made ? FFT_OK : FFT_INVALID_PLAN;

	if (status == FFT_OK && (!in || !out || (direction != FORWARD && direction != INVERSE)))
		status = FFT_INVALID_VALUE;
	if (status == FFT_OK)
		status = send(p, &e);
	if (p)
		fft_leave(p);
	return status;
}

int cufftXtExec(int plan, void *in, void *out, int direction)
{
	return execute(plan, FFT_XT_EXEC, in, out, direction);
}

int cufftExecC2C(int plan, void *in, void *out, int direction)
{
	return execute(plan, FFT_C2C, in, out, direction);
}

int cufftExecZ2Z(int plan, void *in, void *out, int direction)
{
	return execute(plan, FFT_Z2Z, in, out, direction);
}

int cufftExecR2C(int plan, void *in, void *out)
{
	return execute(plan, FFT_R2C, in, out, FORWARD);
}

int cufftExecC2R(int plan, void *in, void *out)
{
	return execute(plan, FFT_C2R, in, out, INVERSE);
}

int cufftExecD2Z(int plan, void *in, void *out)
{
	return execute(plan, FFT_D2Z, in, out, FORWARD);
}

int cufftExecZ2D(int plan, void *in, void *out)
{
	return execute(plan, FFT_Z2D, in, out, INVERSE);
}
