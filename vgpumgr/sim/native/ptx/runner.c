/* SPDX-License-Identifier: Apache-2.0 */
/* A flat device memory for tests and benchmarks: allocations one after the other, from a fixed address on. */
#include <fatbin.h>
#include <ptx.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BASE ((uint64_t)0x7f0000000000)
enum { MAX_ALLOCATIONS = 4096, MAX_TEXT = 1 << 20 };

struct allocation {
	uint64_t addr, size;
	uint8_t *at;
};

struct runner {
	struct ptx_module *module;
	struct ptx_error error;
	pthread_mutex_t lock;
	struct allocation list[MAX_ALLOCATIONS];
	size_t n;
	uint64_t next;
	char *printed;
	size_t printed_length;
	bool cancel;
	uint64_t seed;
	bool by_lane;
	uint32_t checks, cluster[3];
};

static void *runner_translate(void *ctx, uint64_t addr, uint64_t size, bool write, uint64_t *base, uint64_t *length)
{
	struct runner *r = ctx;
	void *found = NULL;

	(void)write;
	pthread_mutex_lock(&r->lock);
	for (size_t k = 0; k < r->n; k++) {
		const struct allocation *a = &r->list[k];

		if (!a->at || addr < a->addr || addr - a->addr >= a->size || size > a->size - (addr - a->addr))
			continue;
		if (base)
			*base = a->addr;
		if (length)
			*length = a->size;
		found = a->at + (addr - a->addr);
	}
	pthread_mutex_unlock(&r->lock);
	return found;
}

uint64_t runner_alloc(struct runner *r, uint64_t size, uint64_t align)
{
	struct allocation *a = NULL;
	uint64_t addr;

	pthread_mutex_lock(&r->lock);
	if (r->n < MAX_ALLOCATIONS && size && size < (uint64_t)1 << 32)
		a = &r->list[r->n];
	if (a && (a->at = calloc(1, size))) {
		addr = (r->next + align - 1) & ~(align - 1);
		a->addr = addr;
		a->size = size;
		r->next = (addr + size + 4096) & ~(uint64_t)4095; /* a hole behind each */
		r->n++;
	} else {
		addr = 0;
	}
	pthread_mutex_unlock(&r->lock);
	return addr;
}

static uint64_t host_alloc(void *ctx, uint64_t size, uint64_t align)
{
	return runner_alloc(ctx, size, align < 256 ? 256 : align);
}

static void host_free(void *ctx, uint64_t addr)
{
	struct runner *r = ctx;

	pthread_mutex_lock(&r->lock);
	for (size_t k = 0; k < r->n; k++)
		if (r->list[k].addr == addr) {
			free(r->list[k].at);
			r->list[k].at = NULL;
		}
	pthread_mutex_unlock(&r->lock);
}

static void host_print(void *ctx, const char *text, size_t length)
{
	struct runner *r = ctx;

	pthread_mutex_lock(&r->lock);
	if (length <= MAX_TEXT - r->printed_length) {
		memcpy(r->printed + r->printed_length, text, length);
		r->printed_length += length;
	}
	pthread_mutex_unlock(&r->lock);
}

void runner_close(struct runner *r)
{
	ptx_module_unload(r->module);
	for (size_t k = 0; k < r->n; k++)
		free(r->list[k].at);
	pthread_mutex_destroy(&r->lock);
	free(r->printed);
	free(r);
}

struct runner *runner_open(const char *text, size_t length)
{
	struct runner *r = calloc(1, sizeof *r);
	struct ptx_host host = { r, runner_translate, host_alloc, host_free, host_print };

	if (!r)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	r->next = BASE;
	r->printed = calloc(1, MAX_TEXT + 1);
	if (r->printed)
		ptx_module_load(text, length, &host, &r->module, &r->error);
	return r;
}

int runner_status(const struct runner *r)
{
	return r->error.status;
}

const char *runner_message(const struct runner *r)
{
	return r->error.message;
}

const char *runner_printed(const struct runner *r)
{
	return r->printed;
}

void runner_cancel(struct runner *r)
{
	*(volatile bool *)&r->cancel = true;
}

void runner_schedule(struct runner *r, uint64_t seed)
{
	r->seed = seed;
}

void runner_engine(struct runner *r, bool by_lane)
{
	r->by_lane = by_lane;
}

/* Blocks in a cluster; zeroes: what the kernel requires. */
void runner_cluster(struct runner *r, const uint32_t cluster[3])
{
	memcpy(r->cluster, cluster, sizeof r->cluster);
}

void runner_checks(struct runner *r, uint32_t checks)
{
	r->checks = checks;
}

uint32_t runner_lane_instructions(const struct runner *r)
{
	return ptx_module_lane_instructions(r->module);
}

bool runner_copy(struct runner *r, uint64_t addr, void *host, uint64_t size, bool to_device)
{
	void *at = runner_translate(r, addr, size, to_device, NULL, NULL);

	if (!at)
		return false;
	memcpy(to_device ? at : host, to_device ? host : at, size);
	return true;
}

bool runner_variable(struct runner *r, const char *name, uint64_t *addr, uint64_t *size)
{
	return r->module && ptx_module_variable(r->module, name, addr, size);
}

bool runner_info(struct runner *r, const char *name, struct ptx_kernel_info *info)
{
	struct ptx_kernel *k = r->module ? ptx_module_kernel(r->module, name) : NULL;

	if (k)
		ptx_kernel_info(k, info);
	return k;
}

/* -1: no such kernel */
int runner_run(struct runner *r, const char *name, const uint32_t dims[6], uint32_t dynamic, const void *params)
{
	struct ptx_kernel *k = r->module ? ptx_module_kernel(r->module, name) : NULL;
	struct ptx_launch launch = { { dims[0], dims[1], dims[2] }, { dims[3], dims[4], dims[5] }, dynamic, params, 8, &r->cancel,
				     r->seed, r->by_lane, .cluster = { r->cluster[0], r->cluster[1], r->cluster[2] },
				     .checks = r->checks };

	return k ? ptx_run(k, &launch, &r->error) : -1;
}

/* So that the linker keeps the fat-binary reader for the tests. */
size_t runner_image_length(const void *image, size_t limit)
{
	return fatbin_image_length(image, limit);
}

int runner_find_ptx(const void *image, size_t length, uint32_t cc, char **text, size_t *text_length, char *error,
		    size_t error_size)
{
	return fatbin_find_ptx(image, length, cc, text, text_length, error, error_size);
}

void runner_free(void *p)
{
	free(p);
}
