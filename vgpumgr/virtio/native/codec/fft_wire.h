/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of cuFFT travels (docs/wire-format.md, "Mathematics libraries"). What is transformed is described by value, with each
 * question and with the plan that is made of it. Which stream a plan is executed in and which work area it has travel with each
 * execution.
 */
#ifndef VG_FFT_WIRE_H
#define VG_FFT_WIRE_H

#include <stdint.h>

enum {
	/* to math_make, a shape: a plan, which is kept. Gives back the bytes of its work area */
	FFT_PLAN = 1,
	/* a shape. Gives back the bytes of a work area: as the library says of a plan, and as it estimates without one */
	FFT_SIZE, FFT_ESTIMATE,
	/* to a plan: an execution */
	FFT_EXECUTE,
	FFT_FUNCTIONS,
};

/* By which of the library's functions a plan is made: their checks differ. */
enum fft_way { FFT_1D = 1, FFT_2D, FFT_3D, FFT_MANY, FFT_MANY_64, FFT_XT, FFT_WAYS };

/* By which one it is executed. */
enum fft_execution { FFT_XT_EXEC, FFT_C2C, FFT_R2C, FFT_C2R, FFT_Z2Z, FFT_D2Z, FFT_Z2D, FFT_EXECUTIONS };

/* FFT_PROPERTIES: numbers from 1 on, as cufftProperty. */
enum { FFT_RANK = 3, FFT_PROPERTIES = 4 };

struct fft_layout {
	uint64_t given;           /* 0: a null pointer, and the sizes are no sizes */
	int64_t embed[FFT_RANK], stride, distance;
	uint64_t type;            /* cudaDataType, of FFT_XT */
};

struct fft_shape {
	uint64_t way, rank;
	int64_t n[FFT_RANK], batch;
	uint64_t type;            /* cufftType; of FFT_XT the cudaDataType of the execution */
	struct fft_layout in, out;
	uint64_t set;             /* of properties: a bit for each that is set */
	int64_t properties[FFT_PROPERTIES];
};

struct fft_execute {
	uint64_t execution;
	int64_t direction;
	uint64_t in, out, area;   /* addresses; area: 0 if none was set */
};

_Static_assert(sizeof(struct fft_shape) == 26 * sizeof(uint64_t), "words only");
_Static_assert(sizeof(struct fft_execute) == 5 * sizeof(uint64_t), "words only");

/* cufftResult */
enum { FFT_OK = 0, FFT_INVALID_PLAN = 1, FFT_ALLOC_FAILED = 2, FFT_INVALID_TYPE = 3, FFT_INVALID_VALUE = 4, FFT_INTERNAL_ERROR = 5,
       FFT_EXEC_FAILED = 6, FFT_SETUP_FAILED = 7, FFT_INVALID_SIZE = 8, FFT_NO_WORKSPACE = 13, FFT_NOT_SUPPORTED = 16 };

#endif
