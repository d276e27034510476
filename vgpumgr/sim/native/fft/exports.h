/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the simulated cuFFT; a cudaStream_t and values of enumerations are what they are to a caller. */
#ifndef VGPUMGR_SIM_FFT_EXPORTS_H
#define VGPUMGR_SIM_FFT_EXPORTS_H

#include <stddef.h>
#include <stdint.h>

#define FT_EXPORT __attribute__((visibility("default")))

FT_EXPORT int cufftCreate(int *plan);
FT_EXPORT int cufftDestroy(int plan);
FT_EXPORT int cufftSetStream(int plan, void *stream);
FT_EXPORT int cufftSetWorkArea(int plan, void *area);
FT_EXPORT int cufftSetAutoAllocation(int plan, int allocate);
FT_EXPORT int cufftGetSize(int plan, size_t *bytes);
FT_EXPORT int cufftSetPlanPropertyInt64(int plan, int property, int64_t value);
FT_EXPORT int cufftGetPlanPropertyInt64(int plan, int property, int64_t *value);
FT_EXPORT int cufftResetPlanProperty(int plan, int property);
FT_EXPORT int cufftGetVersion(int *version);
FT_EXPORT int cufftGetProperty(int type, int *value);

FT_EXPORT int cufftPlan1d(int *plan, int nx, int type, int batch);
FT_EXPORT int cufftPlan2d(int *plan, int nx, int ny, int type);
FT_EXPORT int cufftPlan3d(int *plan, int nx, int ny, int nz, int type);
FT_EXPORT int cufftPlanMany(int *plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,
			  int out_distance, int type, int batch);

/* Functions that make a plan, and those that tell the size of one. */
#define FT_DESCRIBED(verb)                                                                                                      \
	FT_EXPORT int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes);                                       \
	FT_EXPORT int cufft##verb##2d(int plan, int nx, int ny, int type, size_t *bytes);                                          \
	FT_EXPORT int cufft##verb##3d(int plan, int nx, int ny, int nz, int type, size_t *bytes);                                  \
	FT_EXPORT int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out,             \
				      int out_stride, int out_distance, int type, int batch, size_t *bytes);                     \
	FT_EXPORT int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,     \
					int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch,         \
					size_t *bytes);                                                                          \
	FT_EXPORT int cufftXt##verb##Many(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,     \
					int in_type, int64_t *out, int64_t out_stride, int64_t out_distance, int out_type,       \
					int64_t batch, size_t *bytes, int execution_type);
FT_DESCRIBED(MakePlan)
FT_DESCRIBED(GetSize)

FT_EXPORT int cufftEstimate1d(int nx, int type, int batch, size_t *bytes);
FT_EXPORT int cufftEstimate2d(int nx, int ny, int type, size_t *bytes);
FT_EXPORT int cufftEstimate3d(int nx, int ny, int nz, int type, size_t *bytes);
FT_EXPORT int cufftEstimateMany(int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance,
			      int type, int batch, size_t *bytes);

FT_EXPORT int cufftXtExec(int plan, void *in, void *out, int direction);
FT_EXPORT int cufftExecC2C(int plan, void *in, void *out, int direction);
FT_EXPORT int cufftExecZ2Z(int plan, void *in, void *out, int direction);
FT_EXPORT int cufftExecR2C(int plan, void *in, void *out);
FT_EXPORT int cufftExecC2R(int plan, void *in, void *out);
FT_EXPORT int cufftExecD2Z(int plan, void *in, void *out);
FT_EXPORT int cufftExecZ2D(int plan, void *in, void *out);

#endif
