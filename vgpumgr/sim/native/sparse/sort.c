/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of rows and columns: one form to another, and in order. */
#include <stdlib.h>

#include "sparse_sim.h"

/* areas: rows, columns, permutation; numbers: entries, rows, base */
enum { ROWS, COLS, ORDER };
enum { ENTRIES, LINES, BASE };

static int begin(void *handle, struct sp_job *job, void (*compute)(struct sp_job *), int entries, int lines, int base)
{
	int status = sp_begin(handle, job, compute, BL_R_32F, NULL, NULL);

	if (status != SPARSE_OK)
		return status;
	job->numbers[ENTRIES] = entries;
	job->numbers[LINES] = lines;
	job->numbers[BASE] = base;
	return entries < 0 || lines < 0 || base < 0 || base > 1 ? SPARSE_INVALID_VALUE : SPARSE_OK;
}

static bool reach(struct sp_job *job, int area, int64_t count)
{
	return bl_reach(&job->work, job->areas[area], count * (int64_t)sizeof(int));
}

static void count_rows(struct sp_job *job)
{
	int64_t nnz = job->numbers[ENTRIES], lines = job->numbers[LINES];
	const int *rows = job->areas[ROWS];
	int *offsets = job->areas[COLS], base = (int)job->numbers[BASE];
	int64_t at = 0;

	if (!reach(job, ROWS, nnz) || !reach(job, COLS, lines + 1))
		return;
	for (int64_t row = 0; row <= lines; row++) {
		while (at < nnz && rows[at] - base < row)
			at++;
		offsets[row] = (int)at + base;
	}
}

SP_API(cusparseXcoo2csr, void *handle, const int *rows, int nnz, int lines, int *offsets, int base)
{
	struct sp_job job;
	int status = begin(handle, &job, count_rows, nnz, lines, base);

	job.areas[ROWS] = (void *)rows;
	job.areas[COLS] = offsets;
	return status == SPARSE_OK ? sp_post(handle, &job, false) : status;
}

static void name_rows(struct sp_job *job)
{
	int64_t nnz = job->numbers[ENTRIES], lines = job->numbers[LINES], base = job->numbers[BASE];
	const int *offsets = job->areas[COLS];
	int *rows = job->areas[ROWS];

	if (!reach(job, ROWS, nnz) || !reach(job, COLS, lines + 1))
		return;
	for (int64_t row = 0; row < lines; row++)
		for (int64_t i = offsets[row] - base; i < offsets[row + 1] - base; i++)
			if (i >= 0 && i < nnz)
				rows[i] = (int)(row + base);
}

SP_API(cusparseXcsr2coo, void *handle, const int *offsets, int nnz, int lines, int *rows, int base)
{
	struct sp_job job;
	int status = begin(handle, &job, name_rows, nnz, lines, base);

	job.areas[ROWS] = rows;
	job.areas[COLS] = (void *)offsets;
	return status == SPARSE_OK ? sp_post(handle, &job, false) : status;
}

static void count_up(struct sp_job *job)
{
	int *order = job->areas[ORDER];

	if (reach(job, ORDER, job->numbers[ENTRIES]))
		for (int64_t i = 0; i < job->numbers[ENTRIES]; i++)
			order[i] = (int)i;
}

SP_API(cusparseCreateIdentityPermutation, void *handle, int n, int *order)
{
	struct sp_job job;
	int status = begin(handle, &job, count_up, n, 0, 0);

	job.areas[ORDER] = order;
	return status == SPARSE_OK ? sp_post(handle, &job, false) : status;
}

/* ---- in order */

struct line {
	int first, second, order;
	int64_t at;               /* equal ones stay as they were */
};

static int compare(const void *left, const void *right)
{
	const struct line *a = left, *b = right;

	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	if (a->second != b->second)
		return a->second < b->second ? -1 : 1;
	return a->at < b->at ? -1 : 1;
}

/* By the one list, and then by the other. */
static void sort(struct sp_job *job, int *first, int *second)
{
	int64_t nnz = job->numbers[ENTRIES];
	int *order = job->areas[ORDER];
	struct line *lines = sp_area(job, nnz, sizeof *lines);

	for (int64_t i = 0; lines && i < nnz; i++)
		lines[i] = (struct line){ first[i], second[i], order ? order[i] : 0, i };
	if (lines)
		qsort(lines, (size_t)nnz, sizeof *lines, compare);
	for (int64_t i = 0; lines && i < nnz; i++) {
		first[i] = lines[i].first;
		second[i] = lines[i].second;
		if (order)
			order[i] = lines[i].order;
	}
	free(lines);
}

static bool reach_lists(struct sp_job *job)
{
	int64_t nnz = job->numbers[ENTRIES];

	return reach(job, COLS, nnz) && (!job->areas[ORDER] || reach(job, ORDER, nnz));
}

static void sort_by_row(struct sp_job *job)
{
	if (reach(job, ROWS, job->numbers[ENTRIES]) && reach_lists(job))
		sort(job, job->areas[ROWS], job->areas[COLS]);
}

static void sort_by_column(struct sp_job *job)
{
	if (reach(job, ROWS, job->numbers[ENTRIES]) && reach_lists(job))
		sort(job, job->areas[COLS], job->areas[ROWS]);
}

/* Within each row. */
static void sort_rows(struct sp_job *job)
{
	int64_t nnz = job->numbers[ENTRIES], lines = job->numbers[LINES];
	const int *offsets = job->areas[ROWS];
	int *rows;

	if (!reach(job, ROWS, lines + 1) || !reach_lists(job))
		return;
	rows = sp_area(job, nnz, sizeof *rows);
	for (int64_t row = 0; rows && row < lines; row++)
		for (int64_t i = offsets[row] - job->numbers[BASE]; i < offsets[row + 1] - job->numbers[BASE]; i++)
			if (i >= 0 && i < nnz)
				rows[i] = (int)row;
	if (rows)
		sort(job, rows, job->areas[COLS]);
	free(rows);
}

static int post_sort(void *handle, void (*compute)(struct sp_job *), const int *numbers, const int *rows, int *cols, int *order,
		     void *buffer)
{
	struct sp_job job;
	int status = begin(handle, &job, compute, numbers[ENTRIES], numbers[LINES], numbers[BASE]);

	job.areas[ROWS] = (void *)rows;
	job.areas[COLS] = cols;
	job.areas[ORDER] = order;
	return status == SPARSE_OK ? sp_with_buffer(handle, &job, buffer) : status;
}

static int size_of(void *handle, int m, int n, int nnz, size_t *size)
{
	return sp_size(handle, m < 0 || n < 0 || nnz < 0 ? SPARSE_INVALID_VALUE : SPARSE_OK, size);
}

SP_API(cusparseXcoosort_bufferSizeExt, void *handle, int m, int n, int nnz, const int *rows, const int *cols, size_t *size)
{
	(void)rows, (void)cols;
	return size_of(handle, m, n, nnz, size);
}

SP_API(cusparseXcsrsort_bufferSizeExt, void *handle, int m, int n, int nnz, const int *offsets, const int *cols, size_t *size)
{
	(void)offsets, (void)cols;
	return size_of(handle, m, n, nnz, size);
}

SP_API(cusparseXcoosortByRow, void *handle, int m, int n, int nnz, int *rows, int *cols, int *order, void *buffer)
{
	return n < 0 ? SPARSE_INVALID_VALUE : post_sort(handle, sort_by_row, (int[]){ nnz, m, 0 }, rows, cols, order, buffer);
}

SP_API(cusparseXcoosortByColumn, void *handle, int m, int n, int nnz, int *rows, int *cols, int *order, void *buffer)
{
	return n < 0 ? SPARSE_INVALID_VALUE : post_sort(handle, sort_by_column, (int[]){ nnz, m, 0 }, rows, cols, order, buffer);
}

SP_API(cusparseXcsrsort, void *handle, int m, int n, int nnz, const void *descr, const int *offsets, int *cols, int *order, void *buffer)
{
	uint64_t word = sparse_settings(descr);

	if (sp_handle(handle) && (!word || n < 0))
		return SPARSE_INVALID_VALUE;
	return post_sort(handle, sort_rows, (int[]){ nnz, m, word >> SPARSE_DESCR_BASE & 1 }, offsets, cols, order, buffer);
}
