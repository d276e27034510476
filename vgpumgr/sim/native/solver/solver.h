/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuSOLVER, inside. A function of each type, and one of the 64-bit interface with its types, call the same function
 * here, which checks what they are called with and posts a job on the handle's stream. Jobs are done by LAPACK.
 */
#ifndef VGPUMGR_SIM_SOLVER_H
#define VGPUMGR_SIM_SOLVER_H

#include "blas.h"

/* An exported function, with its prototype. */
#define SV_API(name, ...)                 \
	BL_EXPORT int name(__VA_ARGS__);  \
	int name(__VA_ARGS__)

/* Functions of each type, by the letter and the words in their names. */
#define SV_EACH(functions)                 \
	functions(S, BL_R_32F, sy, or)     \
	functions(D, BL_R_64F, sy, or)     \
	functions(C, BL_C_32F, he, un)     \
	functions(Z, BL_C_64F, he, un)

/* cusolverStatus_t */
enum {
	SV_SUCCESS = 0,
	SV_NOT_INITIALIZED = 1,
	SV_ALLOC_FAILED = 2,
	SV_INVALID_VALUE = 3,
	SV_EXECUTION_FAILED = 6,
	SV_NOT_SUPPORTED = 9,
};

enum { SV_SPANS = 10, SV_BATCHED = 32 };

struct sv_handle {
	uint32_t magic;
	CUstream stream;
	int mode; /* cusolverDeterministicMode_t: nothing is another by it */
};

/* syevjInfo_t, gesvdjInfo_t: a Jacobi method. What it converges to is found another way, in one sweep. */
struct sv_object {
	uint32_t magic;
	double tolerance, residual;
	int sweeps, sort, done;
};

struct job {
	struct work work;
	void (*compute)(struct job *job);
	void *routine;
	int type;
	char uplo, trans, side, letter, left, right; /* left, right: which vectors, as LAPACK says it */
	bool econ, wide;                      /* wide: pivots have 64 bits */
	int m, n, k, nrhs, lda, ldb, ldu, ldv, batch;
	int w_type;                           /* of eigenvalues */
	void *a, *b, *w, *u, *v, *pivots;     /* w: what goes with the matrix: tau, eigenvalues, singular values */
	int *info;
	struct {
		const void *address;
		int64_t bytes;
	} spans[SV_SPANS];
	int count;
};

/* ---- handle.c */
struct sv_handle *sv_handle(void *handle);
/* The same status of the parts that are cuBLAS's. */
int sv_status(int of_blas);

/* ---- job.c */
/* Of a type, with a routine of LAPACK's. A status. */
int sv_begin(void *handle, int type, const char *routine, struct job *job);
/* Memory that the job reaches. */
void sv_span(struct job *job, const void *address, int64_t bytes);
void sv_matrix(struct job *job, const void *address, int64_t rows, int64_t cols, int64_t ld);
/* The same of a square matrix of which one half counts. */
int sv_begin_square(void *handle, int type, const char *routine, int uplo, int64_t n, const void *a, int64_t lda, struct job *job);
/* An area of the caller's of at least that many elements. A status. */
int sv_add_area(struct job *job, const void *area, int64_t bytes, int64_t elements);
int sv_post(void *handle, const struct job *job);
/* Work areas of LAPACK's; NULL: there is no memory, and info says so. */
void *sv_area(struct job *job, int64_t bytes);
/* One of `count` elements, or of as many as LAPACK counts; info is 0. */
void *sv_work(struct job *job, int64_t count, int *elements);
static inline bool sv_short(int64_t ld, int64_t rows)
{
	return ld < (rows > 1 ? rows : 1) || ld > INT32_MAX;
}
static inline bool sv_is_size(int64_t n)
{
	return n >= 0 && n <= INT32_MAX;
}
static inline int64_t sv_least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}
/* The real type of a type. */
static inline int sv_real(int type)
{
	return type == BL_C_32F ? BL_R_32F : type == BL_C_64F ? BL_R_64F : type;
}
/* Elements of a work area, for all: the blocks of as many columns as LAPACK likes. */
enum { SV_BLOCK = 32 };
static inline int64_t sv_elements(int64_t m, int64_t n)
{
	return SV_BLOCK * (m + n + 1);
}
/* For reflectors that are applied to a matrix: LAPACK's blocks, and their triangular factors. */
static inline int64_t sv_both_sides(int64_t m, int64_t n)
{
	return sv_elements(2 * m, 2 * n) + 65 * 64;
}
/* The most of any kind that LAPACK takes for eigenvectors of a symmetric matrix. */
static inline int64_t sv_most_elements(int64_t n)
{
	return 2 * n * n + 6 * n + 64;
}

/* ---- factors.c */
int sv_potrf(void *handle, int type, int uplo, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info);
int sv_potri(void *handle, int type, int uplo, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info);
int sv_potrs(void *handle, int type, int uplo, int64_t n, int64_t nrhs, const void *a, int64_t lda, void *b, int64_t ldb, int *info);
int sv_potrf_batched(void *handle, int type, int uplo, int n, void *a, int lda, int *info, int batch);
int sv_potrs_batched(void *handle, int type, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb, int *info, int batch);
int sv_getrf(void *handle, int type, int64_t m, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, void *pivots,
	     bool wide, int *info);
int sv_getrs(void *handle, int type, int trans, int64_t n, int64_t nrhs, const void *a, int64_t lda, const void *pivots, bool wide,
	     void *b, int64_t ldb, int *info);
int sv_geqrf(void *handle, int type, int64_t m, int64_t n, void *a, int64_t lda, void *tau, const void *area, int64_t bytes, int *info);
int sv_orgqr(void *handle, int type, int m, int n, int k, void *a, int lda, const void *tau, const void *area, int64_t bytes, int *info);
int sv_ormqr(void *handle, int type, int side, int trans, int m, int n, int k, const void *a, int lda, const void *tau, void *c, int ldc,
	     const void *area, int64_t bytes, int *info);
int sv_sytrf(void *handle, int type, int uplo, int n, void *a, int lda, int *pivots, const void *area, int64_t bytes, int *info);
int sv_sytrs(void *handle, int type, int uplo, int64_t n, int64_t nrhs, const void *a, int64_t lda, const void *pivots, void *b, int64_t ldb,
	     int *info);

/* ---- eigen.c */
int sv_syevd(void *handle, int type, int vectors, int uplo, int64_t n, void *a, int64_t lda, void *w, const void *area, int64_t bytes,
	     int *info, struct sv_object *object, int64_t batch);
int sv_geev(void *handle, int type, int left, int right, int64_t n, void *a, int64_t lda, int w_type, void *w, void *vl, int64_t ldvl,
	    void *vr, int64_t ldvr, const void *area, int64_t bytes, int *info);

/* ---- singular.c */
int sv_gesvd(void *handle, int type, int jobu, int jobvt, int64_t m, int64_t n, void *a, int64_t lda, void *s, void *u, int64_t ldu, void *vt,
	     int64_t ldvt, const void *area, int64_t bytes, int *info);
int sv_gesvdj(void *handle, int type, int vectors, int econ, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv,
	      const void *area, int64_t bytes, int *info, struct sv_object *object, int batch, bool batched);

/* ---- typed.c */
/* The size of a work area in elements, where the shapes are right. */
int sv_give_size(void *handle, bool right, int64_t elements, int *lwork);

/* ---- reductions.c */
int sv_sygvd(void *handle, int type, int problem, int vectors, int uplo, int n, void *a, int lda, void *b, int ldb, void *w,
	     const void *area, int64_t bytes, int *info, struct sv_object *object);
int sv_gebrd(void *handle, int type, int m, int n, void *a, int lda, void *d, void *e, void *tauq, void *taup, const void *area,
	     int64_t bytes, int *info);
int sv_orgbr(void *handle, int type, int side, int m, int n, int k, void *a, int lda, const void *tau, const void *area, int64_t bytes,
	     int *info);
int sv_sytrd(void *handle, int type, int uplo, int n, void *a, int lda, void *d, void *e, void *tau, const void *area, int64_t bytes,
	     int *info);
int sv_orgtr(void *handle, int type, int uplo, int n, void *a, int lda, const void *tau, const void *area, int64_t bytes, int *info);
int sv_ormtr(void *handle, int type, int side, int uplo, int trans, int m, int n, void *a, int lda, const void *tau, void *c, int ldc,
	     const void *area, int64_t bytes, int *info);
int sv_sytri(void *handle, int type, int uplo, int n, void *a, int lda, const int *pivots, const void *area, int64_t bytes, int *info);
int sv_lauum(void *handle, int type, int uplo, int n, void *a, int lda, const void *area, int64_t bytes, int *info);
int sv_trtri(void *handle, int type, int uplo, int diag, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info);
int sv_laswp(void *handle, int type, int n, void *a, int lda, int first, int last, const int *pivots, int step);

/* ---- objects.c */
enum { SV_SYEVJ = 0x53765379, SV_GESVDJ = 0x53764765, SV_PARAMS = 0x53765061 };
struct sv_object *sv_object(void *object, uint32_t magic);
/* A call was made with it: LAPACK needs one sweep, and leaves no more than was asked for. */
void sv_use_object(struct sv_object *object);
bool sv_is_params(const void *params);

#endif
