/* SPDX-License-Identifier: Apache-2.0 */
/* How long an image is. Fields are copied out, never cast: images have no alignment. */
#include <elf.h>
#include <string.h>

#include "cuda_image.h"

static const uint32_t wrapper_magic = 0x466243b1, container_magic = 0xba55ed50;
/* No image is longer; keeps sums of offsets from overflowing. */
static const uint64_t LARGEST = (uint64_t)1 << 40;

/* The structure that nvcc's start-up code passes around. */
struct wrapper {
	uint32_t magic, version;
	const void *container, *extra;
};
_Static_assert(sizeof(struct wrapper) == 24, "layout of fatbinary_section.h");

/* Byte by byte: text of a few bytes is no container, and its loader gave no limit. */
static bool starts_with(const uint8_t *image, uint32_t magic)
{
	for (size_t k = 0; k < sizeof(magic); k++)
		if (image[k] != (uint8_t)(magic >> (8 * k)))
			return false;
	return true;
}

static bool starts_elf(const void *image)
{
	return !strncmp(image, ELFMAG, SELFMAG);
}

const void *cuda_unwrap_image(const void *image)
{
	struct wrapper w;

	if (!starts_with(image, wrapper_magic))
		return image;
	memcpy(&w, image, sizeof(w));
	return w.container;
}

bool cuda_is_binary_image(const void *image)
{
	return starts_elf(image) || starts_with(image, container_magic);
}

size_t cuda_container_length(const void *image, size_t limit, struct cuda_container *head)
{
	if (limit < sizeof(*head) || !starts_with(image, container_magic))
		return 0;
	memcpy(head, image, sizeof(*head));
	if (head->header < sizeof(*head) || head->body > LARGEST || head->body + head->header > limit)
		return 0;
	return (size_t)(head->body + head->header);
}

static size_t containers_length(const uint8_t *image, size_t limit)
{
	struct cuda_container head;
	size_t total = cuda_container_length(image, limit, &head), next;

	while (total && limit != SIZE_MAX && (next = cuda_container_length(image + total, limit - total, &head)))
		total += next;
	return total;
}

static void extend(uint64_t *end, uint64_t offset, uint64_t size)
{
	if (offset > LARGEST || size > LARGEST)
		*end = UINT64_MAX;
	else if (offset + size > *end)
		*end = offset + size;
}

/* What sections and segments cover, once their tables are known to lie inside. */
static void extend_by_tables(const uint8_t *image, const Elf64_Ehdr *e, uint64_t *end)
{
	for (uint32_t k = 0; k < e->e_phnum; k++) {
		Elf64_Phdr p;

		memcpy(&p, image + e->e_phoff + (uint64_t)k * e->e_phentsize, sizeof(p));
		extend(end, p.p_offset, p.p_filesz);
	}
	for (uint32_t k = 0; k < e->e_shnum; k++) {
		Elf64_Shdr s;

		memcpy(&s, image + e->e_shoff + (uint64_t)k * e->e_shentsize, sizeof(s));
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL)
			extend(end, s.sh_offset, s.sh_size);
	}
}

static size_t elf_length(const uint8_t *image, size_t limit)
{
	uint64_t end = sizeof(Elf64_Ehdr);
	Elf64_Ehdr e;

	if (limit > LARGEST) /* tables beyond all bounds are not read either */
		limit = LARGEST;
	/* without a limit an image may be shorter than an ELF header: nothing behind the magic is read before it is seen */
	if (limit < sizeof(e) || !starts_elf(image))
		return 0;
	memcpy(&e, image, sizeof(e));
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (e.e_phnum && e.e_phentsize < sizeof(Elf64_Phdr)) || (e.e_shnum && e.e_shentsize < sizeof(Elf64_Shdr)))
		return 0;
	extend(&end, e.e_phnum ? e.e_phoff : 0, (uint64_t)e.e_phnum * e.e_phentsize);
	extend(&end, e.e_shnum ? e.e_shoff : 0, (uint64_t)e.e_shnum * e.e_shentsize);
	if (end > limit)
		return 0;
	extend_by_tables(image, &e, &end);
	return end > limit ? 0 : (size_t)end;
}

size_t cuda_binary_image_length(const void *image, size_t limit)
{
	size_t length = containers_length(image, limit);

	return length ? length : elf_length(image, limit);
}
