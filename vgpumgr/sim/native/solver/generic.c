/* SPDX-License-Identifier: Apache-2.0 */
/* The 64-bit interface, whose types are arguments. A work area on the host is used within the call, as the genuine library's is. */
#include <string.h>

#include "solver.h"

/* What it takes on the host for a column. */
enum { HOST_BYTES = 16 };

struct areas {
	const void *device;
	size_t device_bytes;
	void *host;
	size_t host_bytes;
};

static int give_sizes(void *handle, bool right, int type, int64_t m, int64_t n, size_t *on_device, size_t *on_host)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	if (!right || !on_device || !on_host || !sv_is_size(m) || !sv_is_size(n) || !bl_size(type))
		return SV_INVALID_VALUE;
	*on_device = (size_t)sv_elements(m, n) * bl_size(type);
	*on_host = HOST_BYTES * (size_t)(n + 1);
	return SV_SUCCESS;
}

/* A status: the area on the host is there, and so are the parameters. */
static int use_host(void *handle, bool right, const struct areas *areas, int64_t n)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	if (!right || !areas->host || n < 0 || areas->host_bytes < HOST_BYTES * (size_t)(n + 1))
		return SV_INVALID_VALUE;
	memset(areas->host, 0, areas->host_bytes);
	return SV_SUCCESS;
}

static bool is_type(const void *params, int type, int compute)
{
	return sv_is_params(params) && type == compute;
}

SV_API(cusolverDnXpotrf_bufferSize, void *handle, void *params, int uplo, int64_t n, int type, const void *a, int64_t lda, int compute,
       size_t *on_device, size_t *on_host)
{
	(void)uplo, (void)a;
	return give_sizes(handle, is_type(params, type, compute) && !sv_short(lda, n), type, n, 0, on_device, on_host);
}

SV_API(cusolverDnXpotrf, void *handle, void *params, int uplo, int64_t n, int type, void *a, int64_t lda, int compute, void *device,
       size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	int status = use_host(handle, is_type(params, type, compute), &(struct areas){ device, device_bytes, host, host_bytes }, 0);

	return status == SV_SUCCESS ? sv_potrf(handle, type, uplo, n, a, lda, device, (int64_t)device_bytes, info) : status;
}

SV_API(cusolverDnXpotrs, void *handle, void *params, int uplo, int64_t n, int64_t nrhs, int type, const void *a, int64_t lda, int b_type,
       void *b, int64_t ldb, int *info)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	return is_type(params, type, b_type) ? sv_potrs(handle, type, uplo, n, nrhs, a, lda, b, ldb, info) : SV_INVALID_VALUE;
}

SV_API(cusolverDnXgetrf_bufferSize, void *handle, void *params, int64_t m, int64_t n, int type, const void *a, int64_t lda, int compute,
       size_t *on_device, size_t *on_host)
{
	(void)a;
	return give_sizes(handle, is_type(params, type, compute) && !sv_short(lda, m), type, m, n, on_device, on_host);
}

SV_API(cusolverDnXgetrf, void *handle, void *params, int64_t m, int64_t n, int type, void *a, int64_t lda, int64_t *pivots, int compute,
       void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	int status = use_host(handle, is_type(params, type, compute), &(struct areas){ device, device_bytes, host, host_bytes }, n);

	return status == SV_SUCCESS ? sv_getrf(handle, type, m, n, a, lda, device, (int64_t)device_bytes, pivots, true, info) : status;
}

SV_API(cusolverDnXgetrs, void *handle, void *params, int trans, int64_t n, int64_t nrhs, int type, const void *a, int64_t lda,
       const int64_t *pivots, int b_type, void *b, int64_t ldb, int *info)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	if (!is_type(params, type, b_type))
		return SV_INVALID_VALUE;
	return sv_getrs(handle, type, trans, n, nrhs, a, lda, pivots, true, b, ldb, info);
}

SV_API(cusolverDnXgeqrf_bufferSize, void *handle, void *params, int64_t m, int64_t n, int type, const void *a, int64_t lda, int tau_type,
       const void *tau, int compute, size_t *on_device, size_t *on_host)
{
	(void)a, (void)tau;
	return give_sizes(handle, is_type(params, type, compute) && tau_type == type && !sv_short(lda, m), type, m, n, on_device, on_host);
}

SV_API(cusolverDnXgeqrf, void *handle, void *params, int64_t m, int64_t n, int type, void *a, int64_t lda, int tau_type, void *tau,
       int compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	int status = use_host(handle, is_type(params, type, compute) && tau_type == type,
			      &(struct areas){ device, device_bytes, host, host_bytes }, n);

	return status == SV_SUCCESS ? sv_geqrf(handle, type, m, n, a, lda, tau, device, (int64_t)device_bytes, info) : status;
}

SV_API(cusolverDnXsytrs_bufferSize, void *handle, int uplo, int64_t n, int64_t nrhs, int type, const void *a, int64_t lda,
       const int64_t *pivots, int b_type, void *b, int64_t ldb, size_t *on_device, size_t *on_host)
{
	(void)uplo, (void)a, (void)pivots, (void)b, (void)ldb;
	return give_sizes(handle, b_type == type && !sv_short(lda, n), type, n, nrhs, on_device, on_host);
}

SV_API(cusolverDnXsytrs, void *handle, int uplo, int64_t n, int64_t nrhs, int type, const void *a, int64_t lda, const int64_t *pivots,
       int b_type, void *b, int64_t ldb, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	int status = use_host(handle, b_type == type, &(struct areas){ device, device_bytes, host, host_bytes }, nrhs);

	return status == SV_SUCCESS ? sv_sytrs(handle, type, uplo, n, nrhs, a, lda, pivots, b, ldb, info) : status;
}

SV_API(cusolverDnXsyevBatched_bufferSize, void *handle, void *params, int vectors, int uplo, int64_t n, int type, const void *a, int64_t lda,
       int w_type, const void *w, int compute, size_t *on_device, size_t *on_host, int64_t batch)
{
	bool right = is_type(params, type, compute) && w_type == sv_real(type) && sv_is_size(batch) && !sv_short(lda, n);

	(void)vectors, (void)uplo, (void)a, (void)w;
	return give_sizes(handle, right, type, n, 0, on_device, on_host);
}

SV_API(cusolverDnXsyevBatched, void *handle, void *params, int vectors, int uplo, int64_t n, int type, void *a, int64_t lda, int w_type,
       void *w, int compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info, int64_t batch)
{
	int status = use_host(handle, is_type(params, type, compute) && w_type == sv_real(type),
			      &(struct areas){ device, device_bytes, host, host_bytes }, 0);

	if (status != SV_SUCCESS)
		return status;
	return sv_syevd(handle, type, vectors, uplo, n, a, lda, w, device, (int64_t)device_bytes, info, NULL, batch);
}

SV_API(cusolverDnXsyevd_bufferSize, void *handle, void *params, int vectors, int uplo, int64_t n, int type, const void *a, int64_t lda,
       int w_type, const void *w, int compute, size_t *on_device, size_t *on_host)
{
	return cusolverDnXsyevBatched_bufferSize(handle, params, vectors, uplo, n, type, a, lda, w_type, w, compute, on_device, on_host, 1);
}

SV_API(cusolverDnXsyevd, void *handle, void *params, int vectors, int uplo, int64_t n, int type, void *a, int64_t lda, int w_type, void *w,
       int compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	return cusolverDnXsyevBatched(handle, params, vectors, uplo, n, type, a, lda, w_type, w, compute, device, device_bytes, host,
				      host_bytes, info, 1);
}

SV_API(cusolverDnXgesvd_bufferSize, void *handle, void *params, signed char jobu, signed char jobvt, int64_t m, int64_t n, int type,
       const void *a, int64_t lda, int s_type, const void *s, int u_type, const void *u, int64_t ldu, int vt_type, const void *vt,
       int64_t ldvt, int compute, size_t *on_device, size_t *on_host)
{
	bool right = is_type(params, type, compute) && s_type == sv_real(type) && u_type == type && vt_type == type && m >= n;

	(void)jobu, (void)jobvt, (void)a, (void)s, (void)u, (void)ldu, (void)vt, (void)ldvt;
	return give_sizes(handle, right && !sv_short(lda, m), type, m, n, on_device, on_host);
}

SV_API(cusolverDnXgesvd, void *handle, void *params, signed char jobu, signed char jobvt, int64_t m, int64_t n, int type, void *a,
       int64_t lda, int s_type, void *s, int u_type, void *u, int64_t ldu, int vt_type, void *vt, int64_t ldvt, int compute, void *device,
       size_t device_bytes, void *host, size_t host_bytes, int *info)
{
	bool right = is_type(params, type, compute) && s_type == sv_real(type) && u_type == type && vt_type == type;
	int status = use_host(handle, right, &(struct areas){ device, device_bytes, host, host_bytes }, n);

	if (status != SV_SUCCESS)
		return status;
	return sv_gesvd(handle, type, jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt, device, (int64_t)device_bytes, info);
}

SV_API(cusolverDnXgeev_bufferSize, void *handle, void *params, int left, int right, int64_t n, int type, const void *a, int64_t lda,
       int w_type, const void *w, int vl_type, const void *vl, int64_t ldvl, int vr_type, const void *vr, int64_t ldvr, int compute,
       size_t *on_device, size_t *on_host)
{
	(void)left, (void)right, (void)a, (void)w_type, (void)w, (void)vl, (void)ldvl, (void)vr, (void)ldvr;
	return give_sizes(handle, is_type(params, type, compute) && vl_type == type && vr_type == type && !sv_short(lda, n), type, n, 0,
			  on_device, on_host);
}

SV_API(cusolverDnXgeev, void *handle, void *params, int left, int right, int64_t n, int type, void *a, int64_t lda, int w_type, void *w,
       int vl_type, void *vl, int64_t ldvl, int vr_type, void *vr, int64_t ldvr, int compute, void *device, size_t device_bytes, void *host,
       size_t host_bytes, int *info)
{
	int status = use_host(handle, is_type(params, type, compute) && vl_type == type && vr_type == type,
			      &(struct areas){ device, device_bytes, host, host_bytes }, 0);

	if (status != SV_SUCCESS)
		return status;
	return sv_geev(handle, type, left, right, n, a, lda, w_type, w, vl, ldvl, vr, ldvr, device, (int64_t)device_bytes, info);
}

/* ---- a triangle's inverse, which has no computing type and no parameters */

static bool is_triangle(int type, int64_t n, int64_t lda)
{
	return (type == BL_R_32F || type == BL_R_64F || type == BL_C_32F || type == BL_C_64F) && sv_is_size(n) && !sv_short(lda, n);
}

SV_API(cusolverDnXtrtri_bufferSize, void *handle, int uplo, int diag, int64_t n, int type, void *a, int64_t lda, size_t *on_device,
       size_t *on_host)
{
	(void)uplo, (void)diag, (void)a;
	return give_sizes(handle, is_triangle(type, n, lda), type, n, 0, on_device, on_host);
}

SV_API(cusolverDnXtrtri, void *handle, int uplo, int diag, int64_t n, int type, void *a, int64_t lda, void *device, size_t device_bytes,
       void *host, size_t host_bytes, int *info)
{
	int status = use_host(handle, is_triangle(type, n, lda), &(struct areas){ device, device_bytes, host, host_bytes }, 0);

	return status == SV_SUCCESS ? sv_trtri(handle, type, uplo, diag, n, a, lda, device, (int64_t)device_bytes, info) : status;
}
