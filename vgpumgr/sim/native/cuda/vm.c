/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory and the table of allocations.
 *
 * Each device has a range of the process's address space, reserved once and given storage as pages are touched, so a
 * device address is also the host address of its bytes, and no other mapping can take it. The range is twice the
 * memory, which leaves room for fragmentation. Pieces of 2 MiB are charged to the machine and belong to one context; small
 * allocations share such pieces. Freed pieces go back to the kernel but stay accessible: a kernel that still uses them
 * reads zeros and cannot crash the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_sim.h"

/* Far from where the kernel and malloc put things; only a wish, another free address serves as well. */
static const uint64_t wished_base = UINT64_C(0x300000000000);

/* Sorted by address. Readers are kernels, so a lock that they share. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct allocation *items;
static size_t n_items, size_items;

static void unlock_scope(int *unused)
{
	(void)unused;
	pthread_rwlock_unlock(&lock);
}
#define READING() CLEANUP(unlock_scope) int reading_ = pthread_rwlock_rdlock(&lock); (void)reading_
#define WRITING() CLEANUP(unlock_scope) int writing_ = pthread_rwlock_wrlock(&lock); (void)writing_

/* Index of the first allocation that starts after addr. */
static size_t upper(uint64_t addr)
{
	size_t low = 0, high = n_items;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (items[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct allocation *find(uint64_t addr)
{
	size_t i = upper(addr);

	return i && addr - items[i - 1].addr < items[i - 1].size ? &items[i - 1] : NULL;
}

static int insert(const struct allocation *a)
{
	size_t i = upper(a->addr);

	if (n_items == size_items) {
		size_t size = size_items ? size_items * 2 : 256;
		struct allocation *grown = realloc(items, size * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		items = grown;
		size_items = size;
	}
	memmove(&items[i + 1], &items[i], (n_items - i) * sizeof(*items));
	items[i] = *a;
	n_items++;
	return 0;
}

static void erase(struct allocation *a)
{
	size_t i = (size_t)(a - items);

	memmove(a, a + 1, (--n_items - i) * sizeof(*items));
}

CUresult vm_reserve(struct device *dev)
{
	size_t n = (size_t)(dev->total_bytes / GRANULE * 2);
	uint64_t wish = wished_base;
	void *p;

	if (dev->va_base)
		return CUDA_SUCCESS;
	for (int i = 0; i < dev->ordinal; i++)
		wish += (uint64_t)drv.devices[i].va_used.n * GRANULE + GRANULE;
	p = mmap((void *)wish, (n + 1) * (size_t)GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (bits_init(&dev->va_used, n)) {
		munmap(p, (n + 1) * (size_t)GRANULE);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	dev->va_base = ((uint64_t)p + GRANULE - 1) / GRANULE * GRANULE;
	return CUDA_SUCCESS;
}

bool vm_is_device_range(uint64_t addr)
{
	for (int i = 0; i < drv.n_devices; i++) {
		const struct device *d = &drv.devices[i];

		if (d->va_base && addr - d->va_base < (uint64_t)d->va_used.n * GRANULE)
			return true;
	}
	return false;
}

static void chunk_destroy(struct device *dev, struct chunk *c)
{
	madvise((void *)c->addr, c->bytes, MADV_DONTNEED);
	bits_release(&dev->va_used, (size_t)((c->addr - dev->va_base) / GRANULE), c->bytes / GRANULE);
	client_uncharge(dev, c->bytes);
	bits_deinit(&c->units);
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

static void chunk_drop(struct context *ctx, struct chunk *c)
{
	for (struct chunk **p = &ctx->chunks; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	chunk_destroy(ctx->dev, c);
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

static CUresult take(struct context *ctx, struct allocation *a)
{
	CUresult r;

	if (a->size <= SUBALLOC_MAX)
		return take_small(ctx, (size_t)((a->size + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT), a);
	r = chunk_create(ctx, (a->size + GRANULE - 1) / GRANULE * GRANULE, false, &a->chunk);
	if (r == CUDA_SUCCESS)
		a->addr = a->chunk->addr;
	return r;
}

static void give_back(const struct allocation *a)
{
	struct chunk *c = a->chunk;

	if (!c->units.n) {
		chunk_drop(a->ctx, c);
		return;
	}
	bits_release(&c->units, (size_t)((a->addr - c->addr) / SUBALLOC_UNIT),
		     (size_t)((a->size + SUBALLOC_UNIT - 1) / SUBALLOC_UNIT));
	if (bits_empty(&c->units))
		chunk_drop(a->ctx, c);
}

CUresult vm_alloc(struct context *ctx, uint64_t size, bool of_module, uint64_t *addr)
{
	struct allocation a = { .size = size, .kind = ALLOCATION_DEVICE, .ctx = ctx, .ctx_id = ctx->id, .of_module = of_module };
	CUresult r;

	if (size > ctx->dev->total_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	WRITING();
	if (ctx->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = take(ctx, &a);
	if (r != CUDA_SUCCESS)
		return r;
	a.id = next_id();
	if (insert(&a)) {
		give_back(&a);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*addr = a.addr;
	return CUDA_SUCCESS;
}

CUresult vm_add_host(struct context *ctx, enum allocation_kind kind, uint64_t addr, uint64_t size, unsigned flags)
{
	struct allocation a = { .addr = addr, .size = size, .kind = kind, .ctx = ctx, .flags = flags };
	size_t i;

	WRITING();
	i = upper(addr + size - 1);
	if (i && items[i - 1].addr + items[i - 1].size > addr)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	a.id = next_id();
	return insert(&a) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void free_memory(const struct allocation *a)
{
	if (a->kind == ALLOCATION_DEVICE)
		give_back(a);
	else if (a->kind == ALLOCATION_HOST)
		munmap((void *)a->addr, a->size);
}

CUresult vm_remove(uint64_t addr, bool (*may)(const struct allocation *), struct allocation *out)
{
	struct allocation *a;

	WRITING();
	a = find(addr);
	if (!a || a->addr != addr || !may(a))
		return CUDA_ERROR_INVALID_VALUE;
	*out = *a;
	erase(a);
	free_memory(out);
	return CUDA_SUCCESS;
}

void vm_remove_context(struct context *ctx)
{
	size_t kept = 0;

	WRITING();
	for (size_t i = 0; i < n_items; i++) {
		if (items[i].ctx != ctx)
			items[kept++] = items[i];
		else if (items[i].kind != ALLOCATION_DEVICE)
			free_memory(&items[i]);
	}
	n_items = kept;
	while (ctx->chunks)
		chunk_drop(ctx, ctx->chunks);
}

bool vm_find(uint64_t addr, struct allocation *out)
{
	const struct allocation *a;

	READING();
	a = find(addr);
	if (a)
		*out = *a;
	return a != NULL;
}

bool vm_contains(uint64_t addr, uint64_t size, struct allocation *out)
{
	return vm_find(addr, out) && size <= out->size - (addr - out->addr);
}

bool vm_update(uint64_t addr, void (*change)(struct allocation *, const void *), const void *arg)
{
	struct allocation *a;

	WRITING();
	a = find(addr);
	if (a)
		change(a, arg);
	return a != NULL;
}
