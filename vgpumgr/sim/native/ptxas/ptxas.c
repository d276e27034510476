/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The assembler of a simulated machine: it reads the PTX, refuses what is none, and writes it out as it is, ended by a
 * NUL. The simulated driver takes that where a GPU's takes machine code. It knows the documented options that have a
 * value; others change nothing.
 */
#include <ptx.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 255, MAX_TEXT = 1 << 28 };

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "ptxas fatal   : %s%s%s\n", what, why ? ": " : "", why ? why : "");
	return FAILED;
}

static char *read_all(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	long size = -1;
	char *text = NULL;

	if (!f)
		return NULL;
	if (!fseek(f, 0, SEEK_END) && (size = ftell(f)) >= 0 && size <= MAX_TEXT && !fseek(f, 0, SEEK_SET) &&
	    (text = malloc((size_t)size + 1)))
		*n = fread(text, 1, (size_t)size, f);
	if (text && *n != (size_t)size) {
		free(text);
		text = NULL;
	}
	fclose(f);
	return text;
}

static bool write_all(const char *path, const char *text, size_t n)
{
	FILE *f = fopen(path, "wb");
	bool written;

	if (!f)
		return false;
	written = fwrite(text, 1, n, f) == n && fputc(0, f) == 0;
	if (fclose(f))
		written = false;
	if (!written)
		remove(path);
	return written;
}

/* The value of an option, `--name=value` or the next argument, or NULL if `arguments[*k]` is another option. */
static const char *option(char **arguments, int count, int *k, const char *brief, const char *name)
{
	const char *given = arguments[*k];
	size_t n = strlen(name);

	if (!strncmp(given, name, n) && given[n] == '=')
		return given + n + 1;
	if (!strncmp(given, brief, strlen(brief)) && given[strlen(brief)] == '=')
		return given + strlen(brief) + 1;
	if (strcmp(given, brief) && strcmp(given, name))
		return NULL;
	return ++*k < count ? arguments[*k] : "";
}

static int assemble(const char *source, const char *target)
{
	struct ptx_error error;
	size_t n = 0;
	char *text = (errno = 0, read_all(source, &n));
	int status = 0;

	if (!text)
		return complain(source, errno ? strerror(errno) : "it is too long");
	if (ptx_check(text, n, &error) != PTX_OK)
		status = complain(source, error.message);
	else if (!write_all(target, text, n))
		status = complain(target, strerror(errno));
	free(text);
	return status;
}

int main(int count, char **arguments)
{
	static const char *const valued[][2] = {
		{ "-arch", "--gpu-name" }, { "-O", "--opt-level" }, { "-maxrregcount", "--maxrregcount" }, { "-e", "--entry" },
		{ "-m", "--machine" }, { "-optf", "--options-file" },
	};
	const char *source = NULL, *target = "elf.o", *value;

	for (int k = 1; k < count; k++) {
		if (!strcmp(arguments[k], "--version") || !strcmp(arguments[k], "-V")) {
			puts("ptxas: PTX optimizing assembler of a simulated machine\n"
			     "Cuda compilation tools, release 13.0, V13.0.88");
			return 0;
		}
		if ((value = option(arguments, count, &k, "-o", "--output-file"))) {
			target = value;
			continue;
		}
		value = NULL;
		for (size_t n = 0; !value && n < sizeof valued / sizeof *valued; n++)
			value = option(arguments, count, &k, valued[n][0], valued[n][1]);
		if (value || arguments[k][0] == '-')
			continue;
		if (source)
			return complain("only one input file is supported", NULL);
		source = arguments[k];
	}
	if (!source)
		return complain("no input file specified", NULL);
	return assemble(source, target);
}
