/* SPDX-License-Identifier: Apache-2.0 */
/* Module images: their length, which no argument gives, and how they travel. Bytes are sent exactly as they are. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_image.h>

#include "shim.h"

size_t shim_image_length(const void *image, const void **start)
{
	*start = cuda_unwrap_image(image);
	if (!*start)
		return 0;
	/* what text is worth, the host's driver says */
	return cuda_is_binary_image(*start) ? cuda_binary_image_length(*start, SIZE_MAX) : strlen(*start) + 1;
}

CUresult shim_upload(const void *image, size_t length, uint32_t *upload)
{
	static _Atomic uint32_t last;
	CUresult why, r = CUDA_SUCCESS;
	struct vg_conn *conn = shim_conn(shim_channel(), &why);
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

CUresult shim_file(const char *name, void **image, size_t *bytes)
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
	if (bytes)
		*bytes = (size_t)length;
	return CUDA_SUCCESS;
}
