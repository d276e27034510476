/* SPDX-License-Identifier: Apache-2.0 */
/* What is text, and how long an image is: a loader is given its start only. */
#include "layout.h"

#include <cuda_image.h>
#include <fatbin.h>

#include <ctype.h>
#include <string.h>

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
	size_t n = cuda_binary_image_length(image, limit);

	if (!n && looks_like_ptx(image, limit))
		n = limit == SIZE_MAX ? strlen(image) : strnlen(image, limit);
	return n;
}
