/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by their numbers, and the library in each context. */
#include <stdlib.h>
#include <string.h>

#include "fft.h"

/* A number is a place, and how often that was taken before: one that has ended is not taken for another soon. */
enum { PLANS = 1 << 14, TIMES = 1 << 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fft_plan *plans[PLANS]; /* never freed, as another thread may have the number of one that ends */
static atomic_int count;
static int unused = -1;
static struct math_places places = MATH_PLACES;

int fft_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return FFT_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return FFT_ALLOC_FAILED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return FFT_INVALID_PLAN;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return FFT_SETUP_FAILED;
	default:  /* 801, CUDA_ERROR_NOT_SUPPORTED: of something that was posted before */
		return FFT_EXEC_FAILED;
	}
}

int fft_unsupported(const char *name, atomic_flag *told)
{
	math_refuse(name, told);
	return FFT_NOT_SUPPORTED;
}

/* ---- the library in a context */

int fft_open(uint64_t *handle, void **context)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int status, result;

	if (!math_channel() || !math_channel()->make || !math_channel()->current || !math_channel()->push || !math_channel()->pop ||
	    !math_channel()->allocate || !math_channel()->release)
		return FFT_SETUP_FAILED;
	result = math_enter(&places, VG_MATH_FFT, handle, context, &status);
	if (result == 801)
		return fft_unsupported("cuFFT, which the host does not have,", &told);
	return result ? fft_status(result) : status;
}

/* ---- plans */

static struct fft_plan *take(void)
{
	struct fft_plan *p;

	if (unused >= 0) {
		p = plans[unused];
		unused = p->next;
		return p;
	}
	p = count < PLANS ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->number = count + 1;
	plans[count] = p;
	atomic_fetch_add(&count, 1);
	return p;
}

int fft_new(int *number)
{
	struct fft_plan *p;
	uint64_t handle;
	void *context;
	int status = fft_open(&handle, &context);

	if (status != FFT_OK)
		return status;
	pthread_mutex_lock(&lock);
	p = take();
	pthread_mutex_unlock(&lock);
	if (!p)
		return FFT_ALLOC_FAILED;
	pthread_mutex_lock(&p->lock);
	p->live = p->allocates = true;
	p->handle = handle;
	p->context = context;
	*number = p->number;
	pthread_mutex_unlock(&p->lock);
	return FFT_OK;
}

struct fft_plan *fft_find(int number)
{
	int place = (number - 1) % PLANS;
	struct fft_plan *p;

	if (number <= 0 || place >= count)
		return NULL;
	p = plans[place];
	pthread_mutex_lock(&p->lock);
	if (p->live && p->number == number)
		return p;
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static bool is_alive(const struct fft_plan *p)
{
	return math_channel()->alive(p->made ? p->id : p->handle);
}

struct fft_plan *fft_enter(int number)
{
	struct fft_plan *p = fft_find(number);

	if (!p || is_alive(p))
		return p;
	fft_leave(p);
	return NULL;
}

void fft_leave(struct fft_plan *p)
{
	pthread_mutex_unlock(&p->lock);
}

int fft_end(struct fft_plan *p)
{
	int place = (p->number - 1) % PLANS, number = p->number, result = 0;

	if (!is_alive(p))
		p->own = 0; /* it ended with its context, and so did its memory */
	else if (p->made)
		result = math_channel()->destroy(p->id);
	fft_release(p);
	p->live = p->made = p->allocates = false;
	p->number = (number - 1) / PLANS + 1 < TIMES ? number + PLANS : place + 1;
	p->stream = NULL;
	p->area = p->set = p->bytes = 0;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_lock(&lock);
	p->next = unused;
	unused = place;
	pthread_mutex_unlock(&lock);
	return fft_status(result);
}

/* ---- work areas */

/* Whether it has become the current one, and is to be left. */
static bool enter_context(const struct fft_plan *p)
{
	void *current = NULL;

	math_channel()->current(&current);
	return current != p->context && !math_channel()->push(p->context);
}

static void leave_context(bool entered)
{
	void *left;

	if (entered)
		math_channel()->pop(&left);
}

int fft_allocate(struct fft_plan *p)
{
	bool entered = enter_context(p);
	int result = math_channel()->allocate(&p->own, p->bytes);

	leave_context(entered);
	if (result)
		p->own = 0;
	p->area = p->own;
	return result ? FFT_ALLOC_FAILED : FFT_OK;
}

void fft_release(struct fft_plan *p)
{
	bool entered;

	if (!p->own)
		return;
	entered = enter_context(p);
	math_channel()->release(p->own);
	leave_context(entered);
	if (p->area == p->own)
		p->area = 0;
	p->own = 0;
}
