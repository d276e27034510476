/* SPDX-License-Identifier: Apache-2.0 */
/* How long an image is: a loader is given its start only. */
#include "layout.h"

#include <fatbin.h>

#include <ctype.h>
#include <elf.h>
#include <string.h>

/* No image is longer; keeps sums of offsets from overflowing. */
#define LARGEST ((uint64_t)1 << 40)

/* Byte by byte: text of a few bytes is no container, and its loader gave no limit. */
static bool starts_container(const uint8_t *image)
{
	const uint32_t magic = CONTAINER_MAGIC;

	for (size_t k = 0; k < sizeof magic; k++)
		if (image[k] != (uint8_t)(magic >> (8 * k)))
			return false;
	return true;
}

size_t container_length(const uint8_t *image, size_t limit)
{
	struct container_header h;

	if (limit < sizeof h || !starts_container(image))
		return 0;
	memcpy(&h, image, sizeof h);
	if (h.version != CONTAINER_VERSION || h.header < CONTAINER_HEADER ||
	    h.body > LARGEST || h.body + h.header > limit)
		return 0;
	return (size_t)(h.body + h.header);
}

/* Containers that follow one another count only where the limit tells how far we may look. */
static size_t containers_length(const uint8_t *image, size_t limit)
{
	size_t total = container_length(image, limit), next;

	while (total && limit != SIZE_MAX && (next = container_length(image + total, limit - total)))
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

		memcpy(&p, image + e->e_phoff + (uint64_t)k * e->e_phentsize, sizeof p);
		extend(end, p.p_offset, p.p_filesz);
	}
	for (uint32_t k = 0; k < e->e_shnum; k++) {
		Elf64_Shdr s;

		memcpy(&s, image + e->e_shoff + (uint64_t)k * e->e_shentsize, sizeof s);
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL)
			extend(end, s.sh_offset, s.sh_size);
	}
}

static size_t elf_length(const uint8_t *image, size_t limit)
{
	uint64_t end = sizeof(Elf64_Ehdr);
	Elf64_Ehdr e;

	/* without a limit an image may be shorter than an ELF header: nothing behind the magic is read before it is seen */
	if (limit < sizeof e || strncmp((const char *)image, ELFMAG, SELFMAG))
		return 0;
	memcpy(&e, image, sizeof e);
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

/* PTX starts with .version, behind blanks and comments. */
bool looks_like_ptx(const uint8_t *s, size_t limit)
{
	size_t k = 0;

	while (k < limit && s[k]) {
		if (isspace(s[k])) {
			k++;
		} else if (s[k] == '/' && k + 1 < limit && s[k + 1] == '/') {
			while (k < limit && s[k] && s[k] != '\n')
				k++;
		} else if (s[k] == '/' && k + 1 < limit && s[k + 1] == '*') {
			for (k += 2; k + 1 < limit && s[k] && !(s[k] == '*' && s[k + 1] == '/'); k++)
				;
			if (k + 1 >= limit || !s[k])
				return false;
			k += 2;
		} else {
			static const char start[] = ".version";

			for (size_t n = 0; n < sizeof start - 1; n++)
				if (k + n >= limit || s[k + n] != (uint8_t)start[n])
					return false;
			return true;
		}
	}
	return false;
}

size_t fatbin_image_length(const void *image, size_t limit)
{
	const uint8_t *bytes = image;
	size_t n = containers_length(bytes, limit);

	if (!n)
		n = elf_length(bytes, limit);
	if (!n && looks_like_ptx(bytes, limit))
		n = limit == SIZE_MAX ? strlen(image) : strnlen(image, limit);
	return n;
}
