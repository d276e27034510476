/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the test programs of the simulated driver. A program has named cases; each is run in a process of its own.
 * A failed check says where, what was expected and what came, and ends the program with 1.
 */
#ifndef CHECK_H
#define CHECK_H

#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                                        \
	do {                                                             \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);          \
		fprintf(stderr, __VA_ARGS__);                            \
		fputc('\n', stderr);                                     \
		exit(1);                                                 \
	} while (0)

#define EXPECT(condition)                                                \
	do {                                                             \
		if (!(condition))                                        \
			FAIL("not true: %s", #condition);                \
	} while (0)

#define EXPECT_ERROR(expected, call)                                                         \
	do {                                                                                 \
		CUresult e_ = (expected), r_ = (call);                                       \
		if (e_ != r_)                                                                \
			FAIL("%s: expected %s, got %s", #call, error_name(e_), error_name(r_)); \
	} while (0)

#define OK(call) EXPECT_ERROR(CUDA_SUCCESS, call)

static inline const char *error_name(CUresult r)
{
	const char *name = NULL;

	cuGetErrorName(r, &name);
	return name ? name : "an unknown code";
}

/* A gate that a host function waits at: holds a stream without any timing. */
static inline void wait_at_gate(void *gate)
{
	sem_wait(gate);
}

struct test_case {
	const char *name;
	void (*run)(void);
};

static inline CUcontext new_context(void)
{
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	return ctx;
}

static inline CUmodule load_kernels(void)
{
	CUmodule module;

	OK(cuModuleLoad(&module, getenv("KERNELS")));
	return module;
}

static inline CUfunction find_kernel(CUmodule module, const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

/* Bytes of the device's memory that are free. */
static inline size_t available(void)
{
	size_t left, total;

	OK(cuMemGetInfo(&left, &total));
	return left;
}

static inline int run_case(const struct test_case *cases, int argc, char **argv)
{
	for (; cases->name && argc == 2; cases++) {
		if (!strcmp(cases->name, argv[1])) {
			cases->run();
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}

#endif
