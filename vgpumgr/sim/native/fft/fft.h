/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuFFT, inside. It stands on the simulated cuBLAS's way to device memory and streams (../blas/blas.h): an
 * execution checks its arguments, copies what is to be transformed into a piece of work and posts that. All is computed in double
 * precision.
 */
#ifndef VGPUMGR_SIM_FFT_H
#define VGPUMGR_SIM_FFT_H

#include "blas.h"
#include "exports.h"

/* cufftResult */
enum { FT_SUCCESS = 0, FT_INVALID_PLAN = 1, FT_ALLOC_FAILED = 2, FT_INVALID_TYPE = 3, FT_INVALID_VALUE = 4, FT_INTERNAL_ERROR = 5,
       FT_EXEC_FAILED = 6, FT_SETUP_FAILED = 7, FT_INVALID_SIZE = 8, FT_NO_WORKSPACE = 13 };

/* cufftType */
enum { FT_C2C = 0x29, FT_R2C = 0x2a, FT_C2R = 0x2c, FT_Z2Z = 0x69, FT_D2Z = 0x6a, FT_Z2D = 0x6c };

enum { FT_RANK = 3, FT_FORWARD = -1, FT_INVERSE = 1, FT_PROPERTIES = 4 };

/* Where elements are. */
struct ft_side {
	int type; /* cudaDataType */
	int64_t sizes[FT_RANK]; /* of a half of a transform that has real numbers on its other side: n / 2 + 1 at last */
	int64_t embed[FT_RANK], stride, distance;
};

/* What is transformed; dimensions that there are not are 1, before the others. */
struct ft_shape {
	int rank;
	int64_t n[FT_RANK], batch;
	bool packed; /* as the library assumes it without sizes of what it is embedded in */
	struct ft_side in, out;
};

/* ---- shape.c */
struct ft_request {
	int rank, in_type, out_type;
	int64_t n[FT_RANK], batch;
	bool in_given, out_given;
	struct ft_side in, out;
};
int ft_shape_make(const struct ft_request *request, struct ft_shape *shape);
/* cudaDataTypes of a cufftType; false: there is none. */
bool ft_types(int type, struct ft_request *request);
size_t ft_shape_area(const struct ft_shape *shape);
/* For an execution: where elements are, which in place may be another. */
void ft_shape_place(struct ft_shape *shape, bool in_place);
int64_t ft_side_index(const struct ft_side *side, int64_t batch, int64_t x, int64_t y, int64_t z);
int64_t ft_side_bytes(const struct ft_side *side, int64_t batch);
/* The cufftType; 0: of halves there is none. */
int ft_shape_type(const struct ft_shape *shape);

/* ---- transform.c */
/* All batches, each n[0] * n[1] * n[2] numbers in order. Of a transform to real numbers only the first half of each row counts. */
int ft_transform(const struct ft_shape *shape, int direction, double complex *data);

/* ---- plan.c */
struct ft_plan {
	bool made, allocates;
	struct ft_shape shape;
	size_t bytes;
	CUstream stream;
	CUdeviceptr area, own;
	int64_t properties[FT_PROPERTIES];
};
/* NULL: there is none. */
struct ft_plan *ft_plan_find(int number);
int ft_plan_new(int *number);
int ft_plan_end(int number);
void ft_plan_release(struct ft_plan *plan);
/* A status of the part that is shared with the simulated cuBLAS. */
int ft_status(int blas_status);

#endif
