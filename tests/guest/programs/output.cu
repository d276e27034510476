/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output [order|lines N|exit|reset|flood N|assert]: what kernels print comes to this process's own standard output,
 * before the call that waited for them returns and in order with what the program prints itself; a failed assertion comes
 * to standard error. "exit", "reset", "flood" and "assert" leave their output to who runs them.
 */
#define PROGRAM "output"
#include "check.h"

#include <cassert>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

__global__ void say(const char *what, int number)
{
	printf("%s %d\n", what, number);
}

__global__ void say_lines(int lines)
{
	for (int i = 0; i < lines; i++)
		printf("line %d of %d\n", i, lines);
}

__global__ void fail(int number)
{
	assert(number == 1);
}

/* One of this process's descriptors, written to a file until it is read back. */
class capture {
	int number, before;
	FILE *file;

    public:
	explicit capture(int fd) : number(fd), before(dup(fd)), file(std::tmpfile())
	{
		std::fflush(nullptr);
		if (before < 0 || !file || dup2(fileno(file), fd) < 0)
			FAIL("cannot capture descriptor %d", fd);
	}
	std::string end()
	{
		std::string text;
		char piece[4096];

		dup2(before, number);
		close(before);
		std::rewind(file);
		while (size_t n = std::fread(piece, 1, sizeof(piece), file))
			text.append(piece, n);
		std::fclose(file);
		return text;
	}
};

static void expect(const char *what, const std::string &got, const std::string &wanted)
{
	if (got != wanted)
		FAIL("%s: %zu bytes, not %zu: \"%.200s\", not \"%.200s\"", what, got.size(), wanted.size(), got.c_str(),
		     wanted.c_str());
}

static const char *device_text(const char *text)
{
	char *memory;

	CHECK(cudaMalloc(&memory, 64));
	CHECK(cudaMemcpy(memory, text, std::strlen(text) + 1, cudaMemcpyHostToDevice));
	return memory;
}

/* Each of the calls that are documented to flush, and wait. */
static void waiting_calls()
{
	const char *text = device_text("said");
	cudaStream_t stream;
	cudaEvent_t event;
	char back[8];

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&event));
	for (int i = 0; i < 4; i++) {
		capture out(STDOUT_FILENO);

		say<<<1, 1, 0, stream>>>(text, i);
		CHECK(cudaEventRecord(event, stream));
		CHECK(i == 0   ? cudaDeviceSynchronize()
		      : i == 1 ? cudaStreamSynchronize(stream)
		      : i == 2 ? cudaEventSynchronize(event)
			       : cudaMemcpy(back, text, 5, cudaMemcpyDeviceToHost));
		if (i == 3) /* it waits for the legacy stream only, which waits for this one */
			CHECK(cudaDeviceSynchronize());
		expect("a call that waits", out.end(), "said " + std::to_string(i) + "\n");
	}
}

static void order()
{
	const char *text = device_text("device");
	capture out(STDOUT_FILENO);

	std::printf("host 1, ");
	say<<<1, 1>>>(text, 1);
	CHECK(cudaDeviceSynchronize());
	std::printf("host 2, ");
	say<<<1, 1>>>(text, 2);
	CHECK(cudaDeviceSynchronize());
	std::fflush(stdout);
	expect("order", out.end(), "host 1, device 1\nhost 2, device 2\n");
}

static void lines(int count)
{
	std::string wanted;
	capture out(STDOUT_FILENO);

	for (int i = 0; i < count; i++)
		wanted += "line " + std::to_string(i) + " of " + std::to_string(count) + "\n";
	say_lines<<<1, 1>>>(count);
	CHECK(cudaDeviceSynchronize());
	expect("lines", out.end(), wanted);
}

int main(int argc, char **argv)
{
	std::string what = argc > 1 ? argv[1] : "all";

	if (what == "exit" || what == "reset") {
		say<<<1, 1>>>(device_text(what.c_str()), 7);
		CHECK(what == "exit" ? cudaDeviceSynchronize() : cudaDeviceReset());
		_exit(0);
	}
	if (what == "flood") /* far more than is kept: the host must not suffer */
		for (long i = 0; i < argument(argc, argv, 2, 100); i++)
			say_lines<<<64, 64>>>(16);
	if (what == "assert") {
		fail<<<1, 2>>>(2);
		cudaError_t error = cudaDeviceSynchronize();
		if (error != cudaErrorAssert)
			FAIL("the assertion gave %s", cudaGetErrorName(error));
		PASS("assertion");
	}
	if (what == "all" || what == "order")
		order();
	if (what == "all")
		waiting_calls();
	if (what == "all" || what == "lines")
		lines((int)argument(argc, argv, 2, 2000));
	CHECK(cudaDeviceSynchronize());
	PASS("%s", what.c_str());
}
