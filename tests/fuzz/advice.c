/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice about managed memory at random, against a model that has every page by itself: `advice STEPS`. Prints how many
 * answers were compared and how many pieces there were at most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_rules.h"

#define CHECK(x)                                                                             \
	do {                                                                                 \
		if (!(x)) {                                                                  \
			fprintf(stderr, "step %ld: %s\n", step, #x);                         \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

enum { PAGES = 64, PAGE = 4096, BASE = 0x100000, PREFETCH = 0, CPU = 1, ANSWERS = 4 };

/* Places by number: 0 none, 1 the CPU, then devices. */
struct page {
	int read_mostly, preferred, prefetched;
	unsigned int accessed;
};

static struct page model[PAGES];
static struct cuda_advice kept;
static long step, compared;

static struct cuda_managed draw(int *first, int *end)
{
	int pages = 1 + rand() % PAGES, at = rand() % (PAGES - pages + 1);
	uint64_t start = BASE + at * PAGE + (rand() % 2 ? 0 : 17), bytes = pages * PAGE - (rand() % 2 ? 17 : 100);

	*first = at;
	*end = (int)((start + bytes - BASE + PAGE - 1) / PAGE);
	return (struct cuda_managed){ .owner = 7, .base = BASE, .size = PAGES * PAGE, .start = start, .bytes = bytes };
}

static void change_model(struct page *p, int what, int place)
{
	switch (what) {
	case PREFETCH:
		p->prefetched = place;
		break;
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		p->read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		p->preferred = place;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		p->preferred = 0;
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		p->accessed |= 1u << place;
		break;
	default:
		p->accessed &= ~(1u << place);
	}
}

static void change(void)
{
	int first, end, place = 1 + rand() % 3, what = rand() % (CU_MEM_ADVISE_UNSET_ACCESSED_BY + 1);
	struct cuda_managed memory = draw(&first, &end);
	CUmemLocation where = cuda_location_of(place == CPU ? CU_DEVICE_CPU : place - 2);

	if (what == PREFETCH)
		CHECK(cuda_note_prefetch(&kept, &memory, where) == CUDA_SUCCESS);
	else
		CHECK(cuda_advise(&kept, &memory, (CUmem_advise)what, where) == CUDA_SUCCESS);
	for (int i = first; i < end; i++)
		change_model(&model[i], what, place);
}

/* CU_DEVICE_INVALID is -2, and CU_DEVICE_CPU -1. */
static int as_device(int place)
{
	return place - 2;
}

static void compare(void)
{
	int first, end, answers[ANSWERS], n = 0;
	struct cuda_managed memory = draw(&first, &end);
	struct page all = model[first];

	for (int i = first; i < end; i++) {
		all.read_mostly &= model[i].read_mostly;
		all.preferred = all.preferred == model[i].preferred ? all.preferred : 0;
		all.prefetched = all.prefetched == model[i].prefetched ? all.prefetched : 0;
		all.accessed &= model[i].accessed;
	}
	CHECK(!cuda_range_attribute(&kept, &memory, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, answers, sizeof(int)));
	CHECK(answers[0] == all.read_mostly);
	CHECK(!cuda_range_attribute(&kept, &memory, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, answers, sizeof(int)));
	CHECK(answers[0] == as_device(all.preferred));
	CHECK(!cuda_range_attribute(&kept, &memory, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, answers, sizeof(int)));
	CHECK(answers[0] == as_device(all.prefetched));
	CHECK(!cuda_range_attribute(&kept, &memory, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, answers, sizeof(answers)));
	for (int place = CPU + 1; place <= 3; place++) {
		if (all.accessed >> place & 1)
			CHECK(answers[n++] == as_device(place));
	}
	if (all.accessed >> CPU & 1)
		CHECK(answers[n++] == CU_DEVICE_CPU);
	while (n < ANSWERS)
		CHECK(answers[n++] == CU_DEVICE_INVALID);
	compared += 4;
}

/* Advice for each page by itself is one piece in the end, and none where all of it is taken back. */
static void advise_each(CUmem_advise advice, size_t pieces)
{
	for (int i = 0; i < PAGES; i++) {
		struct cuda_managed m = { .owner = 7, .base = BASE, .size = PAGES * PAGE, .start = BASE + i * PAGE, .bytes = PAGE };

		CHECK(cuda_advise(&kept, &m, advice, cuda_location_of(0)) == CUDA_SUCCESS);
	}
	CHECK(kept.count == pieces);
}

int main(int argc, char **argv)
{
	const long steps = argc > 1 ? atol(argv[1]) : 1000;
	size_t most = 0;

	for (step = 0; step < steps; step++) {
		change();
		compare();
		CHECK(kept.count <= PAGES);
		most = kept.count > most ? kept.count : most;
		if (step % 1000 == 999) {
			memset(model, 0, sizeof(model));
			cuda_forget_advice(&kept, 7);
			CHECK(!kept.count);
		}
	}
	cuda_forget_advice(&kept, 7);
	advise_each(CU_MEM_ADVISE_SET_READ_MOSTLY, 1);
	advise_each(CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0);
	printf("compared %ld pieces %zu\n", compared, most);
	free(kept.at);
	return 0;
}
