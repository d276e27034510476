/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul: operands are turned and converted, multiplied, and finished by the epilogue. */
#include <stdlib.h>
#include <string.h>

#include "lt_exports.h"
#include "product.h"

struct matmul {
	struct work work;
	struct lt_problem problem;
	const void *alpha, *beta;
	const char *a, *b, *c;
	char *d;
	void *workspace;
	size_t workspace_bytes;
	_Alignas(16) unsigned char scalars[2][16];
};

static double complex read_scalar(const struct matmul *m, const void *place)
{
	return bl_load(place, m->problem.desc.scale, 0);
}

static bool reach(struct matmul *m)
{
	const struct lt_problem *p = &m->problem;
	int64_t scale = (int64_t)bl_size(p->desc.scale);

	if (p->desc.pointer_mode == BL_POINTER_DEVICE &&
	    (!bl_reach(&m->work, m->alpha, scale) || !bl_reach(&m->work, m->beta, scale)))
		return false;
	if (!lt_reach_matrix(&m->work, &p->a, m->a) || !lt_reach_matrix(&m->work, &p->b, m->b))
		return false;
	if (read_scalar(m, m->beta) != 0 && !lt_reach_matrix(&m->work, &p->c, m->c))
		return false;
	return lt_reach_matrix(&m->work, &p->d, m->d) && lt_reach_epilogue(&m->work, p) &&
	       bl_reach(&m->work, m->workspace, (int64_t)m->workspace_bytes);
}

/* op(X) of one batch, columns first, in the base type; to be freed. */
static void *turn(const char *data, const struct lt_layout *l, int op, int64_t batch, int base)
{
	int64_t rows = (int64_t)(op ? l->cols : l->rows), cols = (int64_t)(op ? l->rows : l->cols);
	void *out = malloc((size_t)(rows * cols + 1) * bl_size(base));

	for (int64_t j = 0; out && j < cols; j++) {
		for (int64_t i = 0; i < rows; i++) {
			double complex e = bl_load(data, l->type, op ? lt_place(l, batch, j, i) : lt_place(l, batch, i, j));

			bl_store(out, base, j * rows + i, op == BL_OP_C ? conj(e) : e);
		}
	}
	return out;
}

static void add_c(const struct matmul *m, struct lt_result_matrix *r)
{
	double complex beta = read_scalar(m, m->beta);
	const struct lt_layout *c = &m->problem.c;

	for (int64_t j = 0; beta != 0 && j < r->n; j++) {
		for (int64_t i = 0; i < r->m; i++) {
			int64_t at = j * r->m + i;

			bl_store(r->data, r->base, at,
				 bl_load(r->data, r->base, at) + beta * bl_load(m->c, c->type, lt_place(c, r->batch, i, j)));
		}
	}
}

static void store(const struct matmul *m, const struct lt_result_matrix *r)
{
	const struct lt_layout *d = &m->problem.d;

	for (int64_t j = 0; j < r->n; j++)
		for (int64_t i = 0; i < r->m; i++)
			bl_store(m->d, d->type, lt_place(d, r->batch, i, j), bl_load(r->data, r->base, j * r->m + i));
}

static void multiply(const struct matmul *m, struct lt_result_matrix *r, int64_t k)
{
	const struct lt_problem *p = &m->problem;
	void *a = turn(m->a, &p->a, p->desc.op_a, r->batch, r->base), *b = turn(m->b, &p->b, p->desc.op_b, r->batch, r->base);

	if (a && b && r->data &&
	    bl_product(&(struct product){ .m = r->m, .n = r->n, .k = k, .a = a, .b = b, .a_type = r->base, .b_type = r->base,
					  .c_type = r->base, .lda = r->m > 1 ? r->m : 1, .ldb = k > 1 ? k : 1,
					  .alpha = read_scalar(m, m->alpha), .c = r->data, .ldc = r->m > 1 ? r->m : 1 })) {
		lt_sum_operands(p, r->batch, a, b, r->base);
		add_c(m, r);
		lt_finish(r);
		store(m, r);
	}
	free(a);
	free(b);
}

static void run(struct work *work)
{
	struct matmul *m = (struct matmul *)work;
	const struct lt_problem *p = &m->problem;
	struct product types = { .a_type = p->a.type, .b_type = p->b.type, .c_type = p->d.type };
	struct lt_result_matrix r = { .problem = p, .m = (int64_t)p->d.rows, .n = (int64_t)p->d.cols };

	work->wild = false;
	if (!reach(m))
		return;
	r.base = bl_product_base(&types);
	r.data = malloc((size_t)(r.m * r.n + 1) * bl_size(r.base));
	for (r.batch = 0; r.batch < p->d.batch; r.batch++)
		multiply(m, &r, (int64_t)(p->desc.op_a ? p->a.rows : p->a.cols));
	free(r.data);
}

static void release(struct work *work)
{
	free(work);
}

static int check_workspace(const struct lt_algo *algo, const void *workspace, size_t bytes)
{
	int64_t needed = algo ? lt_algo_workspace(algo) : 0;

	if (needed < 0)
		return BL_INVALID_VALUE;
	return needed && (!workspace || (size_t)needed > bytes) ? BL_INVALID_VALUE : BL_SUCCESS;
}

static int post(void *handle, const struct matmul *filled, CUstream stream)
{
	struct bl_context *context;
	struct matmul *m;
	int status = bl_context_current(&context);
	size_t scale = bl_size(filled->problem.desc.scale);

	(void)handle;
	if (status != BL_SUCCESS)
		return status;
	if (!bl_typed_routine(BL_R_32F, "gemm_"))
		return BL_NOT_SUPPORTED;
	m = malloc(sizeof *m);
	if (!m)
		return BL_ALLOC_FAILED;
	*m = *filled;
	m->work = (struct work){ .run = run, .release = release, .context = context };
	if (m->problem.desc.pointer_mode == BL_POINTER_HOST) {
		m->alpha = memcpy(m->scalars[0], m->alpha, scale);
		m->beta = memcpy(m->scalars[1], m->beta, scale);
	}
	return bl_post(&m->work, stream, false);
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
		   const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const struct lt_algo *algo,
		   void *workspace, size_t workspace_bytes, CUstream stream)
{
	struct matmul m = { .alpha = alpha, .beta = beta, .a = a, .b = b, .c = c, .d = d, .workspace = workspace };
	int status;

	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!desc || !alpha || !beta || !a || !a_layout || !b || !b_layout || !c_layout || !d || !d_layout)
		return BL_INVALID_VALUE;
	m.workspace_bytes = workspace ? workspace_bytes : 0;
	memcpy(&m.problem.desc, desc, sizeof m.problem.desc);
	memcpy(&m.problem.a, a_layout, sizeof m.problem.a);
	memcpy(&m.problem.b, b_layout, sizeof m.problem.b);
	memcpy(&m.problem.c, c_layout, sizeof m.problem.c);
	memcpy(&m.problem.d, d_layout, sizeof m.problem.d);
	status = lt_check(&m.problem);
	if (status == BL_SUCCESS && m.problem.desc.pointer_mode == BL_POINTER_HOST && !c && read_scalar(&m, beta) != 0)
		status = BL_INVALID_VALUE;
	if (status == BL_SUCCESS)
		status = check_workspace(algo, workspace, workspace_bytes);
	return status == BL_SUCCESS ? post(handle, &m, stream) : status;
}
