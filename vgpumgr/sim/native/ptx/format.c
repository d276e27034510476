/* SPDX-License-Identifier: Apache-2.0 */
/* printf of device code: arguments lie in a buffer, each at its natural alignment, floats widened to doubles. */
#include "ops.h"

#include <stdio.h>

enum { TEXT = 8192, SPEC = 32 };

bool read_string(struct thread *t, const struct insn *i, uint64_t addr, char *buffer, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		const uint8_t *c = reach(t, i, SPACE_GENERIC, addr + n, 1, false);

		if (!c)
			return false;
		if (!*c)
			break;
		buffer[n++] = (char)*c;
	}
	buffer[n] = 0;
	return true;
}

struct output {
	struct thread *thread;
	const struct insn *insn;
	uint64_t args;
	char text[TEXT];
	size_t length;
	int32_t count; /* of arguments */
	bool failed;
};

static void put(struct output *o, const char *text, size_t n)
{
	if (n > TEXT - o->length)
		n = TEXT - o->length;
	memcpy(o->text + o->length, text, n);
	o->length += n;
}

static uint64_t argument(struct output *o, uint32_t size)
{
	const uint8_t *at;
	uint64_t value = 0;

	o->args = (o->args + size - 1) & ~(uint64_t)(size - 1);
	at = reach(o->thread, o->insn, SPACE_GENERIC, o->args, size, false);
	o->args += size;
	o->count++;
	if (!at) {
		o->failed = true;
		return 0;
	}
	memcpy(&value, at, size);
	return value;
}

static void put_string(struct output *o, const char *spec)
{
	char text[1024], out[2048];
	uint64_t addr = argument(o, 8);
	int n;

	if (o->failed || !read_string(o->thread, o->insn, addr, text, sizeof text)) {
		o->failed = true;
		return;
	}
	n = snprintf(out, sizeof out, spec, text);
	put(o, out, n < 0 ? 0 : (size_t)n < sizeof out ? (size_t)n : sizeof out - 1);
}

/* One conversion; `spec` has the flags, width and precision, `wide` how many l's there were. */
static void convert(struct output *o, char *spec, size_t n, char kind, int wide)
{
	char out[2048];
	int length;

	if (kind == 's') {
		spec[n] = 's', spec[n + 1] = 0;
		put_string(o, spec);
		return;
	}
	if (strchr("fFeEgGaA", kind)) {
		spec[n] = kind, spec[n + 1] = 0;
		length = snprintf(out, sizeof out, spec, get_f64(argument(o, 8)));
	} else if (kind == 'p') {
		length = snprintf(out, sizeof out, "0x%llx", (unsigned long long)argument(o, 8));
	} else if (kind == 'c') {
		spec[n] = 'c', spec[n + 1] = 0;
		length = snprintf(out, sizeof out, spec, (int)argument(o, 4));
	} else if (strchr("diouxX", kind)) {
		uint64_t v = argument(o, wide > 0 ? 8 : 4);
		bool is_signed = kind == 'd' || kind == 'i';

		if (wide == -1)
			v = is_signed ? (uint64_t)(int16_t)v : (uint16_t)v;
		else if (wide == -2)
			v = is_signed ? (uint64_t)(int8_t)v : (uint8_t)v;
		else if (!wide && is_signed)
			v = (uint64_t)(int32_t)v;
		memcpy(spec + n, "ll", 2);
		spec[n + 2] = kind, spec[n + 3] = 0;
		length = snprintf(out, sizeof out, spec, (long long)v);
	} else {
		length = 0;
	}
	put(o, out, length < 0 ? 0 : (size_t)length < sizeof out ? (size_t)length : sizeof out - 1);
}

/* Reads a conversion behind its '%', returns what follows it. */
static const char *conversion(struct output *o, const char *f)
{
	char spec[SPEC] = "%";
	size_t n = 1;
	int wide = 0;

	while (*f && strchr("-+ #0123456789.*", *f)) {
		if (*f == '*')
			n += (size_t)snprintf(spec + n, 12, "%d", (int)argument(o, 4));
		else
			spec[n++] = *f;
		f++;
		if (n > SPEC - 16)
			return f + strlen(f);
	}
	for (; *f && strchr("hljztL", *f); f++)
		wide += *f == 'h' ? -1 : 1;
	if (!*f)
		return f;
	convert(o, spec, n, *f, wide);
	return f + 1;
}

bool format_print(struct thread *t, const struct insn *i, uint64_t format, uint64_t args, int32_t *printed)
{
	const struct ptx_host *h = &t->worker->grid->kernel->module->host;
	struct output o = { .thread = t, .insn = i, .args = args };
	char text[4096];
	const char *f = text;

	if (!read_string(t, i, format, text, sizeof text))
		return false;
	while (*f && !o.failed) {
		const char *percent = strchr(f, '%');

		if (!percent)
			percent = f + strlen(f);
		put(&o, f, (size_t)(percent - f));
		if (!*percent)
			break;
		if (percent[1] == '%')
			put(&o, "%", 1), f = percent + 2;
		else
			f = conversion(&o, percent + 1);
	}
	if (o.failed)
		return false;
	if (h->print && o.length)
		h->print(h->ctx, o.text, o.length);
	*printed = o.count;
	return true;
}
