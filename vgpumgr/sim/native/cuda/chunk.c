/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of device memory: taken from a device's range, charged to the machine, cut into small allocations, lent to other processes.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chunk.h"

/* Our own storage is there again, empty. */
static void return_borrowed(struct chunk *c)
{
	mmap((void *)c->addr, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, c->dev->file,
	     (off_t)(c->addr - c->dev->file_base));
	close(c->line);
}

static void chunk_destroy(struct chunk *c)
{
	if (c->line >= 0)
		return_borrowed(c);
	else
		madvise((void *)c->addr, c->bytes, MADV_REMOVE);
	bits_release(&c->dev->va_used, (size_t)((c->addr - c->dev->va_base) / GRANULE), c->bytes / GRANULE);
	if (c->line < 0)
		client_uncharge(c->dev, c->bytes);
	bits_deinit(&c->units);
	for (struct parked *p; (p = c->parked);) {
		c->parked = p->next;
		free(p);
	}
	free(c);
}

static CUresult chunk_map(struct device *dev, struct chunk *c)
{
	size_t first = bits_take(&dev->va_used, c->bytes / GRANULE);

	if (first == SIZE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->addr = dev->va_base + (uint64_t)first * GRANULE;
	if (!mprotect((void *)c->addr, c->bytes, PROT_READ | PROT_WRITE))
		return CUDA_SUCCESS;
	bits_release(&dev->va_used, first, c->bytes / GRANULE);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult chunk_create(struct context *ctx, uint64_t bytes, bool shared, struct chunk **out)
{
	struct chunk *c = calloc(1, sizeof(*c));
	CUresult r;

	if (!c || (shared && bits_init(&c->units, GRANULE / SUBALLOC_UNIT))) {
		free(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->bytes = bytes;
	c->ctx = ctx;
	c->dev = ctx->dev;
	c->line = -1;
	r = client_charge(ctx->dev, bytes);
	if (r == CUDA_SUCCESS) {
		r = chunk_map(ctx->dev, c);
		if (r != CUDA_SUCCESS)
			client_uncharge(ctx->dev, bytes);
	}
	if (r != CUDA_SUCCESS) {
		bits_deinit(&c->units);
		free(c);
		return r;
	}
	c->next = ctx->chunks;
	ctx->chunks = c;
	*out = c;
	return CUDA_SUCCESS;
}

/* What is lent stays until it comes back. */
void chunk_drop(struct chunk *c)
{
	for (struct chunk **p = &c->ctx->chunks; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	c->ctx = NULL;
	if (c->lent) /* so the process stays a client of the device */
		client_attach(c->dev);
	else
		chunk_destroy(c);
}

static CUresult take_small(struct context *ctx, size_t units, struct allocation *a)
{
	size_t first = SIZE_MAX;
	CUresult r;

	for (struct chunk *c = ctx->chunks; c && first == SIZE_MAX; c = c->next) {
		first = c->units.n ? bits_take(&c->units, units) : SIZE_MAX;
		a->chunk = c;
	}
	if (first == SIZE_MAX) {
		r = chunk_create(ctx, GRANULE, true, &a->chunk);
		if (r != CUDA_SUCCESS)
			return r;
		first = bits_take(&a->chunk->units, units);
	}
	a->addr = a->chunk->addr + first * SUBALLOC_UNIT;
	return CUDA_SUCCESS;
}

CUresult chunk_take(struct context *ctx, struct allocation *a)
{
	CUresult r;

	if (a->size <= SUBALLOC_MAX)
		return take_small(ctx, (size_t)((a->size + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT), a);
	r = chunk_create(ctx, (a->size + GRANULE - 1) / GRANULE * GRANULE, false, &a->chunk);
	if (r == CUDA_SUCCESS)
		a->addr = a->chunk->addr;
	return r;
}

static void give_back_units(struct chunk *c, size_t first, size_t count)
{
	struct parked *p = c->lent ? malloc(sizeof(*p)) : NULL;

	if (p) {
		*p = (struct parked){ c->parked, first, count };
		c->parked = p;
		return;
	}
	bits_release(&c->units, first, count);
	if (bits_empty(&c->units))
		chunk_drop(c);
}

void chunk_give_back(const struct allocation *a)
{
	struct chunk *c = a->chunk;

	if (c->units.n)
		give_back_units(c, (size_t)((a->addr - c->addr) / SUBALLOC_UNIT),
				(size_t)((a->size + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT));
	else
		chunk_drop(c);
}

void chunk_take_back(struct chunk *c)
{
	if (--c->lent)
		return;
	if (!c->ctx) {
		struct device *dev = c->dev;

		chunk_destroy(c);
		client_detach(dev);
		return;
	}
	for (struct parked *p; (p = c->parked);) {
		c->parked = p->next;
		bits_release(&c->units, p->first, p->count);
		free(p);
	}
	if (c->units.n && bits_empty(&c->units))
		chunk_drop(c);
}

/* Its pages come from the lender, who is charged for them. */
CUresult chunk_borrow(struct chunk *c, const struct ipc_offer *offer, int file)
{
	size_t first = bits_take(&c->dev->va_used, offer->bytes / GRANULE);

	if (first == SIZE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->addr = c->dev->va_base + (uint64_t)first * GRANULE;
	if (mmap((void *)c->addr, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file,
		 (off_t)offer->file_offset) != MAP_FAILED)
		return CUDA_SUCCESS;
	bits_release(&c->dev->va_used, first, offer->bytes / GRANULE);
	return CUDA_ERROR_MAP_FAILED;
}
