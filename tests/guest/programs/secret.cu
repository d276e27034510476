/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret WORD SECONDS: copies a MiB of WORD to the device and back, prints "HOLD", and lives for SECONDS more; for tests in
 * which another user of the guest looks for WORD.
 */
#define PROGRAM "secret"
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
	const size_t words = 1 << 17;
	const unsigned long long word = std::strtoull(argc > 1 ? argv[1] : "1", nullptr, 0);
	unsigned long long *here = (unsigned long long *)std::malloc(words * sizeof(word)), *there;

	for (size_t i = 0; i < words; i++)
		here[i] = word;
	CHECK(cudaMalloc(&there, words * sizeof(word)));
	CHECK(cudaMemcpy(there, here, words * sizeof(word), cudaMemcpyHostToDevice));
	for (size_t i = 0; i < words; i++)
		here[i] = 0;
	CHECK(cudaMemcpy(here, there, words * sizeof(word), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < words; i++)
		if (here[i] != word)
			FAIL("word %zu is another", i);
	std::printf("HOLD %zu words\n", words);
	std::fflush(stdout);
	sleep((unsigned)argument(argc, argv, 2, 1));
	PASS("%zu words", words);
}
