/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's stack of contexts, and what every part may ask of a context: errors, output, an end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

struct stack {
	struct context **items;
	size_t used, size;
};
static _Thread_local struct stack stack;
static void (*_Atomic at_thread_end)(void);
static pthread_key_t stack_key;
static pthread_once_t stack_once = PTHREAD_ONCE_INIT;

static void thread_end(void *unused)
{
	(void)unused;
	if (drv.forked)
		return; /* the lock may have been held by a thread that is not here */
	if (at_thread_end)
		at_thread_end();
	drv_lock();
	while (stack.used)
		context_unref(stack.items[--stack.used]);
	drv_unlock();
	free(stack.items);
	stack = (struct stack){ 0 };
}

void context_at_thread_end(void (*function)(void))
{
	at_thread_end = function;
}

static void make_key(void)
{
	pthread_key_create(&stack_key, thread_end);
}

int context_push(struct context *ctx)
{
	pthread_once(&stack_once, make_key);
	if (stack.used == stack.size) {
		size_t size = stack.size ? stack.size * 2 : 8;
		struct context **items = realloc(stack.items, size * sizeof(struct context *));

		if (!items)
			return -ENOMEM;
		stack = (struct stack){ items, stack.used, size };
	}
	pthread_setspecific(stack_key, &stack);
	stack.items[stack.used++] = ctx;
	ctx->refs++;
	return 0;
}

struct context *context_current(void)
{
	return stack.used ? stack.items[stack.used - 1] : NULL;
}

struct context *context_pop(void)
{
	return stack.used ? stack.items[--stack.used] : NULL;
}

static CUresult usable(const struct context *ctx)
{
	if (__atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return __atomic_load_n(&ctx->error, __ATOMIC_RELAXED);
}

CUresult context_enter(struct context **out)
{
	CUresult r = driver_check();

	*out = context_current();
	if (r != CUDA_SUCCESS)
		return r;
	return *out ? usable(*out) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_of(CUcontext handle, struct context **out)
{
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS || !handle)
		return r == CUDA_SUCCESS ? context_enter(out) : r;
	DRV_LOCKED();
	*out = (struct context *)handle;
	if (!handle_is(handle, HANDLE_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return usable(*out);
}

void context_poison(struct context *ctx, CUresult error)
{
	if (ctx->error != CUDA_SUCCESS)
		return;
	__atomic_store_n(&ctx->error, error, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED)) /* what its end cuts off is no kernel's fault */
		__atomic_store_n(&ctx->dev->lost, error, __ATOMIC_RELAXED);
}

void context_print(struct context *ctx, const char *text, size_t length)
{
	struct print_buffer *p = &ctx->print;
	size_t limit = ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE];

	pthread_mutex_lock(&ctx->print_lock);
	if (p->used + length > limit) {
		/* the documented behaviour of a full buffer: the oldest output is lost */
		size_t lost = p->used + length - limit;

		lost = lost < p->used ? lost : p->used;
		memmove(p->text, p->text + lost, p->used - lost);
		p->used -= lost;
	}
	if (p->used + length > p->size) {
		size_t size = (p->used + length) * 2;
		char *grown = realloc(p->text, size);

		p->text = grown ? grown : p->text;
		p->size = grown ? size : p->size;
	}
	if (p->used + length <= p->size) {
		memcpy(p->text + p->used, text, length);
		p->used += length;
	}
	pthread_mutex_unlock(&ctx->print_lock);
}

void context_flush_print(struct context *ctx)
{
	struct print_buffer taken;

	pthread_mutex_lock(&ctx->print_lock);
	taken = ctx->print;
	ctx->print = (struct print_buffer){ 0 };
	pthread_mutex_unlock(&ctx->print_lock);
	if (taken.used) {
		fwrite(taken.text, 1, taken.used, stdout);
		fflush(stdout);
	}
	free(taken.text);
}

void context_unref(struct context *ctx)
{
	if (--ctx->refs)
		return;
	pthread_mutex_destroy(&ctx->print_lock);
	free(ctx->print.text);
	free(ctx);
}
