/* SPDX-License-Identifier: Apache-2.0 */
/* Module images: how long one is (nobody says), and how it travels. Bytes are sent exactly as they are. */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

enum { WRAPPER_MAGIC = 0x466243b1, CONTAINER_MAGIC = (int)0xba55ed50 };

struct wrapper {
	uint32_t magic, version;
	const void *container;
	const void *file_or_prelinked;
};
_Static_assert(sizeof(struct wrapper) == 24, "fatBinary wrapper of fatbinary_section.h");

struct container {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t body_bytes;
};
_Static_assert(sizeof(struct container) == 16, "fat binary container header");

static size_t later(size_t end, uint64_t offset, uint64_t bytes)
{
	return offset + bytes > end ? offset + bytes : end;
}

/* An ELF image ends after the last of all its parts, not with its section table. */
static size_t elf_length(const uint8_t *image)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	Elf64_Phdr p;
	size_t end;

	memcpy(&h, image, sizeof(h));
	end = later(sizeof(h), h.e_shoff, (uint64_t)h.e_shnum * h.e_shentsize);
	end = later(end, h.e_phoff, (uint64_t)h.e_phnum * h.e_phentsize);
	for (unsigned int i = 0; i < h.e_shnum; i++) {
		memcpy(&s, image + h.e_shoff + (size_t)i * h.e_shentsize, sizeof(s));
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL)
			end = later(end, s.sh_offset, s.sh_size);
	}
	for (unsigned int i = 0; i < h.e_phnum; i++) {
		memcpy(&p, image + h.e_phoff + (size_t)i * h.e_phentsize, sizeof(p));
		end = later(end, p.p_offset, p.p_filesz);
	}
	return end;
}

size_t shim_image_length(const void *image, const void **start)
{
	struct wrapper w;
	struct container c;
	uint32_t magic;

	memcpy(&magic, image, sizeof(char)); /* a PTX text may be as short as its NUL */
	*start = image;
	if (!strncmp(image, ELFMAG, SELFMAG))
		return elf_length(image);
	if ((uint8_t)magic == (uint8_t)WRAPPER_MAGIC || (uint8_t)magic == (uint8_t)CONTAINER_MAGIC) {
		memcpy(&magic, image, sizeof(magic));
		if (magic == WRAPPER_MAGIC) {
			memcpy(&w, image, sizeof(w));
			if (!w.container)
				return 0;
			*start = w.container;
			memcpy(&magic, w.container, sizeof(magic));
		}
		if (magic == (uint32_t)CONTAINER_MAGIC) {
			memcpy(&c, *start, sizeof(c));
			return c.header_bytes + c.body_bytes;
		}
	}
	return strlen(image) + 1;
}

CUresult shim_upload(const void *image, size_t length, uint32_t *upload)
{
	static _Atomic uint32_t last;
	CUresult why, r = CUDA_SUCCESS;
	struct vg_conn *conn = shim_conn(&why);
	size_t most = conn ? vg_conn_bulk_max(conn) : 0, at = 0;

	if (!conn || !most)
		return why;
	*upload = atomic_fetch_add(&last, 1) + 1;
	while (r == CUDA_SUCCESS && at < length) {
		size_t n = length - at < most ? length - at : most;
		struct vg_image_data_request in = { .upload = *upload, .total = length, .offset = at };
		struct shim_bulk bulk = { VG_BULK_TO_WORKER, (uint8_t *)image + at, n, 1, n };

		r = vg_send_image_data(&in, &bulk);
		at += n;
	}
	return r;
}

static ssize_t read_all(int fd, char *to, size_t length)
{
	size_t at = 0;
	ssize_t n;

	while (at < length && (n = read(fd, to + at, length - at)) > 0)
		at += n;
	return at == length ? 0 : -1;
}

CUresult shim_file(const char *name, void **image)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	off_t length;
	char *to;

	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	length = lseek(fd, 0, SEEK_END);
	to = length > 0 ? calloc(1, length + 1) : NULL; /* a PTX file has no NUL of its own */
	if (!to || lseek(fd, 0, SEEK_SET) || read_all(fd, to, length)) {
		close(fd);
		free(to);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	close(fd);
	*image = to;
	return CUDA_SUCCESS;
}
